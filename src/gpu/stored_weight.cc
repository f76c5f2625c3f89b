// Uploads weights and multiplies by them: codes are decoded into scratch memory where they are needed.
#include "gpu/stored_weight.h"

#include <numeric>

#include "formats/dynamic8.h"
#include "ops/dequantize/cuda.h"
#include "ops/matmul_f32/cuda.h"

namespace halfbyte::cuda {

StoredWeight StoredWeight::quantized(const QuantizedTensor& tensor, Staging& staging) {
  StoredWeight weight;
  const Extent extent = extent_of(tensor.shape);
  weight.rows_ = extent.rows;
  weight.columns_ = extent.columns;
  weight.spec_ = tensor.spec;
  weight.bytes_ = staging.upload(tensor.codes.span());
  weight.scales8_ = staging.upload(tensor.scales8.span());
  weight.scales_ = staging.upload(tensor.scales.span());
  weight.nested_ = staging.upload(tensor.nested_absmax.span());
  if (tensor.spec.double_quant) weight.map_ = staging.upload(std::span<const float>(kDynamic8Map));
  weight.global_ = staging.upload(std::span<const float>(&tensor.global_scale, 1));
  weight.offset_ = tensor.offset;
  return weight;
}

StoredWeight StoredWeight::plain(const TensorView& view, Staging& staging) {
  StoredWeight weight;
  const Extent extent = extent_of(view.shape);
  weight.rows_ = extent.rows;
  weight.columns_ = extent.columns;
  weight.dtype_ = view.dtype;
  weight.bytes_ = Buffer<std::uint8_t>(static_cast<std::int64_t>(view.data.size()));
  staging.copy(view.data.data(), view.data.size(), weight.bytes_.data());
  return weight;
}

std::int64_t StoredWeight::bytes() const {
  return static_cast<std::int64_t>(bytes_.bytes() + scales8_.bytes() + scales_.bytes() + nested_.bytes() +
                                   map_.bytes() + global_.bytes());
}

void StoredWeight::decode(float* out, Stream stream) const {
  dequantize({.spec = *spec_,
              .rows = rows_,
              .columns = columns_,
              .codes = bytes_.data(),
              .scales8 = scales8_.data(),
              .scales = scales_.data(),
              .nested_absmax = nested_.data(),
              .map = map_.data(),
              .offset = offset_,
              .group = kDynamic8Group,
              .global_scale = global_.data(),
              .dtype = DType::f32,
              .out = out},
             stream);
}

void StoredWeight::multiply(const float* x, std::int64_t m, std::int64_t x_stride, const float* bias,
                            bool accumulate, float* scratch, float* out, Stream stream) const {
  if (!is_plain()) decode(scratch, stream);
  check_status(matmul_f32({.m = m,
                           .n = rows_,
                           .k = columns_,
                           .activation = x,
                           .activation_stride = x_stride,
                           .weight = is_plain() ? data() : scratch,
                           .dtype = is_plain() ? dtype_ : DType::f32,
                           .bias = bias,
                           .accumulate = accumulate,
                           .out = out,
                           .out_stride = rows_},
                          stream),
               "launching matmul_f32");
}

}  // namespace halfbyte::cuda
