// Packs 4-bit weights into tiles and back, byte by byte, as layout.h says.
#include "ops/matmul_w4a16/pack.h"

#include <cstring>

#include "core/fail.h"
#include "ops/matmul_w4a16/layout.h"
#include "ops/matmul_w4a16/op.h"

namespace halfbyte {

namespace {

struct Sides {
  W4Layout layout;
  std::int64_t blocks_a_row;
};

Sides sides_of(const QuantizedTensor& tensor, std::size_t tile_bytes) {
  check_parts(tensor, "4-bit weights");
  const Extent extent = extent_of(tensor.shape);
  check_w4a16_weights(tensor.spec, extent.rows, extent.columns);
  const W4Layout layout = W4Layout::of(tensor.spec, extent.rows, extent.columns);
  if (static_cast<std::int64_t>(tile_bytes) != layout.bytes())
    fail_input("4-bit weights of shape {}: {} bytes of tiles, expected {}", to_string(tensor.shape),
               tile_bytes, layout.bytes());
  return {layout, extent.columns / layout.block};
}

// Calls code(place in tiles, place in the tensor's codes) and scale(place in tiles, block) for everything that has both, and
// code(place, -1), scale(place, -1) for the padding.
template <class Code, class Scale>
void walk(const Sides& sides, Code code, Scale scale) {
  const W4Layout& layout = sides.layout;
  for (std::int64_t tile = 0; tile < layout.row_tiles * layout.column_tiles; ++tile) {
    const std::int64_t first_row = tile / layout.column_tiles * kTileRows,
                       first_column = tile % layout.column_tiles * kTileColumns;
    const std::int64_t at = tile * layout.tile_bytes();
    for (int i = 0; i < kTileCodeBytes; ++i) {
      const auto place = layout.code_place(i);
      const std::int64_t row = first_row + place.row, column = first_column + place.column;
      const bool inside = row < layout.rows && column < layout.columns;
      code(at + i, inside ? (row * layout.columns + column) / 2 : -1);
    }
    for (int i = 0; i < layout.scales_in_tile(); ++i) {
      const auto place = layout.scale_place(i);
      const std::int64_t row = first_row + place.row, column = first_column + place.column;
      const bool inside = row < layout.rows && column < layout.columns;
      scale(at + kTileCodeBytes + i * layout.scale_bytes,
            inside ? row * sides.blocks_a_row + column / layout.block : -1);
    }
  }
}

}  // namespace

std::int64_t w4_tile_bytes(const QuantSpec& spec, std::int64_t rows, std::int64_t columns) {
  check_w4a16_weights(spec, rows, columns);
  return W4Layout::of(spec, rows, columns).bytes();
}

void pack_w4(const QuantizedTensor& tensor, std::span<std::uint8_t> tiles) {
  const Sides sides = sides_of(tensor, tiles.size());
  const bool bytes = sides.layout.scale_bytes == 1;
  walk(
      sides,
      [&](std::int64_t at, std::int64_t from) {
        tiles[static_cast<std::size_t>(at)] = from < 0 ? sides.layout.zero : tensor.codes[from];
      },
      [&](std::int64_t at, std::int64_t block) {
        if (bytes) {
          tiles[static_cast<std::size_t>(at)] = block < 0 ? std::uint8_t{0} : tensor.scales8[block];
        } else {
          const float scale = block < 0 ? 0.0f : tensor.scales[block];
          std::memcpy(&tiles[static_cast<std::size_t>(at)], &scale, sizeof scale);
        }
      });
}

void unpack_w4(std::span<const std::uint8_t> tiles, QuantizedTensor& tensor) {
  const Sides sides = sides_of(tensor, tiles.size());
  const bool bytes = sides.layout.scale_bytes == 1;
  walk(
      sides,
      [&](std::int64_t at, std::int64_t to) {
        if (to >= 0) tensor.codes[to] = tiles[static_cast<std::size_t>(at)];
      },
      [&](std::int64_t at, std::int64_t block) {
        if (block < 0) return;
        if (bytes)
          tensor.scales8[block] = tiles[static_cast<std::size_t>(at)];
        else
          std::memcpy(&tensor.scales[block], &tiles[static_cast<std::size_t>(at)], sizeof(float));
      });
}

}  // namespace halfbyte
