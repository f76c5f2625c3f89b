// GGUF files (versions 2 and 3): metadata and tensor places, every bound checked before use.
//
//   layout  "GGUF", u32 version, u64 tensor count, u64 key count; keys: string, u32 type, value; tensors:
//   string name,
//           u32 rank, u64 dims (fastest first), u32 type, u64 offset; padding to general.alignment (32); data
//   string  u64 length and bytes;  array: u32 element type, u64 count, elements
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/shape.h"
#include "io/mapped_file.h"

namespace halfbyte {

// Element types of GGUF tensors: number in the file, name, and how many values one block of how many bytes
// holds.
struct GgmlType {
  std::uint32_t id;
  std::string_view name;
  std::int64_t block_values, block_bytes;
};

inline constexpr std::array<GgmlType, 33> kGgmlTypes{{
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},     {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},  {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110}, {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},       {26, "I32", 1, 4},
    {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},  {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},   {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
}};

enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view gguf_type_name(GgufType type);

struct GgufValue;

// Elements as they lie in the file; strings and arrays, whose places vary, are listed.
struct GgufArray {
  GgufType type = GgufType::u8;
  std::int64_t count = 0;
  std::span<const std::byte> bytes;       // fixed-size types: count * size bytes, unaligned
  std::vector<std::string_view> strings;  // of strings
  std::vector<GgufArray> arrays;          // of arrays
};

// Integers of all widths become uint64 or int64, f32 becomes double (exactly); strings are bytes of the
// mapped file.
struct GgufValue {
  GgufType type = GgufType::u8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> data;
};

struct GgufTensor {
  std::string_view name;
  const GgmlType* type = nullptr;  // row of kGgmlTypes
  Shape shape;  // outermost first, like everywhere else in halfbyte: the file's dims reversed
  std::span<const std::byte> data;
};

class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t size() const { return file_.size(); }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  std::uint32_t version() const { return version_; }
  std::span<const std::pair<std::string_view, GgufValue>> keys() const { return keys_; }  // in file order
  std::span<const GgufTensor> tensors() const { return tensors_; }                        // in file order

  const GgufValue* find(std::string_view key) const;           // nullptr where there is none
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr where there is none
  const GgufTensor& tensor(std::string_view name) const;       // throws where there is none

  // Values by key: these throw where the key is missing or holds another type; has() tells before.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::string_view string(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // takes integers too
  bool boolean(std::string_view key) const;
  const GgufArray& array(std::string_view key) const;
  const std::vector<std::string_view>& strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  void drop(const GgufTensor& tensor) const { file_.drop(tensor.data); }

 private:
  const GgufValue& get(std::string_view key) const;

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> keys_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> key_index_, tensor_index_;
};

}  // namespace halfbyte
