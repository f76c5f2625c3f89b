// Typed access to the metadata of a GGUF file.
#include <limits>

#include "core/fail.h"
#include "core/tensor.h"
#include "io/gguf.h"
#include "io/text.h"

namespace halfbyte {

namespace {

[[noreturn]] void wrong_type(const GgufFile& file, std::string_view key, GgufType found,
                             std::string_view wanted) {
  fail_input("{}: the key {} is of type {}, expected {}", file.path(), quote(key), gguf_type_name(found),
             wanted);
}

// Element i of a fixed-size array as Out, or false where its type is not one that Out stands for.
template <typename Out>
bool element(const GgufArray& array, std::int64_t i, Out& out) {
  const std::byte* data = array.bytes.data();
  switch (array.type) {
    case GgufType::u8:
      out = static_cast<Out>(load<std::uint8_t>(data, i));
      return true;
    case GgufType::i8:
      out = static_cast<Out>(load<std::int8_t>(data, i));
      return true;
    case GgufType::u16:
      out = static_cast<Out>(load<std::uint16_t>(data, i));
      return true;
    case GgufType::i16:
      out = static_cast<Out>(load<std::int16_t>(data, i));
      return true;
    case GgufType::u32:
      out = static_cast<Out>(load<std::uint32_t>(data, i));
      return true;
    case GgufType::i32:
      out = static_cast<Out>(load<std::int32_t>(data, i));
      return true;
    case GgufType::u64:
      out = static_cast<Out>(load<std::uint64_t>(data, i));
      return true;
    case GgufType::i64:
      out = static_cast<Out>(load<std::int64_t>(data, i));
      return true;
    default:
      return false;
  }
}

}  // namespace

const GgufValue& GgufFile::get(std::string_view key) const {
  if (const GgufValue* value = find(key)) return *value;
  fail_input("{}: the key {} is missing", path(), quote(key));
}

std::string_view GgufFile::string(std::string_view key) const {
  const GgufValue& value = get(key);
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return *text;
  wrong_type(*this, key, value.type, "a string");
}

std::int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& value = get(key);
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value.data)) {
    if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail_input("{}: the key {} is {}, which is too large", path(), quote(key), *number);
    return static_cast<std::int64_t>(*number);
  }
  wrong_type(*this, key, value.type, "a whole number");
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& value = get(key);
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  if (std::holds_alternative<std::int64_t>(value.data) || std::holds_alternative<std::uint64_t>(value.data))
    return static_cast<double>(integer(key));
  wrong_type(*this, key, value.type, "a number");
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& value = get(key);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  wrong_type(*this, key, value.type, "a bool");
}

const GgufArray& GgufFile::array(std::string_view key) const {
  const GgufValue& value = get(key);
  if (const auto* array = std::get_if<GgufArray>(&value.data)) return *array;
  wrong_type(*this, key, value.type, "an array");
}

const std::vector<std::string_view>& GgufFile::strings(std::string_view key) const {
  const GgufArray& values = array(key);
  if (values.type != GgufType::string) wrong_type(*this, key, values.type, "an array of strings");
  return values.strings;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  const GgufArray& values = array(key);
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(values.count));
  for (std::int64_t i = 0; i < values.count; ++i) {
    std::int64_t value = 0;
    if (!element(values, i, value)) wrong_type(*this, key, values.type, "an array of whole numbers");
    out.push_back(value);
  }
  return out;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  const GgufArray& values = array(key);
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(values.count));
  for (std::int64_t i = 0; i < values.count; ++i) {
    double value = 0;
    if (values.type == GgufType::f32)
      value = load<float>(values.bytes.data(), i);
    else if (values.type == GgufType::f64)
      value = load<double>(values.bytes.data(), i);
    else if (!element(values, i, value))
      wrong_type(*this, key, values.type, "an array of numbers");
    out.push_back(value);
  }
  return out;
}

}  // namespace halfbyte
