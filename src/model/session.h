// A model at work on one text after another, on whichever device it lies: what evaluation and generation need of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/thread_pool.h"
#include "model/config.h"
#include "model/model.h"
#include "ops/row_math/op.h"

namespace halfbyte {

// Holds the keys and values of one text, and beside them what was computed last. Not for several threads.
class Session {
 public:
  virtual ~Session() = default;

  virtual const ModelConfig& config() const = 0;
  // The next text begins.
  virtual void clear() = 0;
  // Reads these as the next tokens. Throws bad_input for an id outside the vocabulary and where no room is left.
  virtual void forward(std::span<const std::int32_t> ids) = 0;
  // Computes the logits of rows [first, first + rows) of the last forward(); they stay until the next call of either. Throws
  // bad_input where the model computes NaN or infinite values.
  virtual void make_logits(std::int64_t first, std::int64_t rows) = 0;
  // out: [rows, vocab] of the last make_logits().
  virtual void copy_logits(std::span<float> out) = 0;
  // The first of the largest of the first `vocab` logits of the first of those rows.
  virtual std::int32_t most_likely(std::int64_t vocab) = 0;
  // Scores those rows against the tokens that came, one a row, and the reference's logits of the same rows, if there is a
  // reference, which must lie on the same device.
  virtual void score(std::span<const std::int32_t> targets, const Session* reference,
                     std::span<TokenScore> scores) = 0;
};

// A model that lies somewhere, for the command line.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<std::string>& warnings() const = 0;  // sentences for the user
  virtual std::int64_t parameters() const = 0;                   // elements of all weights, a tied one once
  virtual ClippingCounts clipping() const = 0;                   // since the model was loaded
  // Room for texts of `capacity` tokens. The engine must outlive the session.
  virtual std::unique_ptr<Session> session(std::int64_t capacity) = 0;
};

// On the CPU. The model and the pool must outlive what is returned.
std::unique_ptr<Session> cpu_session(Model& model, std::int64_t capacity, ThreadPool& pool);
std::unique_ptr<Engine> load_cpu_engine(const std::filesystem::path& dir, ThreadPool& pool);

}  // namespace halfbyte
