// JSON read strictly (capped depth and size, no duplicate keys, valid UTF-8) and written with sorted keys.
// Include <nlohmann/json.hpp> in the .cc file that looks inside a value; this header keeps it out of the
// others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace halfbyte {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 64;

// Parses one JSON text; file names it in messages.
Json parse_json(std::string_view text, std::string_view file);
Json read_json_file(const std::filesystem::path& path, std::int64_t max_bytes = kMaxTextBytes);

// Text with sorted keys and a closing newline, on one line where indent is negative; otherwise lists of numbers are. Refuses NaN and infinities
// (JSON has none) and invalid UTF-8.
std::string dump_json(const Json& value, int indent = 2);

// Members of an object. The first form demands them, the second treats an absent or null one as nothing; both
// refuse a member of another type. `where` opens the message: a file name, or "config.json: rope_scaling".
const Json& json_member(const Json& object, std::string_view key, std::string_view where);
const Json* json_find(const Json& object,
                      std::string_view key);  // nullptr where absent, null, or object is no object

std::string json_string(const Json& object, std::string_view key, std::string_view where);
std::int64_t json_int64(const Json& object, std::string_view key, std::string_view where);
double json_double(const Json& object, std::string_view key, std::string_view where);  // takes integers too
bool json_bool(const Json& object, std::string_view key, std::string_view where);
const Json& json_object(const Json& object, std::string_view key, std::string_view where);
const Json& json_array(const Json& object, std::string_view key, std::string_view where);

std::optional<std::string> json_optional_string(const Json& object, std::string_view key,
                                                std::string_view where);
std::optional<std::int64_t> json_optional_int64(const Json& object, std::string_view key,
                                                std::string_view where);
std::optional<double> json_optional_double(const Json& object, std::string_view key, std::string_view where);
std::optional<bool> json_optional_bool(const Json& object, std::string_view key, std::string_view where);

}  // namespace halfbyte
