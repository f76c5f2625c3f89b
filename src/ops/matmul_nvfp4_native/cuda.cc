// cuBLASLt by its C interface, declared here as far as it is used; a refusal in a build without CUDA.
#include "ops/matmul_nvfp4_native/cuda.h"

#ifdef HALFBYTE_CUDA
#include "core/fail.h"
#include "device/cuda/library.h"
#include "device/cuda/memory.h"
#endif

namespace halfbyte::cuda {

#ifdef HALFBYTE_CUDA

namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

// cublasStatus_t, cublasComputeType_t, cudaDataType_t, cublasOperation_t
constexpr int kNotSupported = 15, kCompute32F = 68, kReal32F = 0, kBf16 = 14, kE2m1 = 33, kTransposed = 1;
// cublasLtPointerMode_t, cublasLtMatmulMatrixScale_t
constexpr int kOnDevice = 1, kScaleOf16InE4m3 = 1;
// cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t
constexpr int kPointerMode = 2, kTransposeA = 3, kScaleA = 17, kScaleB = 18, kScaleModeA = 31,
              kScaleModeB = 32, kMostWorkspace = 1;

using Handle = void*;
using Descriptor = void*;

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

}  // namespace

struct NativeNvfp4::State {
  Library library{"a product on tensor cores for FP4", kNames};
  int (*create)(Handle*);
  int (*destroy)(Handle);
  const char* (*status_string)(int);
  int (*create_product)(Descriptor*, int compute_type, int scale_type);
  int (*destroy_product)(Descriptor);
  int (*set_product)(Descriptor, int attribute, const void* value, std::size_t bytes);
  int (*create_layout)(Descriptor*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  int (*destroy_layout)(Descriptor);
  int (*create_preference)(Descriptor*);
  int (*destroy_preference)(Descriptor);
  int (*set_preference)(Descriptor, int attribute, const void* value, std::size_t bytes);
  int (*heuristic)(Handle, Descriptor product, Descriptor a, Descriptor b, Descriptor c, Descriptor d,
                   Descriptor preference, int wanted, HeuristicResult* results, int* found);
  int (*matmul)(Handle, Descriptor product, const void* alpha, const void* a, Descriptor a_layout,
                const void* b, Descriptor b_layout, const void* beta, const void* c, Descriptor c_layout,
                void* d, Descriptor d_layout, const Algorithm*, void* workspace, std::size_t workspace_bytes,
                cudaStream_t);
  Handle handle = nullptr;
  Buffer<std::uint8_t> workspace{kWorkspaceBytes};
  Buffer<float> zero{1};

  void check(int status, const char* what) const {
    if (status) fail(ErrorKind::device, "{}: {}: {}", library.name(), what, status_string(status));
  }
};

namespace {

// Something of cuBLASLt's that is made and destroyed.
class Owned {
 public:
  explicit Owned(int (*destroy)(Descriptor)) : destroy_(destroy) {}
  ~Owned() {
    if (descriptor_) destroy_(descriptor_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Descriptor* address() { return &descriptor_; }
  operator Descriptor() const { return descriptor_; }

 private:
  int (*destroy_)(Descriptor);
  Descriptor descriptor_ = nullptr;
};

}  // namespace

NativeNvfp4::NativeNvfp4() {
  require_device("a product on tensor cores for FP4");
  state_ = std::make_unique<State>();
  State& lt = *state_;
  lt.library.find("cublasLtCreate", &lt.create);
  lt.library.find("cublasLtDestroy", &lt.destroy);
  lt.library.find("cublasLtGetStatusString", &lt.status_string);
  lt.library.find("cublasLtMatmulDescCreate", &lt.create_product);
  lt.library.find("cublasLtMatmulDescDestroy", &lt.destroy_product);
  lt.library.find("cublasLtMatmulDescSetAttribute", &lt.set_product);
  lt.library.find("cublasLtMatrixLayoutCreate", &lt.create_layout);
  lt.library.find("cublasLtMatrixLayoutDestroy", &lt.destroy_layout);
  lt.library.find("cublasLtMatmulPreferenceCreate", &lt.create_preference);
  lt.library.find("cublasLtMatmulPreferenceDestroy", &lt.destroy_preference);
  lt.library.find("cublasLtMatmulPreferenceSetAttribute", &lt.set_preference);
  lt.library.find("cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  lt.library.find("cublasLtMatmul", &lt.matmul);
  lt.check(lt.create(&lt.handle), "creating a handle");
  lt.zero.fill(0);
}

NativeNvfp4::~NativeNvfp4() {
  if (state_->handle) state_->destroy(state_->handle);
}

void NativeNvfp4::matmul(const NativeNvfp4Matmul& call, Stream stream) {
  check_native_nvfp4(call);
  // cuBLASLt itself (13.0, compute capability 9.0) takes the call and computes NaN.
  if (!has_fp4_tensor_cores())
    fail(
        ErrorKind::unsupported,
        "{} (compute capability {}.{}) has no tensor cores for FP4, which came with 10.0; decode the weights "
        "(dequantize) or multiply 16-bit activations (matmul_w4a16)",
        device_info()->name, device_info()->major, device_info()->minor);
  State& lt = *state_;
  Owned product(lt.destroy_product), preference(lt.destroy_preference);
  Owned weights(lt.destroy_layout), activations(lt.destroy_layout), out(lt.destroy_layout);
  lt.check(lt.create_product(product.address(), kCompute32F, kReal32F), "describing the product");
  const auto set = [&](int attribute, const auto& value) {
    lt.check(lt.set_product(product, attribute, &value, sizeof value), "describing the product");
  };
  set(kPointerMode, kOnDevice);
  set(kTransposeA, kTransposed);
  set(kScaleModeA, kScaleOf16InE4m3);
  set(kScaleModeB, kScaleOf16InE4m3);
  set(kScaleA, call.weight_scales);
  set(kScaleB, call.activation_scales);
  // cuBLASLt counts column after column: to it W is [K, N], A [K, M] and out [N, M].
  const auto m = static_cast<std::uint64_t>(call.m), n = static_cast<std::uint64_t>(call.rows),
             k = static_cast<std::uint64_t>(call.columns);
  lt.check(lt.create_layout(weights.address(), kE2m1, k, n, call.columns), "describing the weights");
  lt.check(lt.create_layout(activations.address(), kE2m1, k, m, call.columns), "describing the activations");
  lt.check(lt.create_layout(out.address(), kBf16, n, m, call.rows), "describing the results");
  lt.check(lt.create_preference(preference.address()), "creating a preference");
  const std::size_t bytes = lt.workspace.bytes();
  lt.check(lt.set_preference(preference, kMostWorkspace, &bytes, sizeof bytes), "setting the workspace");
  HeuristicResult result{};
  int found = 0;
  const int status =
      lt.heuristic(lt.handle, product, weights, activations, out, out, preference, 1, &result, &found);
  if (status == kNotSupported || (status == 0 && (found == 0 || result.status == kNotSupported)))
    fail(ErrorKind::unsupported, "{} has no NVFP4 product of {} x {} weights with {} activations for {}",
         lt.library.name(), call.rows, call.columns, call.m, device_info()->name);
  lt.check(status, "choosing an algorithm");
  lt.check(result.status, "choosing an algorithm");
  lt.check(lt.matmul(lt.handle, product, call.alpha, call.weights, weights, call.activations, activations,
                     lt.zero.data(), call.out, out, call.out, out, &result.algorithm, lt.workspace.data(),
                     bytes, stream),
           "cublasLtMatmul");
}

#else

struct NativeNvfp4::State {};
NativeNvfp4::NativeNvfp4() { require_device("a product on tensor cores for FP4"); }
NativeNvfp4::~NativeNvfp4() = default;
void NativeNvfp4::matmul(const NativeNvfp4Matmul& call, Stream) { check_native_nvfp4(call); }

#endif

}  // namespace halfbyte::cuda
