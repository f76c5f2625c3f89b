// One input of the ecosystem readers: the text of config.json, a zero byte, and a safetensors file.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "fuzz/memory_file.h"

namespace halfbyte::fuzz {

// Opens it, reads every quantized tensor and writes it again. Throws Error for what is refused; a tensor that was read must have
// its parts and must be writable in the layout it came from.
inline void read_ecosystem(const std::uint8_t* data, std::size_t size) {
  const std::uint8_t* end = data + size;
  const std::uint8_t* zero = std::find(data, end, std::uint8_t{0});
  if (zero == end) fail_input("no zero byte between the two files");
  const Json config =
      parse_json({reinterpret_cast<const char*>(data), static_cast<std::size_t>(zero - data)}, "config.json");
  const Json& quantization = json_object(config, "quantization_config", "config.json");
  const Ecosystem* ecosystem = find_ecosystem(json_string(quantization, "quant_method", "config.json"));
  if (!ecosystem) fail_input("config.json: no ecosystem");
  const MemoryFile file(zero + 1, static_cast<std::size_t>(end - zero - 1));
  const SafetensorsModel files(file.path());
  const HalfbyteQuantization found = ecosystem->parse(config, quantization, "config.json", files);
  for (const auto& [name, info] : found.tensors) {
    const InputInfo* input = input_of(found, info);
    for (const std::string& part : ecosystem->parts(name, info, input)) files.at(part);
    const QuantizedTensor tensor = ecosystem->read(files, name, info, input);
    check_parts(tensor, name);
    std::vector<std::int32_t> columns;
    if (input && ecosystem->input) columns = ecosystem->input(files, found, info.input).columns;
    const auto& activations = found.activations_of(info);
    const std::vector<StoredTensor> stored = ecosystem->store(
        name, tensor,
        {.input = input, .columns = columns, .activations = activations ? &*activations : nullptr});
    for (const StoredTensor& part : stored)
      if (static_cast<std::int64_t>(part.bytes.size()) !=
          count(part.spec.shape) * dtype_bytes(part.spec.dtype))
        std::abort();
  }
  ecosystem->config({.quantization = found, .kept = {"lm_head"}});
}

}  // namespace halfbyte::fuzz
