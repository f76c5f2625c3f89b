// The host side of the CUDA ops, tested without a device: launch shapes, checks of arguments, and the decode and encode
// paths that device code shares with the host.
#include "ops/dequantize/cuda_host.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "formats/fp16.h"
#include "halfbyte/error.h"
#include "ops/dequantize/byte_table.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/cuda.h"
#include "ops/dequantize/fast_divide.h"
#include "ops/quantize/cuda.h"
#include "ops/quantize/dynamic8_table.h"
#include "ops/quantize/fast_codes.h"

namespace halfbyte {
namespace {

// 32 random bits; mt19937 itself returns a wider type.
struct Random {
  explicit Random(std::uint32_t seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
  std::mt19937 engine;
};

TEST(CudaConfig, ShapesCoverEveryChunk) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t elements :
         {std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{8192}, std::int64_t{8193},
          (std::int64_t{1} << 31) - 1, (std::int64_t{1} << 31) + 64, std::int64_t{1} << 36}) {
      const cuda::LaunchShape shape = cuda::dequantize_shape(elements, dtype);
      const std::int64_t tile = std::int64_t{shape.threads} * shape.unroll * cuda::chunk_elements(dtype);
      EXPECT_GE(shape.blocks, 1);
      EXPECT_GE(shape.blocks * tile, elements - elements % cuda::chunk_elements(dtype));
      EXPECT_LT((shape.blocks - 1) * tile, elements);
      EXPECT_LT(shape.blocks, std::int64_t{1} << 31);
    }
}

TEST(CudaConfig, RowsWithShortBlocksLeaveTheFastPath) {
  EXPECT_TRUE(cuda::takes_fast_path({.format = Format::nf4}, 3, 7));
  EXPECT_TRUE(cuda::takes_fast_path({.format = Format::nvfp4}, 3, 48));
  EXPECT_FALSE(cuda::takes_fast_path({.format = Format::nvfp4}, 3, 40));
  EXPECT_FALSE(cuda::takes_fast_path({.format = Format::mxfp8_e4m3}, 3, 48));
  EXPECT_FALSE(cuda::takes_fast_path({.format = Format::int4, .block_size = 128}, 3, 192));
  EXPECT_TRUE(cuda::takes_fast_path({.format = Format::int8}, 3, 40));
  EXPECT_FALSE(cuda::takes_fast_path({.format = Format::int8}, 3, 41));
  EXPECT_FALSE(cuda::takes_fast_path({.format = Format::int8}, std::int64_t{1} << 20, std::int64_t{1} << 14));
}

TEST(CudaConfig, CountsBytesAsTheFormatsDo) {
  // 4096^2 doubly quantized NF4: half a byte, 1/64 byte and 4/16384 byte a value in, two bytes out.
  EXPECT_EQ(cuda::dequantize_bytes({.format = Format::nf4, .double_quant = true}, 4096, 4096, DType::bf16),
            4096 * 4096 / 2 + 262144 + 4096 + 2 * 4096 * 4096);
  EXPECT_EQ(cuda::dequantize_bytes({.format = Format::nvfp4}, 2, 17, DType::f32), 2 * 9 + 2 * 2 + 4 * 34);
  EXPECT_EQ(cuda::dequantize_bytes({.format = Format::int8}, 3, 5, DType::bf16), 15 + 12 + 30);
}

TEST(CudaConfig, DividesByMultiplying) {
  Random random(7);
  for (int i = 0; i < 200000; ++i) {
    const std::uint32_t divisor = (random() >> (random() % 31 + 1)) | 1u, n = random() >> 1;
    const FastDivide fast = FastDivide::by(divisor);
    for (const std::uint32_t value :
         {n, n / divisor * divisor, n / divisor * divisor + divisor - 1, 0x7FFFFFFFu})
      if (value < 1u << 31) {
        ASSERT_EQ(fast.quotient(value), value / divisor) << value << " / " << divisor;
      }
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CudaArguments, AreCheckedBeforeADeviceIsAskedFor) {
  alignas(16) std::uint8_t bytes[64] = {};
  cuda::Dequantize args;
  args.rows = 1;
  args.columns = 32;
  args.spec = {.format = Format::nf4};
  args.codes = bytes;
  args.out = bytes;
  args.scales = reinterpret_cast<const float*>(bytes);
  auto says = [&](auto change) {
    cuda::Dequantize changed = args;
    change(changed);
    return refusal([&] { cuda::dequantize(changed, nullptr); });
  };
  EXPECT_NE(says([&](auto& a) { a.codes = bytes + 1; }).find("codes lies 1 bytes past a multiple of 16"),
            std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.out = bytes + 8; }).find("out lies 8 bytes past"), std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.scales = nullptr; }).find("scales is null"), std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.spec.format = Format::nvfp4; }).find("scales8 is null"), std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.spec.format = Format::bf16; }).find("bf16"), std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.spec.block_size = 33; }), "");
  EXPECT_NE(says([&](auto& a) { a.dtype = DType::u8; }).find("U8"), std::string::npos);
  EXPECT_NE(says([&](auto& a) { a.rows = std::int64_t{1} << 62, a.columns = 8; }).find("no tensor"),
            std::string::npos);
  EXPECT_EQ(says([&](auto& a) { a.rows = 0; }), "");

  cuda::Quantize encode{.spec = {.format = Format::nvfp4},
                        .rows = 1,
                        .columns = 32,
                        .values = bytes,
                        .codes = bytes,
                        .scales8 = bytes};
  EXPECT_NE(refusal([&] { cuda::quantize(encode, nullptr); }).find("global_scale is null"),
            std::string::npos);
  encode.global_scale = reinterpret_cast<float*>(bytes);
  EXPECT_NE(refusal([&] { cuda::quantize(encode, nullptr); }).find("workspace is null"), std::string::npos);
  encode.spec = {.format = Format::nf4, .double_quant = true};
  encode.scales = reinterpret_cast<float*>(bytes);
  EXPECT_NE(refusal([&] { cuda::quantize(encode, nullptr); }).find("nested_absmax is null"),
            std::string::npos);
  encode.nested_absmax = encode.offset = encode.scales;
  encode.workspace = reinterpret_cast<std::uint32_t*>(bytes + 4);
  EXPECT_NE(
      refusal([&] { cuda::quantize(encode, nullptr); }).find("workspace lies 4 bytes past a multiple of 8"),
      std::string::npos);
  encode.values = bytes + 2;
  EXPECT_NE(refusal([&] { cuda::quantize(encode, nullptr); }).find("values lies 2 bytes past"),
            std::string::npos);
  if (!cuda::available()) {
    EXPECT_NE(says([](auto&) {}).find(cuda::built() ? "no CUDA device" : "built without CUDA"),
              std::string::npos);
    EXPECT_NE(refusal([] { cuda::dequantize_through_device({}, 1, false); }), "");
  }
}

