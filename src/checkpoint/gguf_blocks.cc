#include "checkpoint/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/fail.h"
#include "formats/fp16.h"
#include "formats/packing.h"

namespace halfbyte {

namespace {

std::uint8_t code(std::span<const std::uint8_t> codes, std::size_t index) {
  return nibble(NibbleOrder::low_first, codes.data(), static_cast<std::int64_t>(index));
}

// Byte j of a run of `size` values from `first` on: value j low, value j + size / 2 high.
std::byte halves(std::span<const std::uint8_t> codes, std::size_t first, std::size_t size, std::size_t j) {
  return static_cast<std::byte>(code(codes, first + j) | code(codes, first + size / 2 + j) << 4);
}

void put_half(std::byte* out, float value) {
  const std::uint16_t half = fp16_encode(value);
  std::memcpy(out, &half, sizeof half);
}

}  // namespace

void pack_nvfp4_row(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                    std::span<std::byte> out) {
  HB_DCHECK(scales.size() % 4 == 0 && codes.size() == 8 * scales.size() && out.size() == 9 * scales.size());
  for (std::size_t block = 0; block < scales.size() / 4; ++block)
    for (std::size_t sub = 0; sub < 4; ++sub) {
      std::byte* to = out.data() + 36 * block;
      to[sub] = static_cast<std::byte>(scales[4 * block + sub]);
      for (std::size_t j = 0; j < 8; ++j) to[4 + 8 * sub + j] = halves(codes, 64 * block + 16 * sub, 16, j);
    }
}

void pack_mxfp4_row(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                    std::span<std::byte> out) {
  HB_DCHECK(codes.size() == 16 * scales.size() && out.size() == 17 * scales.size());
  for (std::size_t block = 0; block < scales.size(); ++block) {
    std::byte* to = out.data() + 17 * block;
    to[0] = static_cast<std::byte>(scales[block]);
    for (std::size_t j = 0; j < 16; ++j) to[1 + j] = halves(codes, 32 * block, 32, j);
  }
}

void encode_q4_0_row(std::span<const float> values, std::span<std::byte> out) {
  for (std::size_t block = 0; block < values.size() / 32; ++block) {
    const float* x = values.data() + 32 * block;
    float largest = 0;  // the first of largest magnitude, with its sign
    for (int i = 0; i < 32; ++i)
      if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
    const float d = largest / -8.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    const auto quantize = [&](float value) { return std::min(15, static_cast<int>(value * inverse + 8.5f)); };
    std::byte* to = out.data() + 18 * block;
    put_half(to, d);
    for (int j = 0; j < 16; ++j)
      to[2 + j] = static_cast<std::byte>(quantize(x[j]) | quantize(x[j + 16]) << 4);
  }
}

void encode_q8_0_row(std::span<const float> values, std::span<std::byte> out) {
  for (std::size_t block = 0; block < values.size() / 32; ++block) {
    const float* x = values.data() + 32 * block;
    float absmax = 0;
    for (int i = 0; i < 32; ++i) absmax = std::max(absmax, std::abs(x[i]));
    const float d = absmax / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    std::byte* to = out.data() + 34 * block;
    put_half(to, d);
    for (int j = 0; j < 32; ++j)
      to[2 + j] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(x[j] * inverse)));
  }
}

}  // namespace halfbyte
