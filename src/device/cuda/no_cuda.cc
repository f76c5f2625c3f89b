// Takes the place of the .cu files in a build without CUDA: there is no device, and nothing is launched.
#include "device/cuda/cublas.h"
#include "device/cuda/device.h"
#include "ops/dequantize/launch.h"
#include "ops/fused_activation/params.h"
#include "ops/matmul_w4a16/launch.h"
#include "ops/quantize/launch.h"

namespace halfbyte::cuda {

bool built() { return false; }
bool available() { return false; }
std::optional<DeviceInfo> device_info() { return std::nullopt; }
StatusText status_text(int) { return {"no CUDA", "built without CUDA", false}; }

struct Cublas::State {};
Cublas::Cublas(CublasSums) { require_device("a product of unquantized matrices"); }
Cublas::~Cublas() = default;
bool Cublas::found() { return false; }
int Cublas::version() const { return 0; }
void Cublas::matmul(const CublasMatmul&, Stream) {}

int launch_dequantize_flat(const DequantizeParams&, DType, bool, const LaunchShape&, Stream) { return 1; }
int launch_dequantize_rows(const DequantizeParams&, DType, Stream) { return 1; }
int launch_dequantize_bytes(const DequantizeParams&, DType, bool, int, Stream) { return 1; }
int launch_fused_activation(const FusedParams&, Stream) { return 1; }
int launch_pack_w4(const PackW4Params&, Stream) { return 1; }
int launch_wide(const WideParams&, W4Scales, DType, Stream) { return 1; }
int launch_small_m(const SmallMParams&, W4Scales, DType, Stream) { return 1; }
int launch_quantize_flat(const QuantizeParams&, Stream) { return 1; }
int launch_quantize_int8(const QuantizeParams&, Stream) { return 1; }
int launch_quantize_blocks(const QuantizeParams&, Stream) { return 1; }
int launch_double_quant(const DoubleQuantParams&, bool, Stream) { return 1; }
int launch_global_scale(const QuantizeParams&, std::uint32_t*, float*, Stream) { return 1; }

}  // namespace halfbyte::cuda
