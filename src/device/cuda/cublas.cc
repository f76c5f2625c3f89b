// cuBLAS by its C interface, declared here as far as it is used (CUDA 12 and 13 agree on all of it).
#include "device/cuda/cublas.h"

#include <climits>

#include "core/fail.h"
#include "device/cuda/library.h"
#include "device/cuda/memory.h"

namespace halfbyte::cuda {

namespace {

constexpr const char* kNames[] = {"libcublas.so.13", "libcublas.so.12"};
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;  // what NVIDIA recommends for Hopper

// cublasOperation_t, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t
constexpr int kAsIs = 0, kTransposed = 1, kCompute32F = 68, kDefaultAlgorithm = -1, kDefaultMath = 0,
              kNoReducedPrecisionSums = 16;

using Handle = void*;

int cuda_type(DType dtype) {  // cudaDataType_t
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 2;
    case DType::bf16:
      return 14;
    default:
      fail_input("a product by cuBLAS takes BF16, F16 and F32, not {}", dtype_name(dtype));
  }
}

int checked_int(std::int64_t size) {
  if (size < 1 || size > INT_MAX)
    fail_input("a product by cuBLAS with a side of {}, expected 1 to {}", size, INT_MAX);
  return static_cast<int>(size);
}

}  // namespace

struct Cublas::State {
  Library library{"a product of unquantized matrices on CUDA", kNames};
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*get_version)(Handle, int*);
  int (*set_stream)(Handle, cudaStream_t);
  int (*set_workspace)(Handle, void*, std::size_t);
  int (*set_math_mode)(Handle, int);
  const char* (*status_string)(int);
  int (*gemm)(Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,  //
              const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
              void* c, int c_type, int ldc, int compute_type, int algorithm);
  Handle handle = nullptr;
  Buffer<std::uint8_t> workspace{kWorkspaceBytes};

  void check(int status, const char* what) const {
    if (status) fail(ErrorKind::device, "{}: {}: {}", library.name(), what, status_string(status));
  }
};

Cublas::Cublas(CublasSums sums) {
  require_device("a product of unquantized matrices");
  state_ = std::make_unique<State>();
  State& state = *state_;
  state.library.find("cublasCreate_v2", &state.create);
  state.library.find("cublasDestroy_v2", &state.destroy);
  state.library.find("cublasGetVersion_v2", &state.get_version);
  state.library.find("cublasSetStream_v2", &state.set_stream);
  state.library.find("cublasSetWorkspace_v2", &state.set_workspace);
  state.library.find("cublasSetMathMode", &state.set_math_mode);
  state.library.find("cublasGetStatusString", &state.status_string);
  state.library.find("cublasGemmEx", &state.gemm);
  state.check(state.create(&state.handle), "creating a handle");
  state.check(
      state.set_math_mode(state.handle, sums == CublasSums::any ? kDefaultMath : kNoReducedPrecisionSums),
      "setting the mode");
}

Cublas::~Cublas() {
  if (state_->handle) state_->destroy(state_->handle);
}

bool Cublas::found() {
  static const bool answer = [] {
    try {
      Library("", kNames);
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return answer;
}

int Cublas::version() const {
  int version = 0;
  state_->check(state_->get_version(state_->handle, &version), "asking for the version");
  return version;
}

void Cublas::matmul(const CublasMatmul& call, Stream stream) {
  if (call.out_dtype != call.dtype && call.out_dtype != DType::f32)
    fail_input("a product of {0} by cuBLAS gives {0} or F32, not {1}", dtype_name(call.dtype),
               dtype_name(call.out_dtype));
  State& state = *state_;
  const int in = cuda_type(call.dtype), out = cuda_type(call.out_dtype);
  const int m = checked_int(call.m), n = checked_int(call.rows), k = checked_int(call.columns);
  // Setting the stream puts the library's own workspace back, which a graph could not keep.
  state.check(state.set_stream(state.handle, stream), "setting the stream");
  state.check(state.set_workspace(state.handle, state.workspace.data(), state.workspace.bytes()),
              "setting the workspace");
  // cuBLAS counts column after column: to it W is [K, N], A [K, M] and out [N, M].
  const float one = 1.0f, zero = 0.0f;
  state.check(state.gemm(state.handle, kTransposed, kAsIs, n, m, k, &one, call.weights, in, k,
                         call.activations, in, k, &zero, call.out, out, n, kCompute32F, kDefaultAlgorithm),
              "cublasGemmEx");
}

}  // namespace halfbyte::cuda
