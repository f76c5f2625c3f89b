// Double quantization of the absmax values of a tensor.
#include "ops/quantize/double_quant.h"

#include <algorithm>
#include <cmath>

namespace halfbyte {

void double_quantize(std::span<const float> absmax, QuantizedTensor& tensor) {
  const auto blocks = static_cast<std::int64_t>(absmax.size());
  if (blocks == 0) return;
  double sum = 0;
  for (const float value : absmax) sum += static_cast<double>(value);
  tensor.offset = static_cast<float>(sum / static_cast<double>(blocks));
  for (std::int64_t first = 0; first < blocks; first += kDynamic8Group) {
    const std::int64_t last = std::min(first + kDynamic8Group, blocks);
    float largest = 0;
    for (std::int64_t i = first; i < last; ++i)
      largest = std::max(largest, std::abs(absmax[static_cast<std::size_t>(i)] - tensor.offset));
    tensor.nested_absmax[first / kDynamic8Group] = largest;
    const float factor = dynamic8_factor(largest);
    for (std::int64_t i = first; i < last; ++i)
      tensor.scales8[i] = dynamic8_encode_scaled(absmax[static_cast<std::size_t>(i)] - tensor.offset, factor);
  }
}

}  // namespace halfbyte
