// Reading the checkpoints of bitsandbytes, compressed-tensors and ModelOpt: what the packages themselves wrote, and files with
// a part that does not belong.
#include "checkpoint/ecosystem.h"

#include "tests/checkpoint/peer_files.h"

namespace halfbyte {
namespace {

const std::string kUp = "model.layers.0.mlp.up_proj";

TEST(Ecosystem, DecodesAsThePeersDo) {
  for (const std::string& name : test::kPeerCheckpoints) {
    const Checkpoint checkpoint(test::peer_dir(name));
    const SafetensorsFile expected(test::peer_dir(name) / "expected.safetensors");
    ASSERT_NE(checkpoint.ecosystem(), nullptr) << name;
    EXPECT_EQ(checkpoint.quantization().tensors.size(), 7u) << name;
    EXPECT_EQ(checkpoint.names().size(), 12u) << name;  // and embedding, head, three norms
    for (const auto& [tensor, info] : checkpoint.quantization().tensors) {
      const QuantizedTensor quantized = checkpoint.quantized(tensor);
      const TensorView& theirs = expected.at(tensor);
      ASSERT_EQ(quantized.shape, theirs.shape) << name << " " << tensor;
      EXPECT_EQ(quantized.source, DType::bf16) << name;
      EXPECT_EQ(checkpoint.plain(tensor), nullptr);
      const std::vector<float> values = test::decode(quantized);
      std::int64_t different = 0;
      for (std::int64_t i = 0; i < theirs.elements(); ++i)
        different += values[static_cast<std::size_t>(i)] != load_element(theirs.dtype, theirs.data.data(), i);
      EXPECT_EQ(different, 0) << name << " " << tensor;
    }
  }
}

TEST(Ecosystem, KnowsHowInputsAreRounded) {
  const auto activations = [](const std::string& name) {
    return Checkpoint(test::peer_dir(name)).quantization().activations;
  };
  EXPECT_FALSE(activations("bitsandbytes_nf4"));
  EXPECT_FALSE(activations("compressed_tensors_nvfp4a16"));
  EXPECT_FALSE(activations("compressed_tensors_mxfp4a16"));
  EXPECT_EQ(activations("compressed_tensors_mxfp4")->spec.format, Format::mxfp4);
  for (const std::string name : {"compressed_tensors_nvfp4", "modelopt_nvfp4"}) {
    const Checkpoint checkpoint(test::peer_dir(name));
    EXPECT_EQ(activations(name)->scope, ActivationScope::fixed) << name;
    const InputInfo& input = checkpoint.quantization().inputs.at(kUp);
    const std::string part = kUp + (name == "modelopt_nvfp4" ? ".input_scale" : ".input_global_scale");
    EXPECT_EQ(input.global_scale, load<float>(checkpoint.files().at(part).data.data())) << name;
    EXPECT_EQ(input.channels, 64) << name;
  }
}

TEST(Ecosystem, HfQuantConfigAloneIsEnough) {
  const test::Scratch dir;
  test::EditableModel model(test::peer_dir("modelopt_nvfp4"));
  model.config.erase("quantization_config");
  model.write(dir.path());
  std::filesystem::copy_file(test::peer_dir("modelopt_nvfp4") / "hf_quant_config.json",
                             dir / "hf_quant_config.json");
  EXPECT_EQ(test::refusal_of(dir.path()), "(nothing was thrown)");
  EXPECT_EQ(Checkpoint(dir.path()).quantization().tensors.size(), 7u);
}

// Files of older releases have more and fewer members, which change nothing.
TEST(Ecosystem, OlderCompressedTensorsConfigs) {
  const test::Scratch dir;
  test::EditableModel model(test::peer_dir("compressed_tensors_nvfp4"));
  Json& quantization = model.config["quantization_config"];
  for (const char* key : {"transform_config", "sparsity_config", "global_compression_ratio", "version"})
    quantization.erase(key);
  Json& group = quantization["config_groups"]["group_0"];
  group.erase("format");
  for (const char* part : {"weights", "input_activations"}) {
    group[part].erase("scale_dtype");
    group[part]["actorder"] = nullptr;
    group[part]["block_structure"] = nullptr;
    group[part]["observer_kwargs"] = Json::object();
    group[part]["zp_dtype"] = nullptr;
  }
  model.write(dir.path());
  EXPECT_EQ(test::refusal_of(dir.path()), "(nothing was thrown)");
}

struct Damage {
  std::string checkpoint;
  void (*edit)(test::EditableModel& model);
  std::string expected;  // part of the message
};

void reshape(StoredTensor& tensor, const Shape& shape) {
  tensor.spec.shape = shape;
  tensor.bytes.resize(static_cast<std::size_t>(count(shape) * dtype_bytes(tensor.spec.dtype)));
}
void set_float(StoredTensor& tensor, float value) { std::memcpy(tensor.bytes.data(), &value, sizeof value); }
void add(test::EditableModel& model, const std::string& name, DType dtype, const Shape& shape) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count(shape) * dtype_bytes(dtype)), std::byte{0x3F});
  model.tensors.push_back(stored(name, dtype, shape, bytes));
}
void set_config(test::EditableModel& model, const char* pointer, const Json& value) {
  model.config["quantization_config"][Json::json_pointer(pointer)] = value;
}

