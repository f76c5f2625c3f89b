// The input of linears on the device, transformed and rounded the way each of them asks for.
#pragma once

#include <cstdint>
#include <optional>

#include "gpu/cuda_model.h"

namespace halfbyte::cuda {

// Device memory that all inputs of a pass use in turn, for passes of up to `rows` rows.
struct InputScratch {
  InputScratch() = default;
  InputScratch(std::int64_t rows, std::int64_t widest)
      : changed(rows * widest),
        rounded(rows * widest),
        absmax(rows),
        global_scale(rows),
        residual_scale(rows) {}
  Buffer<float> changed, rounded;                      // [rows, widest]
  Buffer<float> absmax, global_scale, residual_scale;  // [rows]
};

// Counters on the device that outlive a pass.
struct InputCounts {
  Buffer<int> not_finite{1};              // 1 where a pass met a NaN or an infinity
  Buffer<unsigned long long> clipped{1};  // values beyond their static scale
  std::int64_t values = 0;                // rounded under static scales
};

// What a linear reads, [rows, in].
struct LinearValues {
  Values values;
  // Under nvfp4: the global scale (nvfp4.h: a factor, or a divisor) of all values but residuals and outliers, [1] or with of_rows
  // [rows]; else null. Without it these values are exact in 16 bits.
  const float* global_scale = nullptr;
  bool divides = false, of_rows = false;
};

// x [rows, columns], in FP16 only where no linear wants it changed or rounded; equal wishes share one result, which lives in the
// scratch. As SharedInput of model/layer.h, bit for bit.
class DeviceInput {
 public:
  DeviceInput(const Values& x, std::int64_t rows, std::int64_t columns, InputScratch& scratch,
              InputCounts& counts, Stream stream);

  // As linear's engine would see it.
  LinearValues for_linear(const DeviceLinear& linear);

 private:
  LinearValues make();
  const float* change(const InputTransform& input);
  void round(const float* changed, const InputInfo& info);
  // nvfp4: out becomes the global scale of x [rows, columns], or `fixed` if that is not 0.
  void find_scale(const float* x, std::int64_t columns, std::int64_t stride, GlobalScaleRule rule,
                  float fixed, Buffer<float>& out);

  Values x_;
  std::int64_t rows_;
  InputTransform unchanged_;  // for linears without a method
  InputScratch& scratch_;
  InputCounts& counts_;
  Stream stream_;
  std::optional<LinearValues> current_;  // what these two make of x
  std::optional<ActivationSpec> activations_;
  const DeviceTransform* transform_ = nullptr;
};

}  // namespace halfbyte::cuda
