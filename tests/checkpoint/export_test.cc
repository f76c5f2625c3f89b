// Writing checkpoints in other layouts: peers' files come back byte for byte, values survive every exact conversion, and what is
// not exact is refused.
#include "checkpoint/export.h"

#include <set>

#include "checkpoint/ecosystem.h"
#include "tests/checkpoint/export_refusal.h"
#include "tests/checkpoint/peer_files.h"

namespace halfbyte {
namespace {

using test::refusal;

const std::string kUp = "model.layers.0.mlp.up_proj";

// The folder that an export of `dir` makes, opened again.
class Exported {
 public:
  Exported(const std::filesystem::path& dir, ExportFormat format, const ExportOptions& options = {}) {
    summary = export_checkpoint(Checkpoint(dir), format, scratch.path(), options);
    checkpoint.emplace(scratch.path());
  }
  test::Scratch scratch;
  ExportSummary summary;
  std::optional<Checkpoint> checkpoint;
};

void expect_same_values(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.names(), b.names());
  for (const std::string& name : a.names()) {
    ASSERT_EQ(a.is_quantized(name), b.is_quantized(name)) << name;
    if (a.is_quantized(name)) {
      EXPECT_EQ(test::decode(a.quantized(name)), test::decode(b.quantized(name))) << name;
      EXPECT_EQ(a.quantized(name).source, b.quantized(name).source) << name;
    } else {
      EXPECT_TRUE(std::ranges::equal(a.plain(name)->data, b.plain(name)->data)) << name;
    }
  }
}

void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const SafetensorsModel ours(a / "model.safetensors"), theirs(b / "model.safetensors");
  ASSERT_EQ(ours.names(), theirs.names());
  for (const std::string& name : ours.names()) {
    EXPECT_EQ(ours.at(name).dtype, theirs.at(name).dtype) << name;
    EXPECT_EQ(ours.at(name).shape, theirs.at(name).shape) << name;
    EXPECT_TRUE(std::ranges::equal(ours.at(name).data, theirs.at(name).data)) << name;
  }
}

// A halfbyte checkpoint of one nvfp4 tensor and a plain one; activations under a static scale where one is given.
void write_nvfp4(const std::filesystem::path& dir, GlobalScaleRule rule, float global_scale,
                 float input_scale = 0, const InputInfo& method = {.method = "rtn"}) {
  const QuantSpec spec{.format = Format::nvfp4, .global_scale = rule};
  QuantizedTensor tensor = make_quantized(spec, {8, 64}, DType::bf16);
  for (std::int64_t i = 0; i < tensor.codes.size(); ++i) tensor.codes[i] = static_cast<std::uint8_t>(37 * i);
  for (std::int64_t i = 0; i < tensor.scales8.size(); ++i)
    tensor.scales8[i] = static_cast<std::uint8_t>(1 + 3 * i);
  tensor.global_scale = global_scale;
  QuantizedInfo info{.spec = spec, .shape = tensor.shape};
  HalfbyteQuantization quantization;
  if (input_scale != 0) {
    info.input = "input";
    InputInfo input = method;
    input.channels = input.width = 64;
    input.global_scale = input_scale;
    quantization.inputs["input"] = input;
    quantization.activations = ActivationSpec{.spec = spec, .scope = ActivationScope::fixed};
  }
  quantization.tensors[kUp + ".weight"] = info;
  std::vector<TensorSpec> specs = part_specs(kUp + ".weight", info);
  if (method.scaled) specs.push_back({"input.scale", DType::f32, {64}});
  specs.push_back({"model.layers.0.mlp.down_proj.weight", DType::bf16, {2, 2}});
  SafetensorsWriter writer(dir / "model.safetensors", specs, {});
  append_parts(writer, kUp + ".weight", tensor);
  writer.append("model.layers.0.mlp.down_proj.weight", std::vector<std::byte>(8));
  const std::vector<float> scale(64, 0.5f);
  if (method.scaled) writer.append("input.scale", std::as_bytes(std::span(scale)));
  writer.finish();
  write_text_file(dir / "config.json",
                  dump_json({{"model_type", "llama"}, {"quantization_config", to_json(quantization)}}));
}

