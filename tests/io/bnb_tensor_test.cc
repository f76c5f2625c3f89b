// bitsandbytes weights in safetensors files: what the package itself wrote, and files with a part that does not fit.
#include "io/bnb_tensor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::string kGolden = HALFBYTE_GOLDEN;

TEST(BnbTensor, ReadsWhatThePackageWrote) {
  for (const std::string name : {"nf4", "nf4_double", "fp4_odd"}) {
    const SafetensorsFile file(kGolden + "/bnb_linear4bit_" + name + ".safetensors");
    const BnbTensor tensor = read_bnb_tensor(file, "");
    EXPECT_EQ(tensor.quant_type, name.substr(0, 3));
    EXPECT_EQ(tensor.nested, name == "nf4_double");
    EXPECT_EQ(tensor.codes.elements(), ceil_div(count(tensor.shape), 2));
    EXPECT_EQ(tensor.absmax.elements(), ceil_div(count(tensor.shape), tensor.block));
    EXPECT_EQ(read_bnb_tensor(file, tensor.name).name, tensor.name);
    EXPECT_NE(test::message_of([&] { read_bnb_tensor(file, "absent.weight"); }).find("absent.weight"),
              std::string::npos);
  }
}

// A file with one weight "w" of that JSON state, `codes` bytes of codes and `blocks` absmax values.
std::string refusal(const std::string& state, std::int64_t codes, std::int64_t blocks) {
  const test::Scratch scratch;
  const std::string key = "w.quant_state.bitsandbytes__nf4";
  SafetensorsWriter writer(scratch / "w.safetensors",
                           {{"w", DType::u8, {codes, 1}},
                            {"w.absmax", DType::f32, {blocks}},
                            {"w.quant_map", DType::f32, {16}},
                            {key, DType::u8, {static_cast<std::int64_t>(state.size())}}},
                           {});
  for (const TensorSpec& spec : writer.tensors()) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count(spec.shape) * dtype_bytes(spec.dtype)));
    if (spec.name == key) std::memcpy(bytes.data(), state.data(), state.size());
    writer.append(spec.name, bytes);
  }
  writer.finish();
  const SafetensorsFile file(scratch / "w.safetensors");
  return test::message_of([&] { read_bnb_tensor(file, ""); });
}

TEST(BnbTensor, RefusesPartsThatDoNotFit) {
  const std::string good = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [4, 64]})";
  EXPECT_EQ(refusal(good, 128, 4), "(nothing was thrown)");
  EXPECT_NE(refusal(good, 127, 4).find("expected 128 values"), std::string::npos);
  EXPECT_NE(refusal(good, 128, 3).find("expected 4 values"), std::string::npos);
  EXPECT_NE(refusal(R"({"quant_type": "nf5", "blocksize": 64, "shape": [4, 64]})", 128, 4).find("nf5"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"quant_type": "nf4", "blocksize": 48, "shape": [4, 64]})", 128, 4).find("48"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"quant_type": "nf4", "blocksize": 64, "shape": [4, -64]})", 128, 4).find("no tensor"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"quant_type": "nf4", "blocksize": 64, "shape": ["a"]})", 128, 4).find("no integer"),
            std::string::npos);
  EXPECT_NE(refusal("{", 128, 4).find("w.quant_state"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