void expect_refused(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    const test::Scratch dir;
    test::EditableModel model(test::peer_dir(damage.checkpoint));
    damage.edit(model);
    model.write(dir.path());
    const std::string message = test::refusal_of(dir.path());
    EXPECT_NE(message.find(damage.expected), std::string::npos) << damage.expected << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_NE(message.find(dir.path().string()), std::string::npos) << message;
  }
}

TEST(Ecosystem, RefusesDamagedBitsandbytes) {
  using Model = test::EditableModel;
  expect_refused({
      {"bitsandbytes_nf4", [](Model& m) { m.erase(kUp + ".weight.absmax"); },
       kUp + ".weight.absmax\" is missing"},
      {"bitsandbytes_nf4", [](Model& m) { m.erase(kUp + ".weight"); }, kUp + ".weight\" is missing"},
      {"bitsandbytes_nf4", [](Model& m) { m.erase(kUp + ".weight.quant_map"); }, ".quant_map\" is missing"},
      {"bitsandbytes_nf4", [](Model& m) { m.erase(kUp + ".weight.quant_state.bitsandbytes__nf4"); },
       "belongs to no quantized tensor"},
      {"bitsandbytes_nf4", [](Model& m) { reshape(m.at(kUp + ".weight.absmax"), {127}); },
       "expected F32 [128]"},
      {"bitsandbytes_nf4",
       [](Model& m) {
         reshape(m.at(kUp + ".weight"), {4095, 1});
       },
       "expected 4096 bytes"},
      {"bitsandbytes_nf4", [](Model& m) { set_float(m.at(kUp + ".weight.absmax"), NAN); }, "holds nan at 0"},
      {"bitsandbytes_nf4", [](Model& m) { set_float(m.at(kUp + ".weight.absmax"), -1); }, "holds -1 at 0"},
      {"bitsandbytes_nf4", [](Model& m) { set_float(m.at(kUp + ".weight.quant_map"), -0.5f); },
       "levels other than"},
      {"bitsandbytes_nf4", [](Model& m) { add(m, kUp + ".weight.nested_absmax", DType::f32, {1}); },
       "nested_absmax\" belongs to no"},
      {"bitsandbytes_nf4_double", [](Model& m) { m.erase(kUp + ".weight.nested_absmax"); },
       "nested_absmax\" is missing"},
      {"bitsandbytes_nf4_double", [](Model& m) { set_float(m.at(kUp + ".weight.nested_absmax"), INFINITY); },
       "holds inf at 0"},
      {"bitsandbytes_nf4", [](Model& m) { set_config(m, "/load_in_4bit", false); }, "8-bit checkpoints"},
      {"bitsandbytes_fp4",
       [](Model& m) {
         m.at(kUp + ".weight.quant_state.bitsandbytes__fp4").spec.name =
             kUp + ".weight.quant_state.bitsandbytes__nf4";
       },
       "what its name ends in"},
  });
}

