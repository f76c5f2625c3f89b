#include "checkpoint/stored_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/fail.h"
#include "formats/e4m3.h"
#include "io/text.h"

namespace halfbyte {

StoredTensor stored(std::string name, DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {{std::move(name), dtype, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

StoredTensor stored_scalar(std::string name, Shape shape, float value) {
  return stored(std::move(name), DType::f32, std::move(shape), std::as_bytes(std::span(&value, 1)));
}

const TensorView& part_of(const SafetensorsModel& files, const std::string& owner, const std::string& name) {
  const TensorView* view = files.describe(name);
  if (!view)
    fail_input("{}: {} is missing, needed for the quantized tensor {}; the file is incomplete", files.path(),
               quote(name), quote(owner));
  return *view;
}

const TensorView& part_of(const SafetensorsModel& files, const std::string& owner, const std::string& name,
                          DType dtype, const Shape& shape) {
  const TensorView& view = part_of(files, owner, name);
  if (view.dtype != dtype || view.shape != shape)
    fail_input(
        "{}: {} is {} {}, expected {} {} for the quantized tensor {}; was it written with another block "
        "size?",
        files.path(), quote(name), dtype_name(view.dtype), to_string(view.shape), dtype_name(dtype),
        to_string(shape), quote(owner));
  return view;
}

float scale_of(const SafetensorsModel& files, const std::string& owner, const std::string& name) {
  const TensorView& view = part_of(files, owner, name);
  if (view.dtype != DType::f32 || (view.shape != Shape{} && view.shape != Shape{1}))
    fail_input("{}: {} is {} {}, expected one F32 for the quantized tensor {}", files.path(), quote(name),
               dtype_name(view.dtype), to_string(view.shape), quote(owner));
  const auto scale = load<float>(files.at(name).data.data());
  if (!(scale > 0.0f) || std::isinf(scale))
    fail_input("{}: {} is {}, expected a positive number; the file is damaged or its quantization failed",
               files.path(), quote(name), scale);
  return scale;
}

void copy_bytes(const TensorView& view, std::span<std::byte> to) {
  HB_DCHECK(view.data.size() == to.size());
  std::ranges::copy(view.data, to.begin());
}

namespace {

[[noreturn]] void refuse_scale(const SafetensorsModel& files, const std::string& name, std::ptrdiff_t index,
                               double value) {
  fail_input("{}: {} holds {} at {}, expected a finite number of 0 or more; the file is damaged",
             files.path(), quote(name), value, index);
}

}  // namespace

void check_e4m3_scales(const SafetensorsModel& files, const std::string& name,
                       std::span<const std::uint8_t> scales) {
  const auto bad = std::ranges::find_if(scales, [](std::uint8_t code) { return code > 0x7E; });
  if (bad != scales.end())
    refuse_scale(files, name, bad - scales.begin(), static_cast<double>(e4m3_decode(*bad)));
}

void check_e8m0_scales(const SafetensorsModel& files, const std::string& name,
                       std::span<const std::uint8_t> scales) {
  const auto bad = std::ranges::find(scales, 0xFF);
  if (bad != scales.end()) refuse_scale(files, name, bad - scales.begin(), std::nan(""));
}

void check_f32_scales(const SafetensorsModel& files, const std::string& name, std::span<const float> scales) {
  const auto bad =
      std::ranges::find_if(scales, [](float scale) { return !(scale >= 0) || std::isinf(scale); });
  if (bad != scales.end()) refuse_scale(files, name, bad - scales.begin(), static_cast<double>(*bad));
}

void check_magnitude(const SafetensorsModel& files, const std::string& name, const QuantizedTensor& tensor,
                     std::string_view expected) {
  constexpr float kLargestWeight = 1e4f;
  if (!tensor.scales8.size()) return;
  const std::uint8_t scale = *std::ranges::max_element(tensor.scales8);
  const float largest = kE2m1Max * nvfp4_step(tensor.spec.global_scale, scale, tensor.global_scale);
  if (!(largest <= kLargestWeight))
    fail_input(
        "{}: {} is {}, which allows weights up to {:g}; that is no plausible {}, was its reciprocal written "
        "here?",
        files.path(), quote(name), tensor.global_scale, largest, expected);
}

void check_activation_scale(const SafetensorsModel& files, const std::string& name, GlobalScaleRule rule,
                            float scale, std::string_view expected) {
  constexpr float kLargestActivation = 1e6f;
  const float largest = nvfp4_range(rule, scale);
  if (!(largest <= kLargestActivation))
    fail_input(
        "{}: {} is {}, which allows activations up to {:g}; that is no plausible {}, was its reciprocal "
        "written here?",
        files.path(), quote(name), scale, largest, expected);
}

DType model_dtype(const Json& config, const std::string& where) {
  auto name = json_optional_string(config, "dtype", where);
  if (!name) name = json_optional_string(config, "torch_dtype", where);
  if (!name || *name == "bfloat16") return DType::bf16;
  if (*name == "float16") return DType::f16;
  if (*name == "float32") return DType::f32;
  fail(ErrorKind::unsupported, "{}: dtype is {}, expected bfloat16, float16 or float32", where, quote(*name));
}

}  // namespace halfbyte
