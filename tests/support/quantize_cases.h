// The specs and awkward tensors that tests of quantize, dequantize and fake_quantize walk through.
#pragma once

#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"

namespace halfbyte::test {

// Every format with every option that changes bytes.
inline std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const Format format : {Format::nf4, Format::fp4})
    for (const std::int64_t block : {32, 64, 128, 4096})
      for (const bool twice : {false, true})
        specs.push_back({.format = format, .block_size = block, .double_quant = twice});
  for (int rule = 0; rule < 4; ++rule)
    specs.push_back({.format = Format::nvfp4, .global_scale = static_cast<GlobalScaleRule>(rule)});
  specs.push_back({.format = Format::nvfp4, .four_six = true});
  specs.push_back({.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax, .four_six = true});
  specs.push_back({.format = Format::nvfp4, .scale_search = true});
  specs.push_back({.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax, .scale_search = true});
  for (int rule = 0; rule < 6; ++rule)
    specs.push_back({.format = Format::mxfp4, .mx_scale = static_cast<MxScaleRule>(rule)});
  for (const Format format : {Format::mxfp8_e4m3, Format::mxfp8_e5m2})
    for (int rule = 0; rule < 5; ++rule)
      specs.push_back({.format = format, .mx_scale = static_cast<MxScaleRule>(rule)});
  for (const std::int64_t block : {32, 64, 128})
    specs.push_back({.format = Format::int4, .block_size = block});
  specs.push_back({.format = Format::int8});
  return specs;
}

// Normal noise times a factor for each run of 16, with zeros, -0, subnormal numbers, ties and an outlier
// mixed in.
inline std::vector<float> awkward_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> decades(-4.0f, 3.0f);
  std::vector<float> values(static_cast<std::size_t>(count));
  float factor = 1.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 16 == 0) factor = std::pow(10.0f, decades(generator));
    values[i] = normal(generator) * factor;
    const auto kind = generator() % 40;
    if (kind == 0) values[i] = 0.0f;
    if (kind == 1) values[i] = -0.0f;
    if (kind == 2) values[i] = bits_float(static_cast<std::uint32_t>(generator()) & 0x807FFFFFu);
    if (kind == 3) values[i] = std::round(values[i] / factor * 4.0f) / 4.0f * factor;
    if (i / 128 % 7 == 3) values[i] = i % 2 ? 0.0f : -0.0f;  // zero blocks
    if (i / 128 % 7 == 5)
      values[i] = bits_float(static_cast<std::uint32_t>(generator()) & 0x800FFFFFu);  // subnormal blocks
    if (i / 128 % 7 == 6) values[i] = std::round(values[i] / factor * 8.0f) / 4.0f;   // ties
  }
  if (count > 40) values[static_cast<std::size_t>(count) / 2] = 3e4f;
  return values;
}

// A tensor of those values in that type, its bytes beginning one byte off any alignment.
struct Source {
  std::vector<std::byte> bytes;
  TensorView view;

  Source(DType dtype, Shape shape, const std::vector<float>& values) {
    const auto width = static_cast<std::size_t>(dtype_bytes(dtype));
    bytes.resize(values.size() * width + 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half =
          dtype == DType::f16 ? fp16_encode_saturating(values[i]) : bf16_encode(values[i]);
      std::memcpy(bytes.data() + 1 + i * width,
                  dtype == DType::f32 ? static_cast<const void*>(&values[i]) : &half, width);
    }
    view = {.dtype = dtype, .shape = std::move(shape), .data = std::span<const std::byte>(bytes).subspan(1)};
  }
  Source(const Source&) = delete;
};

template <class T>
std::vector<std::uint8_t> raw(const Array<T>& array) {
  const auto bytes = array.as_bytes();
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

// All bytes of a quantized tensor, to be compared at once.
inline std::vector<std::uint8_t> all_bytes(const QuantizedTensor& tensor) {
  std::vector<std::uint8_t> bytes;
  for (const auto& part :
       {raw(tensor.codes), raw(tensor.scales8), raw(tensor.scales), raw(tensor.nested_absmax)})
    bytes.insert(bytes.end(), part.begin(), part.end());
  for (const float value : {tensor.offset, tensor.global_scale})
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(float_bits(value) >> shift));
  return bytes;
}

// Runs body once for each instruction set that this machine has and Highway code may be compiled for.
inline void for_each_target(const std::function<void(const std::string&)>& body) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t rest = supported; rest; rest &= rest - 1) {
    const std::int64_t target = rest & ~(rest - 1);
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace halfbyte::test