TEST(Ecosystem, RefusesDamagedCompressedTensors) {
  using Model = test::EditableModel;
  const std::string nvfp4 = "compressed_tensors_nvfp4", mxfp4 = "compressed_tensors_mxfp4a16";
  expect_refused({
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight_packed"); }, "belongs to no quantized tensor"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight_scale"); }, kUp + ".weight_scale\" is missing"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight_global_scale"); },
       kUp + ".weight_global_scale\" is missing"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".input_global_scale"); },
       kUp + ".input_global_scale\" is missing"},
      {nvfp4, [](Model& m) { add(m, kUp + ".weight_zero_point", DType::u8, {1}); },
       "weight_zero_point\" belongs to no"},
      {"compressed_tensors_nvfp4a16", [](Model& m) { add(m, kUp + ".input_global_scale", DType::f32, {1}); },
       "input_global_scale\" belongs to no"},
      {nvfp4,
       [](Model& m) {
         reshape(m.at(kUp + ".weight_scale"), {128, 2});
       },
       "expected F8_E4M3 [128, 4]"},
      {nvfp4,
       [](Model& m) {
         reshape(m.at(kUp + ".weight_packed"), {128, 31});
       },
       "62 columns"},
      {nvfp4, [](Model& m) { m.at(kUp + ".weight_scale").bytes[5] = std::byte{0x7F}; }, "holds nan at 5"},
      {nvfp4, [](Model& m) { m.at(kUp + ".weight_scale").bytes[0] = std::byte{0xB8}; }, "holds -1 at 0"},
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".weight_global_scale"), 0); },
       "expected a positive number"},
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".input_global_scale"), NAN); },
       "expected a positive number"},
      // A factor where a divisor belongs.
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".weight_global_scale"), 0.0002f); },
       "no plausible divisor"},
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".input_global_scale"), 0.002f); }, "no plausible divisor"},
      {mxfp4, [](Model& m) { m.at(kUp + ".weight_scale").bytes[7] = std::byte{0xFF}; }, "holds nan at 7"},
      {mxfp4,
       [](Model& m) {
         reshape(m.at(kUp + ".weight_scale"), {128, 4});
       },
       "expected U8 [128, 2]"},
      {mxfp4, [](Model& m) { set_config(m, "/config_groups/group_0/weights/group_size", 16); }, "only nvfp4"},
      {mxfp4, [](Model& m) { set_config(m, "/config_groups/group_0/weights/num_bits", 8); }, "only nvfp4"},
      {mxfp4, [](Model& m) { set_config(m, "/quantization_status", "frozen"); }, "frozen"},
      {mxfp4, [](Model& m) { set_config(m, "/quant_method", "awq"); }, "\"awq\""},
      {mxfp4,
       [](Model& m) {
         m.config["quantization_config"]["config_groups"] =
             Model(test::peer_dir("compressed_tensors_nvfp4a16"))
                 .config["quantization_config"]["config_groups"];
       },
       "which no group of"},
      {mxfp4,
       [](Model& m) {
         add(m, kUp + ".weight", DType::bf16, {128, 64});
       },
       "both packed and plain"},
  });
}

TEST(Ecosystem, RefusesDamagedModelopt) {
  using Model = test::EditableModel;
  const std::string nvfp4 = "modelopt_nvfp4";
  expect_refused({
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight"); }, kUp + ".weight\" is missing"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight_scale"); }, kUp + ".weight_scale\" is missing"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".weight_scale_2"); }, kUp + ".weight_scale_2\" is missing"},
      {nvfp4, [](Model& m) { m.erase(kUp + ".input_scale"); }, kUp + ".input_scale\" is missing"},
      {nvfp4, [](Model& m) { add(m, "lm_head.input_scale", DType::f32, {}); },
       "lm_head.input_scale\" belongs to no"},
      {nvfp4, [](Model& m) { add(m, kUp + ".pre_quant_scale", DType::bf16, {64}); }, "AWQ"},
      {nvfp4, [](Model& m) { m.at(kUp + ".weight_scale").bytes[3] = std::byte{0xFF}; }, "nan at 3"},
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".weight_scale_2"), 5000); }, "no plausible factor"},
      {nvfp4, [](Model& m) { set_float(m.at(kUp + ".input_scale"), 500); }, "no plausible factor"},
      {nvfp4, [](Model& m) { set_config(m, "/quant_algo", "FP8"); }, "\"FP8\""},
      {nvfp4, [](Model& m) { set_config(m, "/quant_algo", "W4A16_NVFP4"); }, "input_scale\" belongs to no"},
  });
}

}  // namespace
}  // namespace halfbyte
