// The strict JSON reader: nlohmann's tokenizer drives a handler that builds the value and refuses what is not
// wanted.
#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view file) : file_(file) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json(Json::value_t::object)); }
  bool start_array(std::size_t) override { return open(Json(Json::value_t::array)); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [place, added] = stack_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!added) fail_input("{}: the key {} stands twice in one object", file_, quote(name));
    member_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    if (error.id == 406) fail_input("{}: the number {} is too large", file_, quote(token));
    fail_input("{}: is not valid JSON at byte {}, near {}", file_, position, quote(token));
  }

 private:
  // Where the next value belongs: the root, the member whose key was just read, or the end of an array.
  // Children of an object are nodes of a map and the stack's arrays grow only at their innermost level, so
  // pointers stay valid.
  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    stack_.back()->push_back(std::move(value));
    return &stack_.back()->back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= kMaxJsonDepth)
      fail_input("{}: is nested deeper than {} levels", file_, kMaxJsonDepth);
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view file_;
  Json root_;
  std::vector<Json*> stack_;
  Json* member_ = nullptr;
};

[[noreturn]] void wrong_type(const Json& value, std::string_view key, std::string_view where,
                             std::string_view wanted) {
  fail_input("{}: {} must be {}, but it is {}", where, quote(key), wanted,
             value.is_number() ? "the number " + value.dump() : "of type " + std::string(value.type_name()));
}

std::string as_string(const Json& value, std::string_view key, std::string_view where) {
  if (!value.is_string()) wrong_type(value, key, where, "a string");
  return value.get<std::string>();
}

std::int64_t as_int64(const Json& value, std::string_view key, std::string_view where) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer()) wrong_type(value, key, where, "a whole number");
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMax)
    wrong_type(value, key, where, "a whole number below 2^63");
  return value.get<std::int64_t>();
}

double as_double(const Json& value, std::string_view key, std::string_view where) {
  if (!value.is_number()) wrong_type(value, key, where, "a number");
  return value.get<double>();
}

bool as_bool(const Json& value, std::string_view key, std::string_view where) {
  if (!value.is_boolean()) wrong_type(value, key, where, "true or false");
  return value.get<bool>();
}

bool finite(const Json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  if (value.is_structured())
    for (const Json& child : value)
      if (!finite(child)) return false;
  return true;
}

// Indented, but a list of numbers stays on one line.
void print(const Json& value, int indent, int depth, std::string& out) {
  const bool numbers =
      value.is_array() && std::ranges::all_of(value, [](const Json& v) { return v.is_number(); });
  if (!value.is_structured() || value.empty() || numbers) {
    out += value.dump();
    return;
  }
  const std::string inner(static_cast<std::size_t>(indent * (depth + 1)), ' ');
  const auto next = [&](bool first) { out += (first ? "\n" : ",\n") + inner; };
  bool first = true;
  out += value.is_object() ? '{' : '[';
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      next(std::exchange(first, false));
      out += Json(key).dump() + ": ";
      print(member, indent, depth + 1, out);
    }
  } else {
    for (const Json& member : value) {
      next(std::exchange(first, false));
      print(member, indent, depth + 1, out);
    }
  }
  out += "\n" + std::string(static_cast<std::size_t>(indent * depth), ' ');
  out += value.is_object() ? '}' : ']';
}

}  // namespace

Json parse_json(std::string_view text, std::string_view file) {
  // The tokenizer would take a zero byte for the end of the text.
  if (const auto zero = text.find('\0'); zero != text.npos)
    fail_input("{}: holds a zero byte at byte {}", file, zero);
  Builder builder(file);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) fail_input("{}: is not valid JSON", file);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  return parse_json(read_text_file(path, max_bytes), path.string());
}

std::string dump_json(const Json& value, int indent) {
  if (!finite(value)) fail_input("a JSON file cannot hold NaN or infinity");
  try {
    std::string text;
    if (indent < 0)
      text = value.dump();
    else
      print(value, indent, 0, text);
    return text + "\n";
  } catch (const Json::exception&) {
    fail_input("a JSON file cannot hold text that is not UTF-8");
  }
}

const Json& json_member(const Json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) fail_input("{}: must be an object with the key {}", where, quote(key));
  const auto found = object.find(key);
  if (found == object.end()) fail_input("{}: the key {} is missing", where, quote(key));
  return *found;
}

const Json* json_find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string json_string(const Json& object, std::string_view key, std::string_view where) {
  return as_string(json_member(object, key, where), key, where);
}
std::int64_t json_int64(const Json& object, std::string_view key, std::string_view where) {
  return as_int64(json_member(object, key, where), key, where);
}
double json_double(const Json& object, std::string_view key, std::string_view where) {
  return as_double(json_member(object, key, where), key, where);
}
bool json_bool(const Json& object, std::string_view key, std::string_view where) {
  return as_bool(json_member(object, key, where), key, where);
}
const Json& json_object(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = json_member(object, key, where);
  if (!value.is_object()) wrong_type(value, key, where, "an object");
  return value;
}
const Json& json_array(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = json_member(object, key, where);
  if (!value.is_array()) wrong_type(value, key, where, "an array");
  return value;
}

std::optional<std::string> json_optional_string(const Json& object, std::string_view key,
                                                std::string_view where) {
  const Json* value = json_find(object, key);
  return value ? std::optional(as_string(*value, key, where)) : std::nullopt;
}
std::optional<std::int64_t> json_optional_int64(const Json& object, std::string_view key,
                                                std::string_view where) {
  const Json* value = json_find(object, key);
  return value ? std::optional(as_int64(*value, key, where)) : std::nullopt;
}
std::optional<double> json_optional_double(const Json& object, std::string_view key, std::string_view where) {
  const Json* value = json_find(object, key);
  return value ? std::optional(as_double(*value, key, where)) : std::nullopt;
}
std::optional<bool> json_optional_bool(const Json& object, std::string_view key, std::string_view where) {
  const Json* value = json_find(object, key);
  return value ? std::optional(as_bool(*value, key, where)) : std::nullopt;
}

}  // namespace halfbyte
