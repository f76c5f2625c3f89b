// Double quantization of the absmax values of a tensor (rules in formats/dynamic8.h).
#pragma once

#include "formats/quantized_tensor.h"

namespace halfbyte {

// absmax[blocks] -> scales8[blocks], nested_absmax[ceil(blocks / 256)] and offset of `tensor`.
void double_quantize(std::span<const float> absmax, QuantizedTensor& tensor);

}  // namespace halfbyte
