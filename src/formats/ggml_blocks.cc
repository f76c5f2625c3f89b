// The decoders of GGUF block types.
#include "formats/ggml_blocks.h"

#include <array>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/fp16.h"
#include "formats/hd.h"

namespace halfbyte {

namespace {

constexpr std::array<float, 16> kTwiceE2m1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <typename T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}
float half(const std::byte* bytes) { return fp16_decode(read<std::uint16_t>(bytes)); }
int u8(std::byte byte) { return static_cast<int>(byte); }
int low(std::byte byte) { return u8(byte) & 15; }
int high(std::byte byte) { return u8(byte) >> 4; }
int with_fifth(int q, std::uint32_t bits, int j) { return q | static_cast<int>(bits >> j & 1) << 4; }

// Calls value(j, q) for the 32 codes of a block whose byte j holds the elements j and j + 16.
template <typename Value>
void nibbles32(const std::byte* qs, Value value) {
  for (int j = 0; j < 16; ++j) {
    value(j, low(qs[j]));
    value(j + 16, high(qs[j]));
  }
}

struct F32 {
  static constexpr std::int64_t kValues = 1, kBytes = 4;
  static void decode(const std::byte* b, float* y) { *y = read<float>(b); }
};
struct F16 {
  static constexpr std::int64_t kValues = 1, kBytes = 2;
  static void decode(const std::byte* b, float* y) { *y = half(b); }
};
struct Bf16 {
  static constexpr std::int64_t kValues = 1, kBytes = 2;
  static void decode(const std::byte* b, float* y) { *y = bf16_decode(read<std::uint16_t>(b)); }
};
struct Q4_0 {
  static constexpr std::int64_t kValues = 32, kBytes = 2 + 16;
  static void decode(const std::byte* b, float* y) {
    const float d = half(b);
    nibbles32(b + 2, [&](int j, int q) { y[j] = d * static_cast<float>(q - 8); });
  }
};
struct Q4_1 {
  static constexpr std::int64_t kValues = 32, kBytes = 2 + 2 + 16;
  static void decode(const std::byte* b, float* y) {
    const float d = half(b), m = half(b + 2);
    nibbles32(b + 4, [&](int j, int q) { y[j] = add_rn(mul_rn(d, static_cast<float>(q)), m); });
  }
};
struct Q5_0 {
  static constexpr std::int64_t kValues = 32, kBytes = 2 + 4 + 16;
  static void decode(const std::byte* b, float* y) {
    const float d = half(b);
    const auto fifth = read<std::uint32_t>(b + 2);
    nibbles32(b + 6, [&](int j, int q) { y[j] = d * static_cast<float>(with_fifth(q, fifth, j) - 16); });
  }
};
struct Q5_1 {
  static constexpr std::int64_t kValues = 32, kBytes = 2 + 2 + 4 + 16;
  static void decode(const std::byte* b, float* y) {
    const float d = half(b), m = half(b + 2);
    const auto fifth = read<std::uint32_t>(b + 4);
    nibbles32(b + 8, [&](int j, int q) {
      y[j] = add_rn(mul_rn(d, static_cast<float>(with_fifth(q, fifth, j))), m);
    });
  }
};
struct Q8_0 {
  static constexpr std::int64_t kValues = 32, kBytes = 2 + 32;
  static void decode(const std::byte* b, float* y) {
    const float d = half(b);
    for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(static_cast<std::int8_t>(b[2 + j]));
  }
};

// Scale and minimum, 6 bits each, of sub-block s (0..7): the first four lie whole in bytes s and s + 4; of
// the others the low four bits share byte s + 4 and the top two bits are those that the first four left free.
struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(const std::byte* p, int s) {
  int scale, min;
  if (s < 4) {
    scale = u8(p[s]) & 63;
    min = u8(p[s + 4]) & 63;
  } else {
    scale = low(p[s + 4]) | u8(p[s - 4]) >> 6 << 4;
    min = high(p[s + 4]) | u8(p[s]) >> 6 << 4;
  }
  return {static_cast<float>(scale), static_cast<float>(min)};
}

// Q4_K and Q5_K: sub-blocks 2c and 2c + 1 are the low and high nibbles of qs[32c .. 32c + 31]; bit s of
// fifth[l] belongs to element l of sub-block s.
void decode_k(const std::byte* b, const std::byte* fifth, const std::byte* qs, float* y) {
  const float d = half(b), dmin = half(b + 2);
  for (int s = 0; s < 8; ++s) {
    const auto [scale, min] = scale_min(b + 4, s);
    const float step = mul_rn(d, scale), offset = mul_rn(dmin, min);
    for (int l = 0; l < 32; ++l) {
      const std::byte byte = qs[32 * (s / 2) + l];
      int q = s % 2 ? high(byte) : low(byte);
      if (fifth) q |= (u8(fifth[l]) >> s & 1) << 4;
      y[32 * s + l] = add_rn(mul_rn(step, static_cast<float>(q)), -offset);
    }
  }
}
struct Q4_K {
  static constexpr std::int64_t kValues = 256, kBytes = 2 + 2 + 12 + 128;
  static void decode(const std::byte* b, float* y) { decode_k(b, nullptr, b + 16, y); }
};
struct Q5_K {
  static constexpr std::int64_t kValues = 256, kBytes = 2 + 2 + 12 + 32 + 128;
  static void decode(const std::byte* b, float* y) { decode_k(b, b + 16, b + 48, y); }
};

// Halves n of 128 values in quarters g of 32: low bits from ql[64n + 32(g & 1) + l], low nibbles for g < 2,
// else high; the upper two are bits 2g of qh[32n + l]; a scale for 16 values.
struct Q6_K {
  static constexpr std::int64_t kValues = 256, kBytes = 128 + 64 + 16 + 2;
  static void decode(const std::byte* b, float* y) {
    const std::byte *ql = b, *qh = b + 128, *scales = b + 192;
    const float d = half(b + 208);
    for (int i = 0; i < 256; ++i) {
      const int n = i / 128, g = i / 32 % 4, l = i % 32;
      const std::byte byte = ql[64 * n + 32 * (g & 1) + l];
      const int q = (g < 2 ? low(byte) : high(byte)) | (u8(qh[32 * n + l]) >> 2 * g & 3) << 4;
      const auto scale = static_cast<std::int8_t>(scales[i / 16]);
      y[i] = mul_rn(mul_rn(d, static_cast<float>(scale)), static_cast<float>(q - 32));
    }
  }
};
struct Mxfp4 {
  static constexpr std::int64_t kValues = 32, kBytes = 1 + 16;
  static void decode(const std::byte* b, float* y) {
    const float scale = pow2f(u8(b[0]) - 128);
    nibbles32(b + 1, [&](int j, int q) { y[j] = scale * kTwiceE2m1[q]; });
  }
};

// ggml's scale of NVFP4: E4M3 whose sign bit is ignored and whose NaN code 0x7F stands for zero. 0xFF is not taken for
// that NaN but continues the numbers: 480.
float ue4m3(std::byte byte) {
  const auto code = static_cast<std::uint8_t>(byte);
  if (code == 0x7F) return 0.0f;
  return code == 0xFF ? 480.0f : e4m3_decode(code & 0x7F);
}
struct Nvfp4 {
  static constexpr std::int64_t kValues = 64, kBytes = 4 + 32;
  static void decode(const std::byte* b, float* y) {
    for (int s = 0; s < 4; ++s) {
      const float scale = ue4m3(b[s]) * 0.5f;
      for (int j = 0; j < 8; ++j) {
        const std::byte byte = b[4 + 8 * s + j];
        y[16 * s + j] = scale * kTwiceE2m1[low(byte)];
        y[16 * s + 8 + j] = scale * kTwiceE2m1[high(byte)];
      }
    }
  }
};

template <typename Block>
constexpr GgmlDecoder row(std::uint32_t id, std::string_view name) {
  return {id, name, Block::kValues, Block::kBytes,
          [](const std::byte* bytes, std::int64_t blocks, float* values) {
            for (std::int64_t i = 0; i < blocks; ++i)
              Block::decode(bytes + i * Block::kBytes, values + i * Block::kValues);
          }};
}

constexpr GgmlDecoder kDecoders[] = {
    row<F32>(0, "F32"),      row<F16>(1, "F16"),    row<Q4_0>(2, "Q4_0"),  row<Q4_1>(3, "Q4_1"),
    row<Q5_0>(6, "Q5_0"),    row<Q5_1>(7, "Q5_1"),  row<Q8_0>(8, "Q8_0"),  row<Q4_K>(12, "Q4_K"),
    row<Q5_K>(13, "Q5_K"),   row<Q6_K>(14, "Q6_K"), row<Bf16>(30, "BF16"), row<Mxfp4>(39, "MXFP4"),
    row<Nvfp4>(40, "NVFP4"),
};

}  // namespace

std::span<const GgmlDecoder> ggml_decoders() { return kDecoders; }

const GgmlDecoder* find_ggml_decoder(std::uint32_t id) {
  for (const GgmlDecoder& decoder : kDecoders)
    if (decoder.id == id) return &decoder;
  return nullptr;
}

}  // namespace halfbyte