TEST(Export, PeersFilesComeBackByteForByte) {
  for (const std::string& name : test::kPeerCheckpoints) {
    const Exported halfbyte(test::peer_dir(name), ExportFormat::halfbyte);
    EXPECT_EQ(halfbyte.checkpoint->ecosystem(), nullptr);
    expect_same_values(Checkpoint(test::peer_dir(name)), *halfbyte.checkpoint);
    const std::string to(Checkpoint(test::peer_dir(name)).ecosystem()->name);
    const Exported back(halfbyte.scratch.path(), *find_export_format(to));
    expect_same_tensors(back.scratch.path(), test::peer_dir(name));
    EXPECT_EQ(back.checkpoint->quantization().activations,
              Checkpoint(test::peer_dir(name)).quantization().activations)
        << name;
    EXPECT_EQ(back.summary.quantized, 7) << name;
    EXPECT_EQ(back.summary.plain, 5) << name;
  }
}

// The members that the packages write are all there, with the values that they write.
TEST(Export, ConfigsSayWhatThePeersSay) {
  for (const std::string& name : test::kPeerCheckpoints) {
    const Exported same(test::peer_dir(name),
                        *find_export_format(Checkpoint(test::peer_dir(name)).ecosystem()->name));
    Json theirs = Checkpoint(test::peer_dir(name)).config()["quantization_config"];
    Json ours = same.checkpoint->config()["quantization_config"];
    // Names of what stays as it is: the packages list none (bitsandbytes), or embeddings too (ModelOpt).
    for (const char* key : {"llm_int8_skip_modules", "ignore"}) {
      if (ours.contains(key)) {
        EXPECT_EQ(ours[key], Json::array({"lm_head"})) << name;
      }
      ours.erase(key);
      theirs.erase(key);
    }
    theirs.erase("moe_sparsity_config");
    EXPECT_EQ(ours, theirs) << name;
  }
}

TEST(Export, PowersOfTwoGoEverywhere) {
  const test::Scratch dir;
  write_nvfp4(dir.path(), GlobalScaleRule::pow2, 0x1p-14f, 0x1p-9f);
  const Exported ct(dir.path(), ExportFormat::compressed_tensors);
  EXPECT_EQ(load<float>(ct.checkpoint->files().at(kUp + ".weight_global_scale").data.data()), 0x1p14f);
  EXPECT_EQ(load<float>(ct.checkpoint->files().at(kUp + ".input_global_scale").data.data()), 0x1p9f);
  EXPECT_EQ(ct.checkpoint->config()["quantization_config"]["ignore"],
            Json::array({"lm_head", "model.layers.0.mlp.down_proj"}));
  expect_same_values(Checkpoint(dir.path()), *ct.checkpoint);
  const Exported modelopt(ct.scratch.path(), ExportFormat::modelopt);
  EXPECT_EQ(load<float>(modelopt.checkpoint->files().at(kUp + ".weight_scale_2").data.data()), 0x1p-14f);
  EXPECT_EQ(load<float>(modelopt.checkpoint->files().at(kUp + ".input_scale").data.data()), 0x1p-9f);
  EXPECT_TRUE(std::filesystem::exists(modelopt.scratch / "hf_quant_config.json"));
  expect_same_values(Checkpoint(dir.path()), *modelopt.checkpoint);
  const Exported back(modelopt.scratch.path(), ExportFormat::halfbyte);
  expect_same_values(Checkpoint(dir.path()), *back.checkpoint);
  EXPECT_EQ(back.checkpoint->quantization().inputs.at(kUp).global_scale, 0x1p-9f);
}

TEST(Export, RoundedReciprocalsAreRefusedUnlessAllowed) {
  const test::Scratch dir;
  write_nvfp4(dir.path(), GlobalScaleRule::amax, 0.00123f);
  const std::string message = refusal(dir.path(), ExportFormat::compressed_tensors);
  EXPECT_NE(message.find("its reciprocal is not exact"), std::string::npos) << message;
  EXPECT_NE(message.find(kUp), std::string::npos) << message;
  const Exported allowed(dir.path(), ExportFormat::compressed_tensors, {.allow_rounding = true});
  EXPECT_EQ(load<float>(allowed.checkpoint->files().at(kUp + ".weight_global_scale").data.data()),
            1.0f / 0.00123f);
  const Exported factor(dir.path(), ExportFormat::modelopt);  // a factor stays a factor
  expect_same_values(Checkpoint(dir.path()), *factor.checkpoint);
}

