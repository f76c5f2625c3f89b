// Products with 4-bit weights without a device: the reference against numbers done by hand, the packing and its inverse, the
// choice of launches.
#include <gtest/gtest.h>

#include <random>

#include "formats/bf16.h"
#include "halfbyte/error.h"
#include "ops/matmul_w4a16/config.h"
#include "ops/matmul_w4a16/cuda.h"
#include "ops/matmul_w4a16/op.h"
#include "ops/matmul_w4a16/pack.h"

namespace halfbyte {
namespace {

std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs = {{.format = Format::nvfp4}, {.format = Format::mxfp4}};
  for (const std::int64_t block : {32, 64, 128})
    specs.push_back({.format = Format::int4, .block_size = block});
  for (const Format format : {Format::nf4, Format::fp4})
    for (const bool twice : {false, true})
      for (const std::int64_t block : {32, 64, 256})
        specs.push_back({.format = format, .block_size = block, .double_quant = twice});
  return specs;
}

QuantizedTensor random_tensor(const QuantSpec& spec, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  QuantizedTensor tensor = make_quantized(spec, shape, DType::bf16);
  for (auto& code : tensor.codes) code = static_cast<std::uint8_t>(random());
  for (auto& scale : tensor.scales8) scale = static_cast<std::uint8_t>(random());
  for (auto& scale : tensor.scales) scale = static_cast<float>(random() % 1000);
  return tensor;
}

TEST(MatmulW4A16, ReferenceByHand) {
  // Two rows of 32: W[0] = 0.5 at column 0, 6 at column 17; W[1] = -1.5 everywhere; scales 1 and 2, global scale 0.5.
  QuantizedTensor w = make_quantized({.format = Format::nvfp4}, {2, 32}, DType::bf16);
  std::fill(w.codes.begin(), w.codes.begin() + 16, std::uint8_t{0});
  w.codes[0] = 0x01;
  w.codes[8] = 0x70;
  std::fill(w.codes.begin() + 16, w.codes.end(), std::uint8_t{0xBB});
  w.scales8[0] = w.scales8[2] = w.scales8[3] = 0x38;
  w.scales8[1] = 0x40;
  w.global_scale = 0.5f;
  std::vector<std::uint16_t> a(3 * 32, bf16_encode(0.0f)), bias = {bf16_encode(10.0f), bf16_encode(-1.0f)};
  a[0] = bf16_encode(4.0f);         // 4 * 0.5 * 0.5 = 1
  a[32 + 17] = bf16_encode(-1.0f);  // -6 * 2 * 0.5 = -6
  for (int k = 0; k < 32; ++k)
    a[static_cast<std::size_t>(64 + k)] = bf16_encode(1.0f);  // 0.25 + 6; 32 * -0.75
  std::vector<double> out(6), magnitude(6);
  const MatmulW4A16 args{
      .weights = &w,
      .activations = {.dtype = DType::bf16,
                      .shape = {3, 32},
                      .data = std::as_bytes(std::span<const std::uint16_t>(a))},
      .bias = {
          .dtype = DType::bf16, .shape = {2}, .data = std::as_bytes(std::span<const std::uint16_t>(bias))}};
  matmul_w4a16_reference(args, out, magnitude);
  EXPECT_EQ(out, (std::vector<double>{11, -4, 4, -0.25, 16.25, -25}));
  EXPECT_EQ(magnitude, (std::vector<double>{11, 4, 16, 1.75, 16.25, 25}));
}

TEST(MatmulW4A16, PackingIsAPermutation) {
  unsigned seed = 1;
  for (const QuantSpec& spec : all_specs()) {
    const std::int64_t block = effective_block(spec, 0);
    for (const auto& [rows, blocks] : {std::pair<int, int>{1, 1}, {16, 4}, {17, 3}, {40, 9}, {33, 2}}) {
      const QuantizedTensor tensor = random_tensor(spec, {rows, blocks * block}, ++seed);
      std::vector<std::uint8_t> tiles(static_cast<std::size_t>(w4_tile_bytes(spec, rows, blocks * block)),
                                      0xA5);
      pack_w4(tensor, tiles);
      QuantizedTensor back = random_tensor(spec, {rows, blocks * block}, ++seed);
      unpack_w4(tiles, back);
      EXPECT_TRUE(std::equal(tensor.codes.begin(), tensor.codes.end(), back.codes.begin()))
          << to_string(spec) << rows;
      EXPECT_TRUE(std::equal(tensor.scales8.begin(), tensor.scales8.end(), back.scales8.begin()))
          << to_string(spec);
      EXPECT_TRUE(std::equal(tensor.scales.begin(), tensor.scales.end(), back.scales.begin()))
          << to_string(spec);
      // Whole tiles hold the codec's bytes and nothing else, but for scales that stand in several tiles.
      if (rows % 16 == 0 && blocks * block % 64 == 0 && block <= 64) {
        EXPECT_EQ(static_cast<std::int64_t>(tiles.size()),
                  tensor.codes.size() + tensor.scales8.size() + 4 * tensor.scales.size());
      }
    }
  }
}

TEST(MatmulW4A16, TilesAsDocumented) {
  const auto layout = W4Layout::of({.format = Format::nvfp4}, 16, 64);
  EXPECT_EQ(layout.tile_bytes(), 576);
  EXPECT_EQ(layout.code_place(16 * 5 + 3).row, 1);  // lane 5: g = 1, t = 1
  EXPECT_EQ(layout.code_place(16 * 5 + 3).column, 16 + 6);
  EXPECT_EQ(layout.code_place(16 * 5 + 8).row, 9);
  const auto nf4 = W4Layout::of({.format = Format::nf4}, 16, 64);
  EXPECT_EQ(nf4.code_place(16 * 5 + 5).column, 32 + 8 + 2);
  EXPECT_EQ(nf4.tile_bytes(), 512 + 64);
  EXPECT_EQ(W4Layout::of({.format = Format::nf4, .double_quant = true}, 16, 64).tile_bytes(), 528);
}

TEST(MatmulW4A16, ShapesCoverEveryTileOnce) {
  using namespace cuda;
  for (const int multiprocessors : {1, 20, 108, 132, 148})
    for (const std::int64_t row_tiles : {1, 2, 7, 64, 256, 896, 1792})
      for (const std::int64_t column_tiles : {1, 3, 4, 9, 24, 64, 100, 128, 224, 448}) {
        const SmallMShape s = small_m_shape(row_tiles, column_tiles, multiprocessors);
        ASSERT_EQ(s.warps_k * s.warps_rows, kSmallMWarps) << to_string(s);
        const std::int64_t columns = std::int64_t{s.splits} * s.warps_k * kSmallMColumnTiles;
        ASSERT_GE(columns, column_tiles) << to_string(s);
        ASSERT_LT(columns - std::int64_t{s.warps_k} * kSmallMColumnTiles, column_tiles) << to_string(s);
        const std::int64_t rows_of_group = std::int64_t{s.warps_rows} * s.row_tiles;
        ASSERT_GE(s.groups * rows_of_group, row_tiles) << to_string(s);
        ASSERT_LT((s.groups - 1) * rows_of_group, row_tiles) << to_string(s);
        ASSERT_GE(small_m_workspace(s, row_tiles * 16), 4 * kWorkspaceCounters);
        if (s.splits > 1) {
          ASSERT_LE(s.groups, kWorkspaceCounters);
        }
        for (const std::int64_t m : {17, 32, 33, 64, 100, 128, 200, 256, 512, 4096}) {
          const WideShape w = wide_shape(m, row_tiles, column_tiles, multiprocessors);
          ASSERT_GE(std::int64_t{w.m_blocks} * w.activations, m) << to_string(w);
          ASSERT_LT(std::int64_t{w.m_blocks - 1} * w.activations, m) << to_string(w);
          ASSERT_GE(std::int64_t{w.row_blocks} * kWideRows, row_tiles * kTileRows) << to_string(w);
          ASSERT_LT(std::int64_t{w.row_blocks - 1} * kWideRows, row_tiles * kTileRows) << to_string(w);
          ASSERT_GE(std::int64_t{w.splits} * w.column_tiles, column_tiles) << to_string(w);
          ASSERT_LT(std::int64_t{w.splits - 1} * w.column_tiles, column_tiles) << to_string(w);
          if (w.splits > 1) {
            ASSERT_LE(w.splits * w.row_blocks * w.m_blocks, multiprocessors) << to_string(w);
          }
        }
      }
  EXPECT_EQ(to_string(wide_shape(50, 256, 64, 132)),
            "wide: 128 rows x 64 activations, 32 x 1 blocks x 4 splits of 16 tiles");
  EXPECT_EQ(to_string(small_m_shape(896, 64, 132)),
            "small_m: 1 splits x 128 groups of 16 x 1 warps, 7 rows of tiles each");
  EXPECT_EQ(small_m_shape(1792, 128, 132),
            (SmallMShape{.splits = 2, .warps_k = 16, .warps_rows = 1, .row_tiles = 28, .groups = 64}));
}

TEST(MatmulW4A16, RefusesWhatItCannotMultiply) {
  auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal([] { check_w4a16_weights({.format = Format::int8}, 4, 64); }).find("4 bits"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              check_w4a16_weights({.format = Format::nf4}, 4, 96);
            }).find("multiple of the block of 64"),
            std::string::npos);
  EXPECT_EQ(refusal([] { check_w4a16_weights({.format = Format::nvfp4}, 4, 48); }), "");
  cuda::MatmulW4A16Call call;
  EXPECT_EQ(refusal([&] { cuda::matmul_w4a16(call, nullptr); }), "");  // nothing to do
  call.m = 1;
  call.weights = {.spec = {.format = Format::nvfp4}, .rows = 16, .columns = 64};
  EXPECT_NE(refusal([&] { cuda::matmul_w4a16(call, nullptr); }).find("tiles is null"), std::string::npos);
  call.dtype = DType::f32;
  EXPECT_NE(refusal([&] { cuda::matmul_w4a16(call, nullptr); }).find("F32"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
