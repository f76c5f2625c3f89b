// The JSON reader: what it accepts must survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "halfbyte/error.h"
#include "io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const halfbyte::Json value =
        halfbyte::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    if (halfbyte::parse_json(halfbyte::dump_json(value), "again.json") != value) std::abort();
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