TEST(Export, RefusesWhatTheOtherCannotSay) {
  const auto peer = [](const char* name) { return test::peer_dir(name); };
  using enum ExportFormat;
  EXPECT_NE(refusal(peer("bitsandbytes_nf4"), compressed_tensors).find("written with nvfp4 or mxfp4"),
            std::string::npos);
  EXPECT_NE(refusal(peer("bitsandbytes_nf4"), modelopt).find("written with nvfp4"), std::string::npos);
  EXPECT_NE(refusal(peer("compressed_tensors_mxfp4"), modelopt).find("written with nvfp4"),
            std::string::npos);
  EXPECT_NE(refusal(peer("modelopt_nvfp4"), bitsandbytes).find("written with nf4 or fp4"), std::string::npos);
  EXPECT_NE(refusal(peer("modelopt_nvfp4"), compressed_tensors).find("reciprocal is not exact"),
            std::string::npos);
  EXPECT_NE(refusal(std::filesystem::path(HALFBYTE_GOLDEN) / "models/llama_tied", halfbyte)
                .find("no tensor of this"),
            std::string::npos);

  const test::Scratch dir;
  write_nvfp4(dir.path(), GlobalScaleRule::pow2, 0x1p-14f, 0x1p-9f, {.method = "hadamard", .hadamard = 64});
  EXPECT_NE(refusal(dir.path(), compressed_tensors, {.weights_only = true}).find("hadamard"),
            std::string::npos);
}

TEST(Export, HalfbytesOwnKeepTheirInputs) {
  const test::Scratch dir;
  write_nvfp4(dir.path(), GlobalScaleRule::pow2, 0x1p-14f, 0x1p-9f,
              {.method = "smoothquant", .scaled = true});
  const Exported same(dir.path(), ExportFormat::halfbyte, {.max_shard_bytes = 300});
  EXPECT_GT(same.summary.files, 1);
  expect_same_values(Checkpoint(dir.path()), *same.checkpoint);
  EXPECT_EQ(same.checkpoint->input("input").scale, std::vector<float>(64, 0.5f));
  EXPECT_EQ(same.checkpoint->config(), Checkpoint(dir.path()).config());
}

TEST(Export, WeightsOnlyLeavesActivationsOut) {
  const Exported plain(test::peer_dir("compressed_tensors_nvfp4"), ExportFormat::compressed_tensors,
                       {.weights_only = true});
  EXPECT_FALSE(plain.checkpoint->quantization().activations);
  EXPECT_TRUE(plain.checkpoint->quantization().inputs.empty());
  EXPECT_EQ(plain.checkpoint->files().find(kUp + ".input_global_scale"), nullptr);
  expect_same_values(Checkpoint(test::peer_dir("compressed_tensors_nvfp4")), *plain.checkpoint);
  const Exported modelopt(test::peer_dir("modelopt_nvfp4"), ExportFormat::modelopt, {.weights_only = true});
  EXPECT_EQ(modelopt.checkpoint->config()["quantization_config"]["quant_algo"], "W4A16_NVFP4");
}

TEST(Export, ShardsAreListedInAnIndex) {
  const std::string name = "bitsandbytes_nf4_double";
  const Exported shards(test::peer_dir(name), ExportFormat::bitsandbytes, {.max_shard_bytes = 10000});
  EXPECT_GT(shards.summary.files, 3);
  const Json index = read_json_file(shards.scratch / "model.safetensors.index.json");
  std::set<std::string> files;
  std::int64_t total = 0;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    total += static_cast<std::int64_t>(shards.checkpoint->files().at(tensor).data.size());
    files.insert(file.get<std::string>());
  }
  EXPECT_EQ(static_cast<std::int64_t>(files.size()), shards.summary.files);
  EXPECT_EQ(index["metadata"]["total_size"], total);
  for (const SafetensorsFile& file : shards.checkpoint->files().files()) {
    std::int64_t bytes = 0;
    for (const NamedTensor& tensor : file.tensors())
      bytes += static_cast<std::int64_t>(tensor.view.data.size());
    EXPECT_TRUE(bytes <= 10000 || file.tensors().size() == 1) << file.path() << " " << bytes;
  }
  expect_same_values(Checkpoint(test::peer_dir(name)), *shards.checkpoint);
}

TEST(Export, ExpertsAreCarriedAndCacheScalesLeftOut) {
  const test::Scratch dir;
  test::EditableModel model(test::peer_dir("compressed_tensors_nvfp4a16"));
  model.tensors.push_back(
      stored("model.layers.0.mlp.experts.down_proj", DType::bf16, {2, 3, 4}, std::vector<std::byte>(48)));
  model.tensors.push_back(stored_scalar("model.layers.0.self_attn.k_scale", {1}, 0.5f));
  model.write(dir.path());
  const Exported exported(dir.path(), ExportFormat::halfbyte);
  EXPECT_TRUE(exported.checkpoint->has("model.layers.0.mlp.experts.down_proj"));
  EXPECT_FALSE(exported.checkpoint->has("model.layers.0.self_attn.k_scale"));
  ASSERT_EQ(exported.summary.notes.size(), 2u);
  EXPECT_NE(exported.summary.notes[0].find("1 tensors of three dimensions"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