TEST(ByteTable, LooksUpEveryFourCodes) {
  const ByteTable nf4 = ByteTable::of(nf4_decode), e2m1 = ByteTable::of(e2m1_decode);
  for (std::uint32_t codes = 0; codes < 65536; ++codes) {
    float a[4], b[4];
    nf4.look_up(codes, a);
    e2m1.look_up(codes, b);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(float_bits(a[i]), float_bits(nf4_decode(static_cast<std::uint8_t>(codes >> (4 * i)))))
          << codes;
      ASSERT_EQ(float_bits(b[i]), float_bits(e2m1_decode(static_cast<std::uint8_t>(codes >> (4 * i)))))
          << codes;
    }
  }
}

TEST(FastCodes, E2m1OfEveryFp16) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    if ((code & 0x7FFFu) >= 0x7C00u) continue;
    const float x = fp16_decode(static_cast<std::uint16_t>(code));
    ASSERT_EQ(e2m1_codes_of_plain_halves(code | code << 16), e2m1_encode(x) * 0x00010001u) << x;
    ASSERT_EQ(e2m1_codes_of_halves(code | code << 16), e2m1_encode(x * 16384.0f) * 0x00010001u) << x;
  }
}

TEST(FastCodes, E2m1OfFloats) {
  for (std::uint32_t bits = 0; bits < kInfBits; bits += 997)
    for (const float x : {bits_float(bits), -bits_float(bits)})
      ASSERT_EQ(e2m1_code_of_finite(x, float_bits(x)), e2m1_encode(x)) << x;
  for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f})
    for (int away = -2; away <= 2; ++away) {
      const float x = bits_float(float_bits(tie) + static_cast<std::uint32_t>(away));
      ASSERT_EQ(e2m1_code_of_finite(x, 0), e2m1_encode(x)) << x;
    }
}

template <class Buckets>
void check_buckets(std::uint8_t (*encode)(float), float (*threshold)(int)) {
  const BucketTable table = BucketTable::of<Buckets>();
  Random random(3);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (const float factor : {1.0f, 0.7352f, 13.37f, 3e-5f, 7.77e8f}) {
    auto check = [&](const float(&x)[8]) {
      const std::uint32_t word = eight_codes<Buckets>(table, x, factor, factor * 15.0f);
      for (int i = 0; i < 8; ++i)
        ASSERT_EQ(word >> (28 - 4 * i) & 15u, encode(x[i] * factor)) << x[i] << " times " << factor;
    };
    for (int n = 0; n < 50000; ++n) {
      float x[8];
      for (float& value : x)
        value = uniform(random.engine) * (n % 3 ? 1.0f : std::ldexp(1.0f, -static_cast<int>(random() % 30))) /
                factor;
      check(x);
    }
    for (int i = 0; i < 15; ++i)
      for (int away = -40; away <= 40; away += 8) {
        float x[8];
        for (int k = 0; k < 8; ++k)
          x[k] = bits_float(float_bits(threshold(i) / factor) + static_cast<std::uint32_t>(away + k));
        if (threshold(i) != 0.0f) check(x);
      }
    check({0.0f, -0.0f, 1e-45f, -1e-45f, 1.0f / factor, -1.0f / factor, 1e-30f, -1e-30f});
  }
}

