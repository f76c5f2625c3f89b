// GGUF block types against blocks and values of gguf-py and of the C library, bit for bit, and a few by hand.
#include "formats/ggml_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "io/safetensors.h"

namespace halfbyte {
namespace {

const GgmlDecoder& decoder(std::string_view name) {
  for (const GgmlDecoder& row : ggml_decoders())
    if (row.name == name) return row;
  throw std::runtime_error("no decoder " + std::string(name));
}

std::vector<float> decode(const GgmlDecoder& type, std::span<const std::byte> bytes) {
  EXPECT_EQ(bytes.size() % static_cast<std::size_t>(type.block_bytes), 0u);
  const auto blocks = static_cast<std::int64_t>(bytes.size()) / type.block_bytes;
  std::vector<float> values(static_cast<std::size_t>(blocks * type.block_values));
  type.decode(bytes.data(), blocks, values.data());
  return values;
}

// Compares every pair NAME.bytes, NAME.deq (and NAME.raw, NAME.raw_deq) of a golden file; NAME is TYPE or
// TYPE.random.
int compare_file(const std::string& name) {
  const SafetensorsFile file(std::string(HALFBYTE_GOLDEN) + "/" + name);
  int pairs = 0;
  for (const NamedTensor& tensor : file.tensors()) {
    std::string values_name = tensor.name;
    if (tensor.name.ends_with(".bytes"))
      values_name.replace(values_name.size() - 5, 5, "deq");
    else if (tensor.name.ends_with(".raw"))
      values_name += "_deq";
    else
      continue;
    ++pairs;
    const TensorView& expected = file.at(values_name);
    const auto got = decode(decoder(tensor.name.substr(0, tensor.name.find('.'))), tensor.view.data);
    EXPECT_EQ(static_cast<std::int64_t>(got.size()), expected.elements()) << tensor.name;
    if (static_cast<std::int64_t>(got.size()) != expected.elements()) continue;
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float want = load<float>(expected.data.data(), static_cast<std::int64_t>(i));
      if (std::memcmp(&want, &got[i], sizeof(float)) == 0 || (std::isnan(want) && std::isnan(got[i])))
        continue;
      if (wrong++ < 3) ADD_FAILURE() << tensor.name << "[" << i << "]: " << got[i] << ", expected " << want;
    }
    EXPECT_EQ(wrong, 0) << tensor.name;
  }
  return pairs;
}

TEST(GgmlBlocks, GoldenOfGgufPy) { EXPECT_EQ(compare_file("gguf.safetensors"), 7); }
TEST(GgmlBlocks, GoldenOfTheCLibrary) { EXPECT_EQ(compare_file("ggml_c.safetensors"), 7); }
TEST(GgmlBlocks, GoldenOfGgufPyMoreTypes) { EXPECT_EQ(compare_file("gguf_blocks.safetensors"), 14); }

TEST(GgmlBlocks, EveryRowIsFoundByItsNumber) {
  EXPECT_EQ(ggml_decoders().size(), 13u);
  for (const GgmlDecoder& row : ggml_decoders()) EXPECT_EQ(find_ggml_decoder(row.id), &row);
  EXPECT_EQ(find_ggml_decoder(16), nullptr);
}

// All 32 codes of Q5_0 in order with d = 0.5: element j has the low bits of j and, in the second half, the
// fifth bit.
TEST(GgmlBlocks, Q5_0ByHand) {
  std::vector<std::byte> block(22);
  block[1] = std::byte{0x38};             // fp16 0.5
  block[4] = block[5] = std::byte{0xFF};  // fifth bits of the elements 16..31
  for (int j = 0; j < 16; ++j) block[6 + j] = std::byte(j | j << 4);
  const auto values = decode(decoder("Q5_0"), block);
  for (int j = 0; j < 32; ++j) EXPECT_EQ(values[j], 0.5f * static_cast<float>(j - 16));
}

TEST(GgmlBlocks, Nvfp4ScalesByHand) {
  std::vector<std::byte> block(36, std::byte{0x22});  // code 2 is the level 1 everywhere
  block[0] = std::byte{0x38};                         // 1
  block[1] = std::byte{0x7F};                         // stands for zero
  block[2] = std::byte{0xB8};                         // 1, sign ignored
  block[3] = std::byte{0x01};                         // 2^-9
  const auto values = decode(decoder("NVFP4"), block);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[16], 0.0f);
  EXPECT_EQ(values[47], 1.0f);
  EXPECT_EQ(values[63], 1.0f / 512);
}

}  // namespace
}  // namespace halfbyte
