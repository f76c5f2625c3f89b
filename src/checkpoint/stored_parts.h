// Parts of quantized tensors in other ecosystems' files: found with every check, and the values that scales may have.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/halfbyte.h"

namespace halfbyte {

// A tensor to be written, with its bytes.
struct StoredTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

StoredTensor stored(std::string name, DType dtype, Shape shape, std::span<const std::byte> bytes);
StoredTensor stored_scalar(std::string name, Shape shape, float value);  // F32 [] or [1]

// Type and shape of the part `name` of the quantized tensor `owner`, not its data. Throws bad_input naming both where it is absent, or of another type or
// shape.
const TensorView& part_of(const SafetensorsModel& files, const std::string& owner, const std::string& name);
const TensorView& part_of(const SafetensorsModel& files, const std::string& owner, const std::string& name,
                          DType dtype, const Shape& shape);
// A positive finite F32 of shape [] or [1].
float scale_of(const SafetensorsModel& files, const std::string& owner, const std::string& name);
// Its bytes into an array of that length.
void copy_bytes(const TensorView& view, std::span<std::byte> to);

// Throw bad_input naming file, part and index where a scale is NaN, infinite or negative.
void check_e4m3_scales(const SafetensorsModel& files, const std::string& name,
                       std::span<const std::uint8_t> scales);
void check_e8m0_scales(const SafetensorsModel& files, const std::string& name,
                       std::span<const std::uint8_t> scales);
void check_f32_scales(const SafetensorsModel& files, const std::string& name, std::span<const float> scales);

// Throws bad_input where an nvfp4 tensor could hold magnitudes above 10,000: what becomes of a global scale that is a factor
// and is read as a divisor, or the other way round. `expected` is the kind that belongs there: "divisor" or "factor".
void check_magnitude(const SafetensorsModel& files, const std::string& name, const QuantizedTensor& tensor,
                     std::string_view expected);
// The same for a static activation scale, whose range may be up to 1,000,000.
void check_activation_scale(const SafetensorsModel& files, const std::string& name, GlobalScaleRule rule,
                            float scale, std::string_view expected);

// The member dtype (older: torch_dtype) of config.json; BF16 where it is absent.
DType model_dtype(const Json& config, const std::string& where);

}  // namespace halfbyte
