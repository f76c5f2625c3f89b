#include "io/tensor_places.h"

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

bool TensorPlaces::add(std::string_view name, std::int64_t begin, std::int64_t size) {
  return places_.emplace(name, Place{begin, size, 0}).second;
}

TensorPlaces::Place& TensorPlaces::at(std::string_view name, const OutputFile& file) {
  const auto found = places_.find(name);
  if (found == places_.end()) fail_input("{}: no tensor {} was announced", file.path(), quote(name));
  return found->second;
}

void TensorPlaces::move_all(std::int64_t by) {
  for (auto& [name, place] : places_) place.begin += by;
}

void TensorPlaces::append(std::string_view name, std::span<const std::byte> bytes, OutputFile& file) {
  Place& place = at(name, file);
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size > place.size - place.done)
    fail_input("{}: tensor {} was given {} bytes, expected {}", file.path(), quote(name), place.done + size,
               place.size);
  file.write_at(place.begin + place.done, bytes);
  place.done += size;
}

void TensorPlaces::require_complete_tensor(std::string_view name, const OutputFile& file) {
  const Place& place = at(name, file);
  if (place.done != place.size)
    fail_input("{}: tensor {} was given {} of its {} bytes", file.path(), quote(name), place.done,
               place.size);
}

}  // namespace halfbyte
