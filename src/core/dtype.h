// Element types of tensors in files and in memory, with the names that safetensors gives them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace halfbyte {

enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as in a safetensors header
  std::int64_t bytes;     // per element
};

inline constexpr std::array<DTypeInfo, 16> kDTypes{{
    {DType::f64, "F64", 8},
    {DType::f32, "F32", 4},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::f8_e4m3, "F8_E4M3", 1},
    {DType::f8_e5m2, "F8_E5M2", 1},
    {DType::f8_e8m0, "F8_E8M0", 1},
    {DType::i64, "I64", 8},
    {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},
    {DType::i8, "I8", 1},
    {DType::u64, "U64", 8},
    {DType::u32, "U32", 4},
    {DType::u16, "U16", 2},
    {DType::u8, "U8", 1},
    {DType::boolean, "BOOL", 1},
}};

constexpr const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
constexpr std::int64_t dtype_bytes(DType dtype) { return dtype_info(dtype).bytes; }

// The type of that safetensors name, or nothing where the name is unknown.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

static_assert(
    [] {
      for (std::size_t i = 0; i < kDTypes.size(); ++i)
        if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
      return true;
    }(),
    "kDTypes must list the types in the order of the enum");

}  // namespace halfbyte
