// The list of ops whose implementations can be chosen, and the choice.
#include "ops/registry.h"

#include <cstdlib>
#include <string>

#include "core/fail.h"
#include "device/cuda/device.h"
#include "ops/dequantize/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/matmul_nvfp4_native/cuda.h"
#include "ops/quantize/op.h"

namespace halfbyte {

namespace {

using ListKernels = std::span<const KernelRow> (*)();

constexpr ListKernels kOps[] = {
    quantize_kernels,
    dequantize_kernels,
    fake_quantize_kernels,
};

// Launched on device memory by whoever holds some, so never a choice for tensors in host memory. Compiled for sm_80, sm_90a,
// sm_100a and sm_120a; run on sm_90 only so far.
constexpr KernelRow kCudaRows[] = {
    {"quantize", "cuda", "cuda", cuda::available},
    {"dequantize", "cuda", "cuda", cuda::available},
    {"matmul_w4a16", "cuda", "cuda", cuda::available},
    {"matmul_nvfp4_native", "cublaslt", "cuda sm_100", cuda::has_fp4_tensor_cores},
    {"fused_activation", "cuda", "cuda", cuda::available},
};

bool is_named(const KernelRow& row, std::string_view name) {
  return name.size() == row.op.size() + 1 + row.name.size() && name.starts_with(row.op) &&
         name[row.op.size()] == '/' && name.ends_with(row.name);
}

void check_known(std::string_view name) {
  std::string known;
  for (const ListKernels list : kOps) {
    for (const KernelRow& row : list()) {
      if (is_named(row, name)) return;
      known += fmt::format("{}{}/{}", known.empty() ? "" : ", ", row.op, row.name);
    }
  }
  fail_input("HALFBYTE_FORCE names \"{}\", which is no implementation; known are {}", name, known);
}

}  // namespace

std::vector<KernelRow> all_kernels() {
  std::vector<KernelRow> rows;
  for (const ListKernels list : kOps)
    for (const KernelRow& row : list()) rows.push_back(row);
  for (const KernelRow& row : kCudaRows) rows.push_back(row);
  return rows;
}

std::size_t choose_kernel(std::span<const KernelRow> rows) {
  if (const char* variable = std::getenv("HALFBYTE_FORCE")) {
    std::string_view rest(variable);
    while (!rest.empty()) {
      const std::string_view name = rest.substr(0, rest.find(','));
      rest.remove_prefix(name.size() == rest.size() ? rest.size() : name.size() + 1);
      if (name.empty()) continue;
      check_known(name);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!is_named(rows[i], name)) continue;
        if (!rows[i].available())
          fail(ErrorKind::unsupported, "HALFBYTE_FORCE names {}, which does not run on this machine ({})",
               name, rows[i].device);
        return i;
      }
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].available()) return i;
  fail(ErrorKind::unsupported, "no implementation of {} runs on this machine",
       rows.empty() ? "this op" : rows[0].op);
}

}  // namespace halfbyte
