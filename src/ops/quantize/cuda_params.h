// What the quantize kernels are launched with: device pointers, sizes, and what is the same for all threads.
#pragma once

#include <cstdint>

#include "formats/formats.h"
#include "ops/quantize/fast_codes.h"

namespace halfbyte::cuda {

// Shapes and meanings as in formats/quantized_tensor.h; every pointer is a device pointer.
struct QuantizeParams {
  const void* values = nullptr;  // [rows, columns]
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales8 = nullptr;      // nvfp4, mxfp4, mxfp8
  float* scales = nullptr;              // nf4, fp4: absmax; int4, int8: scale
  const float* global_scale = nullptr;  // nvfp4
  int* not_finite = nullptr;            // becomes 1 where a block holds a NaN or an infinity; may be null
  std::int64_t elements = 0, columns = 0;
  std::int64_t first_block = 0, blocks = 0;  // blocks kernel: of the tensor
  std::int64_t block = 0;                    // elements
  int block_shift = 0;
  Format format = Format::nf4;
  DType source = DType::bf16;
  GlobalScaleRule global_rule = GlobalScaleRule::pow2;
  MxScaleRule mx_rule = MxScaleRule::floor;
  std::uint32_t mx_addend = 0;  // see mx_addend()
  bool four_six = false, scale_search = false;
  BucketTable buckets;  // nf4, fp4
};

// Thread blocks that sum absmax values, and the 32-bit words of workspace for their sums, each a double, and smallest values.
inline constexpr int kSumBlocks = 256;
inline constexpr std::int64_t kDoubleQuantWorkspace = 3 * kSumBlocks;

// Double quantization of absmax values.
struct DoubleQuantParams {
  const float* absmax = nullptr;  // [blocks]
  std::int64_t blocks = 0;
  std::uint8_t* codes = nullptr;       // [blocks]
  float* nested_absmax = nullptr;      // [ceil(blocks / 256)]
  float* offset = nullptr;             // [1]
  std::uint32_t* workspace = nullptr;  // [kDoubleQuantWorkspace]
  int mantissa_zeros = 0;              // low bits that are 0 in every absmax value: 16 of BF16, 13 of FP16
  bool aligned = false;                // absmax to 16 bytes and codes to 8

  HB_HD double* sums() const { return reinterpret_cast<double*>(workspace); }  // [kSumBlocks]
  HB_HD float* smallests() const {                                             // [kSumBlocks]
    return reinterpret_cast<float*>(workspace) + 2 * kSumBlocks;
  }
};

// For the rules floor, ceil and even the exponent is that of absmax after adding this to its bits.
constexpr std::uint32_t mx_addend(MxScaleRule rule, const MxElement& element) {
  if (rule == MxScaleRule::ceil) return 0x7FFFFFu;
  if (rule == MxScaleRule::even) return 1u << (22 - element.mantissa_bits);
  return 0;
}
HB_HD constexpr std::uint8_t mx_code_with_addend(float absmax, std::uint32_t addend, int emax) {
  const int code = static_cast<int>((float_bits(absmax) + addend) >> 23) - emax;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code > 254 ? 254 : code);
}

template <Format kFormat>
inline constexpr MxElement kMxElementOf = kFormat == Format::mxfp4        ? kMxE2m1
                                          : kFormat == Format::mxfp8_e4m3 ? kMxE4m3
                                                                          : kMxE5m2;

constexpr MxElement mx_element_of(Format format) {
  return format == Format::mxfp4 ? kMxE2m1 : format == Format::mxfp8_e4m3 ? kMxE4m3 : kMxE5m2;
}

}  // namespace halfbyte::cuda
