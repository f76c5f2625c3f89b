// halfbyte's own checkpoints: every format survives the file, and every damaged part is refused by name.
#include "checkpoint/halfbyte.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "core/fail.h"
#include "io/file.h"
#include "io/output.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::string kName = "model.layers.0.mlp.up_proj.weight";

// A tensor whose parts hold recognisable, valid values; the codecs are tested elsewhere.
QuantizedTensor filled(const QuantSpec& spec, const Shape& shape) {
  QuantizedTensor tensor = make_quantized(spec, shape, DType::bf16);
  for (std::int64_t i = 0; i < tensor.codes.size(); ++i) tensor.codes[i] = static_cast<std::uint8_t>(i * 37);
  for (std::int64_t i = 0; i < tensor.scales8.size(); ++i)
    tensor.scales8[i] = static_cast<std::uint8_t>(1 + i % 100);
  for (std::int64_t i = 0; i < tensor.scales.size(); ++i) tensor.scales[i] = 0.5f + static_cast<float>(i);
  for (std::int64_t i = 0; i < tensor.nested_absmax.size(); ++i)
    tensor.nested_absmax[i] = 0.25f + static_cast<float>(i);
  if (spec.double_quant) tensor.offset = 0.125f;
  if (spec.format == Format::nvfp4) tensor.global_scale = 0.0625f;
  return tensor;
}

const std::vector<QuantSpec> kSpecs{
    {.format = Format::nf4},
    {.format = Format::nf4, .block_size = 128, .double_quant = true},
    {.format = Format::fp4, .block_size = 4096},
    {.format = Format::nvfp4},
    {.format = Format::nvfp4, .global_scale = GlobalScaleRule::modelopt},
    {.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax, .four_six = true},
    {.format = Format::nvfp4, .scale_search = true},
    {.format = Format::mxfp4, .mx_scale = MxScaleRule::even},
    {.format = Format::mxfp8_e4m3},
    {.format = Format::mxfp8_e5m2},
    {.format = Format::int4, .block_size = 32},
    {.format = Format::int8}};

void write(const std::filesystem::path& dir, const QuantizedTensor& tensor,
           const std::optional<ActivationSpec>& activations = {}) {
  const QuantizedInfo info{.spec = tensor.spec, .shape = tensor.shape, .source = tensor.source};
  SafetensorsWriter writer(dir / "model.safetensors", part_specs(kName, info), {});
  append_parts(writer, kName, tensor);
  writer.finish();
  HalfbyteQuantization quantization{.tensors = {{kName, info}}, .activations = activations};
  write_text_file(dir / "config.json",
                  dump_json({{"model_type", "llama"}, {"quantization_config", to_json(quantization)}}));
}

template <typename T>
void expect_same(const Array<T>& a, const Array<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
}

TEST(HalfbyteCheckpoint, EveryFormatSurvivesTheFile) {
  for (const QuantSpec& spec : kSpecs) {
    for (const Shape& shape : {Shape{8, 64}, Shape{3, 37}, Shape{5, 300}}) {
      const test::Scratch dir;
      const QuantizedTensor before = filled(spec, shape);
      write(dir.path(), before);
      const Checkpoint checkpoint(dir.path());
      ASSERT_EQ(checkpoint.names(), std::vector<std::string>{kName});
      EXPECT_TRUE(checkpoint.is_quantized(kName));
      EXPECT_EQ(checkpoint.shape(kName), shape);
      EXPECT_EQ(checkpoint.stored_bytes(kName), quantized_bytes(spec, shape));
      const QuantizedTensor after = checkpoint.quantized(kName);
      EXPECT_EQ(after.shape, before.shape);
      EXPECT_EQ(after.source, before.source);
      EXPECT_EQ(effective_block(after.spec, shape[1]), effective_block(spec, shape[1]));
      EXPECT_EQ(std::tuple(after.spec.format, after.spec.double_quant, after.spec.global_scale,
                           after.spec.mx_scale, after.spec.four_six, after.spec.scale_search),
                std::tuple(spec.format, spec.double_quant, spec.global_scale, spec.mx_scale, spec.four_six,
                           spec.scale_search));
      expect_same(after.codes, before.codes);
      expect_same(after.scales8, before.scales8);
      expect_same(after.scales, before.scales);
      expect_same(after.nested_absmax, before.nested_absmax);
      EXPECT_EQ(after.offset, before.offset);
      EXPECT_EQ(after.global_scale, before.global_scale);
    }
  }
}

TEST(HalfbyteCheckpoint, ActivationsSurviveTheConfig) {
  const test::Scratch dir;
  const ActivationSpec spec{.spec = {.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax},
                            .scope = ActivationScope::token};
  write(dir.path(), filled({.format = Format::nvfp4}, {2, 16}), spec);
  const auto read = Checkpoint(dir.path()).quantization().activations;
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->scope, ActivationScope::token);
  EXPECT_EQ(read->spec.global_scale, GlobalScaleRule::amax);
}

