// Sessions and engines on the CPU.
#include "model/session.h"

#include <algorithm>

#include "core/fail.h"

namespace halfbyte {

namespace {

class CpuSession final : public Session {
 public:
  CpuSession(Model& model, std::int64_t capacity, ThreadPool& pool)
      : model_(model), cache_(model.config(), capacity), pool_(pool) {}

  const ModelConfig& config() const override { return model_.config(); }
  void clear() override { cache_.clear(); }

  void forward(std::span<const std::int32_t> ids) override {
    const auto rows = static_cast<std::int64_t>(ids.size());
    grow(hidden_, rows * config().hidden);
    model_.forward(ids, cache_, hidden_.data(), pool_);
  }

  void make_logits(std::int64_t first, std::int64_t rows) override {
    rows_ = rows;
    grow(logits_, rows * config().vocab);
    model_.logits(hidden_.data() + first * config().hidden, rows, logits_.data(), pool_);
  }

  void copy_logits(std::span<float> out) override { std::copy_n(logits_.data(), out.size(), out.begin()); }

  std::int32_t most_likely(std::int64_t vocab) override {
    return static_cast<std::int32_t>(row_argmax(logits_.data(), vocab));
  }

  void score(std::span<const std::int32_t> targets, const Session* reference,
             std::span<TokenScore> scores) override {
    const std::int64_t vocab = config().vocab;
    const auto* other = dynamic_cast<const CpuSession*>(reference);
    if (reference && !other) fail_input("the reference model lies on another device than the model");
    pool_.parallel_for(rows_, [&](std::int64_t r) {
      const auto row = static_cast<std::size_t>(r);
      scores[row] = score_token(logits_.data() + r * vocab,
                                other ? other->logits_.data() + r * vocab : nullptr, targets[row], vocab);
    });
  }

 private:
  static void grow(Array<float>& array, std::int64_t size) {
    if (array.size() < size) array = Array<float>(size);
  }

  Model& model_;
  KvCache cache_;
  ThreadPool& pool_;
  Array<float> hidden_, logits_;
  std::int64_t rows_ = 0;  // of logits_
};

class CpuEngine final : public Engine {
 public:
  CpuEngine(const std::filesystem::path& dir, ThreadPool& pool)
      : model_(Model::load(dir, pool)), pool_(pool) {}

  const ModelConfig& config() const override { return model_.config(); }
  const std::vector<std::string>& warnings() const override { return model_.warnings(); }
  std::int64_t parameters() const override { return model_.parameters(); }
  ClippingCounts clipping() const override { return model_.clipping(); }
  std::unique_ptr<Session> session(std::int64_t capacity) override {
    return cpu_session(model_, capacity, pool_);
  }

 private:
  Model model_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Session> cpu_session(Model& model, std::int64_t capacity, ThreadPool& pool) {
  return std::make_unique<CpuSession>(model, capacity, pool);
}

std::unique_ptr<Engine> load_cpu_engine(const std::filesystem::path& dir, ThreadPool& pool) {
  return std::make_unique<CpuEngine>(dir, pool);
}

}  // namespace halfbyte
