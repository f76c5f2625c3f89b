// Where announced tensors lie in a file that is being written, and how much of each is there already.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "io/output.h"

namespace halfbyte {

class TensorPlaces {
 public:
  struct Place {
    std::int64_t begin = 0, size = 0, done = 0;
  };

  // False where the name is there already. It must live as long as this object.
  bool add(std::string_view name, std::int64_t begin, std::int64_t size);
  // Throws, naming the file, where nothing of that name was announced.
  Place& at(std::string_view name, const OutputFile& file);
  void move_all(std::int64_t by);  // all begin so much later
  // Writes the next bytes of a tensor.
  void append(std::string_view name, std::span<const std::byte> bytes, OutputFile& file);
  // Throws where one of these is not complete.
  void require_complete(const auto& specs, const OutputFile& file) {
    for (const auto& spec : specs) require_complete_tensor(spec.name, file);
  }

 private:
  void require_complete_tensor(std::string_view name, const OutputFile& file);

  std::unordered_map<std::string_view, Place> places_;
};

}  // namespace halfbyte
