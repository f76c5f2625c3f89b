// ARC models in the layout beside compressed-tensors: they come back byte for byte, the primary tensors are those of
// compressed-tensors, and damaged files are refused.
#include <numeric>

#include "checkpoint/ecosystem.h"
#include "checkpoint/export.h"
#include "tests/checkpoint/export_refusal.h"
#include "tests/checkpoint/peer_files.h"

namespace halfbyte {
namespace {

using test::refusal;

const std::string kQ = "model.layers.0.self_attn.q_proj", kK = "model.layers.0.self_attn.k_proj",
                  kO = "model.layers.0.self_attn.o_proj";
constexpr std::int64_t kChannels = 40, kMain = 48, kResidual = 16, kWidth = kMain + kResidual;

struct Kind {
  bool natural = false, shared = false;
  ActivationScope scope = ActivationScope::tensor;
  GlobalScaleRule rule = GlobalScaleRule::pow2;
  float factor = 0x1p-12f;  // of weights and inputs; its reciprocal under the rule compressed_tensors
};

// 40 channels, padded to 48, then those that have residuals.
std::vector<std::int32_t> columns_of(const Kind& kind) {
  std::vector<std::int32_t> columns(kMain, -1);
  std::iota(columns.begin(), columns.begin() + kChannels, 0);
  if (!kind.natural) std::reverse(columns.begin(), columns.begin() + kChannels);
  for (std::int32_t i = 0; i < kResidual; ++i)
    columns.push_back(kind.natural ? 2 * i + 1 : columns[static_cast<std::size_t>(i)]);
  return columns;
}

QuantizedTensor some_tensor(const QuantSpec& spec, const Shape& shape, std::int64_t seed,
                            float global_scale) {
  QuantizedTensor tensor = make_quantized(spec, shape, DType::bf16);
  for (std::int64_t i = 0; i < tensor.codes.size(); ++i)
    tensor.codes[i] = static_cast<std::uint8_t>(seed + 37 * i);
  for (std::int64_t i = 0; i < tensor.scales8.size(); ++i)
    tensor.scales8[i] = static_cast<std::uint8_t>((seed + 3 * i) % 0x7E + 1);
  tensor.global_scale = global_scale;
  return tensor;
}

// A halfbyte checkpoint: two layers that read one input with residual channels, one that reads its input as it is, and a
// plain tensor.
void write_arc(const std::filesystem::path& dir, const Kind& kind) {
  const float scale = kind.rule == GlobalScaleRule::compressed_tensors ? 1 / kind.factor : kind.factor;
  const bool fixed = kind.scope == ActivationScope::fixed;
  const QuantSpec spec{.format = Format::nvfp4, .global_scale = kind.rule};
  HalfbyteQuantization quantization;
  quantization.activations = ActivationSpec{.spec = spec, .scope = kind.scope};
  quantization.inputs["attention"] = {.method = "arc",
                                      .channels = kChannels,
                                      .width = kWidth,
                                      .residual = kResidual,
                                      .shared_scale = kind.shared,
                                      .gathered = true,
                                      .global_scale = fixed ? scale : 0.0f,
                                      .residual_global_scale = fixed && !kind.shared ? scale : 0.0f};
  quantization.inputs["attention_output"] = {
      .method = "arc", .channels = 32, .width = 32, .global_scale = fixed ? scale : 0.0f};
  std::map<std::string, QuantizedTensor> tensors;
  std::vector<TensorSpec> specs{{"model.norm.weight", DType::bf16, {4}}};
  for (const std::string& layer : {kQ, kK, kO}) {
    const QuantizedInfo info{.spec = spec,
                             .shape = {layer == kQ ? 8 : 4, layer == kO ? 32 : kWidth},
                             .input = layer == kO ? "attention_output" : "attention"};
    const std::string name = layer + ".weight";
    quantization.tensors[name] = info;
    for (TensorSpec& part : part_specs(name, info)) specs.push_back(std::move(part));
    tensors.emplace(name, some_tensor(spec, info.shape, layer == kQ ? 5 : 77, scale));
  }
  const InputTransform transform{
      .info = quantization.inputs["attention"], .scale = {}, .columns = columns_of(kind)};
  for (TensorSpec& part : input_specs("attention", transform.info)) specs.push_back(std::move(part));
  SafetensorsWriter writer(dir / "model.safetensors", specs, {});
  writer.append("model.norm.weight", std::vector<std::byte>(8));
  for (const auto& [name, tensor] : tensors) append_parts(writer, name, tensor);
  for_each_part("attention", transform, [&](const std::string& name, std::span<const std::byte> bytes) {
    writer.append(name, bytes);
  });
  writer.finish();
  write_text_file(dir / "config.json",
                  dump_json({{"model_type", "llama"}, {"quantization_config", to_json(quantization)}}));
}

void export_to(const std::filesystem::path& from, ExportFormat format, const std::filesystem::path& to) {
  export_checkpoint(Checkpoint(from), format, to, {});
}

TEST(ArcLayout, ComesBackByteForByte) {
  using enum ActivationScope;
  const auto divisor = GlobalScaleRule::compressed_tensors;
  for (const Kind& kind : std::vector<Kind>{{.scope = tensor},
                                            {.natural = true, .scope = tensor},
                                            {.shared = true, .scope = token, .rule = divisor},
                                            {.scope = fixed},
                                            {.natural = true, .shared = true, .scope = fixed},
                                            {.scope = fixed, .rule = divisor, .factor = 0.00123f}}) {
    const test::Scratch before, arc, after;
    write_arc(before.path(), kind);
    export_to(before.path(), ExportFormat::halfbyte_arc, arc.path());
    export_to(arc.path(), ExportFormat::halfbyte, after.path());
    const Checkpoint a(before.path()), b(arc.path()), c(after.path());
    EXPECT_EQ(b.ecosystem(), &kHalfbyteArc);
    EXPECT_EQ(a.config(), c.config());
    ASSERT_EQ(a.files().names(), c.files().names());
    for (const std::string& name : a.files().names()) {
      EXPECT_EQ(a.files().at(name).dtype, c.files().at(name).dtype) << name;
      EXPECT_EQ(a.files().at(name).shape, c.files().at(name).shape) << name;
      EXPECT_TRUE(std::ranges::equal(a.files().at(name).data, c.files().at(name).data)) << name;
    }
    // What a model makes of the layout itself.
    EXPECT_EQ(a.names(), b.names());
    EXPECT_EQ(b.input("attention").columns, columns_of(kind));
    EXPECT_EQ(to_json(a.quantization()), to_json(b.quantization()));
    for (const auto& [name, info] : a.quantization().tensors) {
      EXPECT_TRUE(std::ranges::equal(a.quantized(name).codes, b.quantized(name).codes)) << name;
      EXPECT_TRUE(std::ranges::equal(a.quantized(name).scales8, b.quantized(name).scales8)) << name;
      EXPECT_EQ(a.quantized(name).global_scale, b.quantized(name).global_scale) << name;
    }
  }
}

// With quant_method changed, compressed-tensors reads the columns that are not residual.
TEST(ArcLayout, PrimaryTensorsAreThoseOfCompressedTensors) {
  for (const ActivationScope scope : {ActivationScope::tensor, ActivationScope::fixed}) {
    const test::Scratch before, arc, plain;
    write_arc(before.path(), {.scope = scope});
    export_to(before.path(), ExportFormat::halfbyte_arc, arc.path());
    test::EditableModel model(arc.path());
    Json& entry = model.config["quantization_config"];
    EXPECT_EQ(entry["quant_method"], "halfbyte-arc");
    EXPECT_EQ(entry["format"], "nvfp4-pack-quantized");
    entry["quant_method"] = "compressed-tensors";
    model.write(plain.path());
    const Checkpoint whole(before.path()), primary(plain.path());
    EXPECT_EQ(primary.quantization().activations->scope, scope);
    for (const std::string& layer : {kQ, kK, kO}) {
      const std::vector<float> all = test::decode(whole.quantized(layer + ".weight"));
      const std::vector<float> main = test::decode(primary.quantized(layer + ".weight"));
      const Shape from = whole.shape(layer + ".weight"), to = primary.shape(layer + ".weight");
      ASSERT_EQ(to, (Shape{from[0], layer == kO ? 32 : kMain}));
      for (std::int64_t i = 0; i < count(to); ++i)
        ASSERT_EQ(main[static_cast<std::size_t>(i)],
                  all[static_cast<std::size_t>(i / to[1] * from[1] + i % to[1])])
            << layer << " " << i;
    }
  }
}

TEST(ArcLayout, RefusesWhatItCannotHold) {
  using enum ExportFormat;
  const auto contains = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const test::Scratch dir, inexact;
  write_arc(dir.path(), {});
  contains(refusal(dir.path(), compressed_tensors), "halfbyte-arc");
  contains(refusal(dir.path(), modelopt), "halfbyte-arc");
  contains(refusal(dir.path(), halfbyte_arc, {.weights_only = true}), "residual channels");
  contains(refusal(dir.path(), halfbyte, {.weights_only = true}), "residual channels");
  contains(refusal(test::peer_dir("compressed_tensors_nvfp4"), halfbyte_arc), "compressed-tensors holds it");
  write_arc(inexact.path(), {.rule = GlobalScaleRule::amax, .factor = 0.00123f});
  contains(refusal(inexact.path(), halfbyte_arc), "its reciprocal is not exact");
}

struct Damage {
  void (*edit)(test::EditableModel& model);
  std::string expected;  // part of the message
};

void set_channel(test::EditableModel& model, const std::string& part, std::size_t place,
                 std::int32_t channel) {
  std::memcpy(model.at(part).bytes.data() + 4 * place, &channel, sizeof channel);
}
void set_float(test::EditableModel& model, const std::string& part, float value) {
  std::memcpy(model.at(part).bytes.data(), &value, sizeof value);
}
Json& entry(test::EditableModel& model) { return model.config["quantization_config"]; }

TEST(ArcLayout, RefusesDamagedFiles) {
  using Model = test::EditableModel;
  const std::vector<Damage> damages{
      {[](Model& m) { m.erase(kQ + ".input_order"); }, kQ + ".input_order\" is missing"},
      {[](Model& m) { m.erase(kQ + ".residual_channels"); }, kQ + ".residual_channels\" is missing"},
      {[](Model& m) { m.erase(kQ + ".residual_packed"); }, kQ + ".residual_packed\" is missing"},
      {[](Model& m) { m.erase(kQ + ".residual_scale"); }, kQ + ".residual_scale\" is missing"},
      {[](Model& m) { m.erase(kQ + ".residual_input_global_scale"); }, "_global_scale\" is missing"},
      {[](Model& m) { m.erase(kQ + ".weight_packed"); }, kQ + ".weight_packed\" is missing"},
      {[](Model& m) { m.at(kO + ".weight_packed").spec.name = "x.weight_packed"; }, "is missing"},
      {[](Model& m) { m.tensors.push_back(stored_scalar(kO + ".residual_scale", {1}, 1)); },
       "belongs to no quantized tensor"},
      {[](Model& m) {
         m.at(kQ + ".residual_packed").spec.shape = {4, 16};
       },
       "expected U8 [8, 8]"},
      {[](Model& m) {
         m.at(kQ + ".input_order").spec.shape = {6, 8};
       },
       "expected I32 [48]"},
      {[](Model& m) { set_channel(m, kQ + ".input_order", 0, 1); }, "different orders"},
      {[](Model& m) {
         for (const std::string& layer : {kQ, kK}) set_channel(m, layer + ".input_order", 0, 1);
       },
       "twice"},
      {[](Model& m) {
         for (const std::string& layer : {kQ, kK}) set_channel(m, layer + ".residual_channels", 0, -1);
       },
       "names channel -1"},
      {[](Model& m) { m.at(kQ + ".residual_scale").bytes[1] = std::byte{0x7F}; }, "holds nan at 1"},
      {[](Model& m) { m.at(kQ + ".weight_scale").bytes[2] = std::byte{0xB8}; }, "holds -1 at 2"},
      {[](Model& m) { set_float(m, kQ + ".weight_global_scale", 0x1p-12f); }, "no plausible divisor"},
      {[](Model& m) { set_float(m, kQ + ".weight_global_scale", 813.0f); }, "of no global scale of the rule"},
      {[](Model& m) { set_float(m, kQ + ".input_global_scale", 0x1p11f); }, "but config.json"},
      {[](Model& m) { set_float(m, kQ + ".residual_input_global_scale", NAN); }, "a positive number"},
      {[](Model& m) { entry(m)["arc_version"] = 2; }, "arc_version is 2"},
      {[](Model& m) { entry(m)["format"] = "mxfp4-pack-quantized"; }, "mxfp4-pack-quantized"},
      {[](Model& m) { entry(m).erase("halfbyte"); }, "halfbyte"},
      {[](Model& m) { entry(m)["halfbyte"]["tensors"] = Json::object(); }, "describes no tensor"},
      {[](Model& m) { entry(m)["halfbyte"]["inputs"]["attention"]["hadamard"] = 8; }, "rotated"},
      {[](Model& m) { entry(m)["halfbyte"]["inputs"]["attention"]["residual"] = 8; }, "multiples of 16"},
      {[](Model& m) {
         entry(m)["halfbyte"]["tensors"][kQ + ".weight"]["shape"] = {1 << 30, kWidth};
       },
       "expected U8 [1073741824"},
  };
  for (const Damage& damage : damages) {
    const test::Scratch before, arc, broken;
    write_arc(before.path(), {.scope = ActivationScope::fixed});
    export_to(before.path(), ExportFormat::halfbyte_arc, arc.path());
    test::EditableModel model(arc.path());
    damage.edit(model);
    model.write(broken.path());
    const std::string message = test::refusal_of(broken.path());
    EXPECT_NE(message.find(damage.expected), std::string::npos) << damage.expected << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_NE(message.find(broken.path().string()), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace halfbyte
