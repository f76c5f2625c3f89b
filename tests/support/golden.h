// Golden data of tests/golden: tensors by name, widened to float32 or as bytes.
#pragma once

#include <string>
#include <vector>

#include "formats/e4m3.h"
#include "formats/source_dtype.h"
#include "io/safetensors.h"

namespace halfbyte::test {

class Golden {
 public:
  explicit Golden(const std::string& name) : file_(std::string(HALFBYTE_GOLDEN "/") + name) {}

  const TensorView& view(const std::string& name) const { return file_.at(name); }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  const SafetensorsFile& file() const { return file_; }

  std::vector<std::uint8_t> bytes(const std::string& name) const {
    const auto data = view(name).data;
    const auto* first = reinterpret_cast<const std::uint8_t*>(data.data());
    return {first, first + data.size()};
  }

  std::vector<float> floats(const std::string& name) const {
    const TensorView& tensor = view(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = tensor.dtype == DType::f8_e4m3
                      ? e4m3_decode(load<std::uint8_t>(tensor.data.data(), static_cast<std::int64_t>(i)))
                      : load_element(tensor.dtype, tensor.data.data(), static_cast<std::int64_t>(i));
    return values;
  }

 private:
  SafetensorsFile file_;
};

// Bit patterns, so that comparisons tell -0 from 0; every NaN becomes the same pattern.
inline std::vector<std::uint32_t> patterns(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(is_nan(value) ? 0x7FC00000u : float_bits(value));
  return bits;
}

}  // namespace halfbyte::test
