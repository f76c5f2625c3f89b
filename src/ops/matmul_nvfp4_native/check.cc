// The checks of matmul_nvfp4_native, which need no device.
#include "core/fail.h"
#include "ops/matmul_nvfp4_native/cuda.h"

namespace halfbyte::cuda {

namespace {

void require(const char* part, const void* pointer) {
  if (!pointer) fail_input("native NVFP4 product: {} is null", part);
  const auto excess = reinterpret_cast<std::uintptr_t>(pointer) % 16;
  if (excess)
    fail_input(
        "native NVFP4 product: {} lies {} bytes past a multiple of 16; copy it to an aligned buffer first",
        part, excess);
}

}  // namespace

void check_native_nvfp4(const NativeNvfp4Matmul& call) {
  if (call.m < 1 || call.rows < 1 || call.columns < 1 || call.columns % 32 || call.rows % 8)
    fail_input(
        "native NVFP4 product of {} x {} weights with {} activations; columns must be a multiple of 32, rows "
        "of 8",
        call.rows, call.columns, call.m);
  require("activations", call.activations);
  require("activation_scales", call.activation_scales);
  require("weights", call.weights);
  require("weight_scales", call.weight_scales);
  require("out", call.out);
  if (!call.alpha) fail_input("native NVFP4 product: alpha is null");
}

bool has_fp4_tensor_cores() {
  const auto device = device_info();
  return device && device->major >= 10;
}

}  // namespace halfbyte::cuda
