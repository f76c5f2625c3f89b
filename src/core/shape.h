// Tensor shapes: 64-bit extents, element counts that cannot overflow, and how a shape is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte {

using Shape = std::vector<std::int64_t>;  // outermost first; an empty shape is a scalar

// a * b, or nothing where it does not fit in 63 bits or a factor is negative.
constexpr std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Number of elements, or nothing where it overflows or an extent is negative.
inline std::optional<std::int64_t> checked_count(const Shape& shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) empty = true;
  }
  if (empty) return 0;
  for (std::int64_t extent : shape) {
    const auto next = checked_mul(count, extent);
    if (!next) return std::nullopt;
    count = *next;
  }
  return count;
}

// Element count of a shape already known to be sound.
inline std::int64_t count(const Shape& shape) { return checked_count(shape).value(); }

// "[576, 1536]"
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace halfbyte
