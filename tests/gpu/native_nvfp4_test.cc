// Native NVFP4 products: on a device with tensor cores for FP4 against the float64 product of the decoded values; on another
// the library is opened and the product refused.
//   gpu_native_nvfp4_test [--seed N]
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/fail.h"
#include "device/cuda/memory.h"
#include "formats/bf16.h"
#include "formats/nvfp4.h"
#include "formats/packing.h"
#include "formats/swizzle.h"
#include "ops/matmul_nvfp4_native/cuda.h"
#include "tests/gpu/program.h"

namespace halfbyte::test {

namespace {

using cuda::Buffer;
using Bytes = std::vector<std::uint8_t>;

// Codes [rows, columns / 2] and scales in rows and in tiles.
struct Operand {
  std::int64_t rows, columns;
  Bytes codes, scales, tiles;

  Operand(std::int64_t r, std::int64_t c, std::mt19937_64& random)
      : rows(r),
        columns(c),
        codes(static_cast<std::size_t>(r * c / 2)),
        scales(static_cast<std::size_t>(r * c / 16)),
        tiles(static_cast<std::size_t>(swizzled_bytes(r, c / 16))) {
    for (auto& code : codes) code = static_cast<std::uint8_t>(random());
    for (auto& scale : scales) scale = static_cast<std::uint8_t>(0x28 + random() % 0x28);
    swizzle_scales(scales, rows, columns / 16, tiles);
  }
  double value(std::int64_t row, std::int64_t column) const {
    const float scale = e4m3_decode(scales[static_cast<std::size_t>((row * columns + column) / 16)]);
    return static_cast<double>(
        e2m1_decode(nibble(NibbleOrder::low_first, codes.data() + row * columns / 2, column)) * scale);
  }
};

template <typename T>
Buffer<T> upload(const std::vector<T>& host) {
  return Buffer<T>(std::span<const T>(host));
}

std::string check(cuda::NativeNvfp4& native, std::int64_t m, std::int64_t n, std::int64_t k,
                  std::mt19937_64& random) {
  const Operand a(m, k, random), w(n, k, random);
  const auto a_codes = upload(a.codes), a_tiles = upload(a.tiles), w_codes = upload(w.codes),
             w_tiles = upload(w.tiles);
  const float alpha = 0x1p-7f;
  const Buffer<float> device_alpha(std::span<const float>(&alpha, 1));
  Buffer<std::uint16_t> out(m * n);
  out.fill(0xFF);
  const cuda::NativeNvfp4Matmul call{.m = m,
                                     .rows = n,
                                     .columns = k,
                                     .activations = a_codes.data(),
                                     .activation_scales = a_tiles.data(),
                                     .weights = w_codes.data(),
                                     .weight_scales = w_tiles.data(),
                                     .alpha = device_alpha.data(),
                                     .out = out.data()};
  try {
    native.matmul(call, nullptr);
  } catch (const Error& error) {
    if (cuda::has_fp4_tensor_cores()) return error.what();
    const bool ours =
        error.kind() == ErrorKind::unsupported && std::strstr(error.what(), "no tensor cores for FP4");
    if (ours) fmt::print("refused, as it should be here: {}\n", error.what());
    return ours ? "" : fmt::format("another refusal than expected: {}", error.what());
  }
  if (!cuda::has_fp4_tensor_cores()) return "computed, though this device has no tensor cores for FP4";
  const auto got = out.download();
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double product = a.value(row, i) * w.value(column, i) * static_cast<double>(alpha);
        sum += product;
        magnitude += std::abs(product);
      }
      const auto value = static_cast<double>(bf16_decode(got[static_cast<std::size_t>(row * n + column)]));
      if (!(std::abs(value - sum) <= 0x1p-8 * std::abs(sum) + 0x1p-17 * magnitude))
        return fmt::format("result [{}, {}] is {}, expected {}", row, column, value, sum);
    }
  return "";
}

}  // namespace

int run(int argc, char** argv) {
  std::uint64_t seed = 20261201;
  if (argc == 3 && std::string_view(argv[1]) == "--seed")
    seed = std::stoull(argv[2]);
  else if (argc > 1)
    fail_input("gpu_native_nvfp4_test takes --seed N");
  if (!device_is_there(seed)) return 0;
  std::mt19937_64 random(seed);
  std::int64_t passed = 0, failed = 0;
  cuda::NativeNvfp4 native;
  constexpr std::int64_t kShapes[][3] = {{128, 128, 256}, {16, 256, 512}, {200, 512, 4096 + 64}};
  for (const auto& [m, n, k] : kShapes) {
    const std::string problem = check(native, m, n, k, random);
    ++(problem.empty() ? passed : failed);
    if (!problem.empty()) fmt::print("FAILED {} x {} x {}: {}\n", m, n, k, problem);
  }
  return exit_code(passed, failed);
}

}  // namespace halfbyte::test

int main(int argc, char** argv) {
  return halfbyte::test::program("gpu_native_nvfp4_test", argc, argv, halfbyte::test::run);
}
