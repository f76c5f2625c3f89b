// quantize and dequantize one after the other: the meaning of fake_quantize.
#include <algorithm>

#include "formats/source_dtype.h"
#include "ops/dequantize/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/quantize/op.h"

namespace halfbyte {

bool fake_quantize_reference(const FakeQuantize& args, ThreadPool& pool) {
  const std::int64_t height = args.scope == ScaleScope::row ? 1 : args.rows;
  Array<float> values(height * args.columns);
  for (std::int64_t first = 0; first < args.rows; first += height) {
    for (std::int64_t row = 0; row < height; ++row)
      std::copy_n(args.x + (first + row) * args.x_stride, args.columns, values.data() + row * args.columns);
    float amax = 0.0f;
    for (const float value : values) {
      if (!is_finite(value)) return false;
      amax = std::max(amax, abs_value(value));
    }
    QuantizedTensor tensor = make_quantized(args.spec, {height, args.columns}, DType::f32);
    if (args.spec.format == Format::nvfp4)
      tensor.global_scale = args.global_scale ? *args.global_scale
                                              : nvfp4_global_scale(args.spec.global_scale, amax, DType::f32);
    const TensorView view{.dtype = DType::f32, .shape = tensor.shape, .data = values.as_bytes()};
    quantize_reference({.values = view, .extent = extent_of(tensor.shape), .out = &tensor, .pool = &pool});
    dequantize_reference({.tensor = &tensor,
                          .columns = args.columns,
                          .first = 0,
                          .last = height * args.columns,
                          .out = values.data()});
    for (std::int64_t row = 0; row < height; ++row)
      std::copy_n(values.data() + row * args.columns, args.columns,
                  args.out + (first + row) * args.out_stride);
  }
  return true;
}

}  // namespace halfbyte