// The message of the Error that opening and reading throws, or nothing.
std::string refusal(const std::filesystem::path& dir) {
  try {
    const Checkpoint checkpoint(dir);
    for (const std::string& name : checkpoint.names())
      if (checkpoint.is_quantized(name)) checkpoint.quantized(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HalfbyteCheckpoint, RefusesScalesThatCannotBe) {
  struct Case {
    QuantSpec spec;
    void (*damage)(QuantizedTensor&);
    std::string part;
  };
  for (const Case& c : std::vector<Case>{
           {{.format = Format::nvfp4}, [](QuantizedTensor& t) { t.scales8[3] = 0x7F; }, "scales"},
           {{.format = Format::nvfp4}, [](QuantizedTensor& t) { t.scales8[0] = 0x80; }, "scales"},
           {{.format = Format::nvfp4}, [](QuantizedTensor& t) { t.global_scale = 0; }, "global_scale"},
           {{.format = Format::nvfp4}, [](QuantizedTensor& t) { t.global_scale = NAN; }, "global_scale"},
           {{.format = Format::mxfp4}, [](QuantizedTensor& t) { t.scales8[1] = 255; }, "scales"},
           {{.format = Format::nf4}, [](QuantizedTensor& t) { t.scales[0] = INFINITY; }, "scales"},
           {{.format = Format::int4}, [](QuantizedTensor& t) { t.scales[1] = -1; }, "scales"},
           {{.format = Format::nf4, .double_quant = true},
            [](QuantizedTensor& t) { t.offset = NAN; },
            "offset"},
           {{.format = Format::nf4, .double_quant = true},
            [](QuantizedTensor& t) { t.nested_absmax[0] = NAN; },
            "nested_absmax"}}) {
    const test::Scratch dir;
    QuantizedTensor tensor = filled(c.spec, {8, 64});
    c.damage(tensor);
    write(dir.path(), tensor);
    const std::string message = refusal(dir.path());
    EXPECT_NE(message.find(kName + "." + c.part), std::string::npos) << to_string(c.spec) << ": " << message;
    EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  }
}

TEST(HalfbyteCheckpoint, RefusesPartsThatAreMissingOrMisshapen) {
  const QuantizedTensor tensor = filled({.format = Format::nvfp4}, {8, 64});
  const QuantizedInfo info{.spec = tensor.spec, .shape = tensor.shape, .source = tensor.source};
  for (std::size_t part = 0; part < 3; ++part) {
    for (const bool misshapen : {false, true}) {
      const test::Scratch dir;
      write(dir.path(), tensor);
      std::vector<TensorSpec> specs = part_specs(kName, info);
      const std::string name = specs[part].name;
      if (misshapen)
        specs[part].shape.push_back(1);
      else
        specs.erase(specs.begin() + static_cast<std::ptrdiff_t>(part));
      SafetensorsWriter writer(dir.path() / "model.safetensors", specs, {});
      for (const TensorSpec& spec : specs)
        writer.append(spec.name, std::vector<std::byte>(
                                     static_cast<std::size_t>(count(spec.shape) * dtype_bytes(spec.dtype)),
                                     std::byte{1}));
      writer.finish();
      EXPECT_NE(refusal(dir.path()).find(name), std::string::npos) << name << ": " << refusal(dir.path());
    }
  }
}

TEST(HalfbyteCheckpoint, RefusesConfigsThatDoNotDescribeTheFile) {
  const std::vector<std::pair<std::string, std::string>> edits{
      {"\"version\": 1", "\"version\": 4"},
      {"\"format\": \"nvfp4\"", "\"format\": \"nvfp5\""},
      {"\"nvfp4\"", "\"mxfp4\""},
      {"\"halfbyte\"", "\"gptq\""},
      {"\"BF16\"", "\"I32\""},
      {"\"block_size\": 16", "\"block_size\": 32"},
      {"\"pow2\"", "\"pow3\""},
      {"up_proj", "down_proj"},
      {"\"tensors\": {", "\"tensors\": 3, \"x\": {"},
      {"\"shape\": [", "\"shape\": [-1, "}};
  for (const auto& [from, to] : edits) {
    const test::Scratch dir;
    write(dir.path(), filled({.format = Format::nvfp4}, {8, 64}));
    std::string config = read_text_file(dir.path() / "config.json");
    const auto at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << config;
    write_text_file(dir.path() / "config.json", config.replace(at, from.size(), to));
    const std::string message = refusal(dir.path());
    EXPECT_FALSE(message.empty()) << from << " -> " << to;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace halfbyte
