// Uploads weights and multiplies by them: on tensor cores from the codes, or decoded into scratch memory where they are needed.
#include "gpu/stored_weight.h"

#include <algorithm>

#include "formats/dynamic8.h"
#include "ops/dequantize/cuda.h"
#include "ops/matmul_f32/cuda.h"
#include "ops/matmul_w4a16/cuda.h"
#include "ops/matmul_w4a16/pack.h"

namespace halfbyte::cuda {

template <typename T>
Buffer<T> StoredWeight::join_buffers(std::span<const StoredWeight* const> parts,
                                     Buffer<T> StoredWeight::*member) {
  std::int64_t size = 0;
  for (const StoredWeight* part : parts) size += (part->*member).size();
  Buffer<T> joined(size);
  std::int64_t at = 0;
  for (const StoredWeight* part : parts) {
    const Buffer<T>& from = part->*member;
    if (from.size())
      check_status(cudaMemcpy(joined.data() + at, from.data(), from.bytes(), cudaMemcpyDeviceToDevice),
                   "copying on the device");
    at += from.size();
  }
  return joined;
}

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
  weight.global_scale_ = tensor.global_scale;
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
  return static_cast<std::int64_t>(bytes_.bytes() + tiles_.bytes() + scales8_.bytes() + scales_.bytes() +
                                   nested_.bytes() + map_.bytes() + global_.bytes());
}

bool StoredWeight::can_join(std::span<const StoredWeight* const> parts) {
  const StoredWeight& first = *parts[0];
  return std::ranges::all_of(parts, [&](const StoredWeight* part) {
    if (part->empty() || part->is_packed() || part->columns_ != first.columns_ || part->spec_ != first.spec_)
      return false;
    if (part->is_plain()) return part->dtype_ == first.dtype_;
    if (part->spec_->double_quant || part->global_scale_ != first.global_scale_) return false;
    return has_row_blocks(part->spec_->format) ||
           part->columns_ % effective_block(*part->spec_, part->columns_) == 0;
  });
}

StoredWeight StoredWeight::join(std::span<const StoredWeight* const> parts) {
  const StoredWeight& first = *parts[0];
  StoredWeight joined;
  for (const StoredWeight* part : parts) joined.rows_ += part->rows_;
  joined.columns_ = first.columns_;
  joined.dtype_ = first.dtype_;
  joined.spec_ = first.spec_;
  joined.bytes_ = join_buffers(parts, &StoredWeight::bytes_);
  joined.scales8_ = join_buffers(parts, &StoredWeight::scales8_);
  joined.scales_ = join_buffers(parts, &StoredWeight::scales_);
  if (!first.is_plain()) joined.global_ = Buffer<float>(std::span<const float>(&first.global_scale_, 1));
  joined.global_scale_ = first.global_scale_;
  return joined;
}

bool StoredWeight::pack() {
  if (format_info(spec_->format).bits != 4 || columns_ % effective_block(*spec_, columns_)) return false;
  tiles_ = Buffer<std::uint8_t>(w4_tile_bytes(*spec_, rows_, columns_));
  pack_w4(*spec_, rows_, columns_, bytes_.data(), scales8_.data(), scales_.data(), tiles_.data(), nullptr);
  check_status(cudaDeviceSynchronize(), "packing a weight");
  bytes_ = {};
  scales8_ = {};
  scales_ = {};
  return true;
}

void StoredWeight::widen() {
  StoredWeight plain;
  plain.rows_ = rows_;
  plain.columns_ = columns_;
  plain.dtype_ = DType::f16;
  plain.bytes_ = Buffer<std::uint8_t>(2 * rows_ * columns_);
  decode({plain.bytes_.data(), DType::f16}, nullptr);
  check_status(cudaDeviceSynchronize(), "decoding a weight");
  *this = std::move(plain);
}

void StoredWeight::decode(MutableValues out, Stream stream) const {
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
              .dtype = out.dtype,
              .out = out.data},
             stream);
}

void StoredWeight::multiply(const Values& x, std::int64_t m, std::int64_t x_stride, const float* bias,
                            bool accumulate, float* scratch, float* out, Stream stream) const {
  if (!is_plain()) decode({scratch, DType::f32}, stream);
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

void StoredWeight::multiply_f16(const void* x, std::int64_t m, const void* bias, void* workspace, void* out,
                                Stream stream) const {
  MatmulW4A16Call call;
  call.weights = {.spec = *spec_,
                  .rows = rows_,
                  .columns = columns_,
                  .tiles = tiles_.data(),
                  .global_scale = global_.data(),
                  .nested_absmax = nested_.data(),
                  .map = map_.data(),
                  .offset = offset_};
  call.m = m;
  call.dtype = DType::f16;
  call.activations = x;
  call.bias = bias;
  call.out = out;
  call.workspace = workspace;
  matmul_w4a16(call, stream);
}

std::int64_t StoredWeight::workspace(std::int64_t m) const {
  return is_packed() ? matmul_w4a16_workspace(m, rows_, columns_) : 0;
}

}  // namespace halfbyte::cuda