TEST(FastCodes, Nf4ByBuckets) { check_buckets<Nf4Buckets>(nf4_encode, nf4_threshold); }
TEST(FastCodes, Fp4ByBuckets) { check_buckets<Fp4Buckets>(fp4_encode, fp4_threshold); }

TEST(Dynamic8Table, EncodesEveryGridPoint) {
  static constexpr Dynamic8Table table = Dynamic8Table::of();
  for (int place = 0; place <= 65535; ++place)
    for (const float away : {-0.49f, 0.0f, 0.49f}) {
      const float x = std::clamp(2.0f * (static_cast<float>(place) + away) / 65535.0f - 1.0f, -1.0f, 1.0f);
      ASSERT_EQ(table.encode(x), dynamic8_encode(x)) << place;
    }
  Random random(7);
  for (int n = 0; n < 200000; ++n) {
    const float x = bits_float(static_cast<std::uint32_t>(random()) & 0xBFFFFFFFu),
                factor = n % 5 ? 1.3f : 0.0f;
    ASSERT_EQ(table.encode_scaled(x, factor), dynamic8_encode_scaled(x, factor)) << x;
  }
}

TEST(ExactSums, AreFoundAndDoNotDependOnOrder) {
  EXPECT_TRUE(sum_was_exact(0x1p53, 1.0f, 23));
  EXPECT_FALSE(sum_was_exact(0x1p53 + 2.0, 1.9f, 23));
  EXPECT_TRUE(sum_was_exact(0x1p30, 1.0f, 0));
  EXPECT_FALSE(sum_was_exact(0x1.000002p30, 1.0f, 0));
  EXPECT_TRUE(sum_was_exact(0x1p-96, bits_float(1), 0));  // 2^53 times 2^-149
  EXPECT_FALSE(sum_was_exact(0x1.1p-96, bits_float(1), 0));
  EXPECT_TRUE(sum_was_exact(0.0, bits_float(kInfBits), 0));
  EXPECT_FALSE(sum_was_exact(std::numeric_limits<double>::quiet_NaN(), 1.0f, 0));
  Random random(8);
  int exact = 0;
  for (int n = 0; n < 2000; ++n) {
    std::vector<float> x(64);
    for (float& value : x)
      value = std::abs(
          bits_float((random() & 0x7FFFFFu) |
                     static_cast<std::uint32_t>(120 + random() % static_cast<unsigned>(1 + n / 40)) << 23));
    double forward = 0, backward = 0;
    for (const float value : x) forward += static_cast<double>(value);
    const float smallest = *std::min_element(x.begin(), x.end());
    std::reverse(x.begin(), x.end());
    for (const float value : x) backward += static_cast<double>(value);
    if (!sum_was_exact(forward, smallest, 0)) continue;
    ++exact;
    ASSERT_EQ(forward, backward);
  }
  EXPECT_GT(exact, 500);
  EXPECT_LT(exact, 1900);
}

TEST(FastCodes, QuotientBySixIsExactForEveryMantissa) {
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float x = bits_float(mantissa | 127u << 23);
    ASSERT_EQ(quick_quotient(x, 6.0f, 1.0f / 6.0f), x / 6.0f) << x;
  }
}

TEST(FastCodes, QuotientsFallOnTheSameCode) {
  Random random(11);
  for (int n = 0; n < 3000000; ++n) {
    float divisor = bits_float((random() & 0x7FFFFFu) | 127u << 23);
    if (n & 1) divisor = bits_float(float_bits(divisor) & 0xFFF00000u);
    float x = bits_float((random() & 0x7FFFFFu) | (124u + random() % 9) << 23);
    if (n % 3 == 0) {  // a tie of an integer or E2M1 code, or its neighbour
      x = (static_cast<float>(random() % 255) * 0.5f + 0.25f * static_cast<float>(n % 2)) * divisor;
      if (n & 4) x = std::nextafter(x, n & 8 ? 0.0f : 1e9f);
    }
    const float quick = quick_quotient(x, divisor, 1.0f / divisor), exact = x / divisor;
    ASSERT_EQ(e2m1_encode(quick), e2m1_encode(exact)) << x << " / " << divisor;
    ASSERT_EQ(quick_integer(x, divisor, 1.0f / divisor) & 0xFFu,
              static_cast<std::uint32_t>(round_half_even(exact)) & 0xFFu)
        << x << " / " << divisor;
  }
}

TEST(FastCodes, ScalesOfMxRulesByAddition) {
  Random random(5);
  for (const MxElement& element : {kMxE2m1, kMxE4m3, kMxE5m2})
    for (const MxScaleRule rule : {MxScaleRule::floor, MxScaleRule::ceil, MxScaleRule::even})
      for (int n = 0; n < 20000; ++n) {
        const float absmax = bits_float(n < 4 ? static_cast<std::uint32_t>(n) : random() % kInfBits);
        ASSERT_EQ(cuda::mx_code_with_addend(absmax, cuda::mx_addend(rule, element), element.emax),
                  mx_encode_scale(rule, element, absmax, DType::f32))
            << absmax;
      }
}

}  // namespace
}  // namespace halfbyte
