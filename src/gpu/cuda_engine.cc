// The CUDA engine: a model, its counters, and sessions over it.
#include "gpu/cuda_engine.h"

#include "gpu/cuda_session.h"

namespace halfbyte {

namespace {

class CudaEngine final : public Engine {
 public:
  CudaEngine(cuda::CudaModel model, const CudaOptions& options)
      : model_(std::move(model)), options_(options) {
    counts_.not_finite.fill(0);
    counts_.clipped.fill(0);
  }

  const ModelConfig& config() const override { return model_.config; }
  const std::vector<std::string>& warnings() const override { return model_.warnings; }
  std::int64_t parameters() const override { return model_.parameters; }
  ClippingCounts clipping() const override {
    return {.values = counts_.values, .clipped = static_cast<std::int64_t>(counts_.clipped.download()[0])};
  }
  std::unique_ptr<Session> session(std::int64_t capacity) override {
    return std::make_unique<cuda::CudaSession>(model_, options_, capacity, counts_);
  }

 private:
  cuda::CudaModel model_;
  CudaOptions options_;
  cuda::InputCounts counts_;
};

}  // namespace

std::unique_ptr<Engine> load_cuda_engine(const std::filesystem::path& dir, const CudaOptions& options,
                                         ThreadPool& pool) {
  cuda::require_device("the model");
  return std::make_unique<CudaEngine>(cuda::CudaModel::load(dir, options.arithmetic, pool), options);
}

}  // namespace halfbyte
