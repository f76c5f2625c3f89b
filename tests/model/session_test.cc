// Sessions on the CPU: rows of logits, the most likely token, scores, another text after clear().
#include "model/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "core/fail.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";
const std::vector<std::int32_t> kIds{3, 41, 59, 2, 65, 35, 8, 9, 79, 32};

class SessionTest : public testing::Test {
 protected:
  SessionTest() : pool_(2), engine_(load_cpu_engine(kModel, pool_)), vocab_(engine_->config().vocab) {
    Model model = Model::load(kModel, pool_);
    const auto rows = static_cast<std::int64_t>(kIds.size());
    KvCache cache(model.config(), rows);
    Array<float> hidden(rows * model.config().hidden);
    expected_.resize(static_cast<std::size_t>(rows * vocab_));
    model.forward(kIds, cache, hidden.data(), pool_);
    model.logits(hidden.data(), rows, expected_.data(), pool_);
  }

  std::vector<float> logits(Session& session, std::int64_t first, std::int64_t rows) {
    std::vector<float> found(static_cast<std::size_t>(rows * vocab_));
    session.make_logits(first, rows);
    session.copy_logits(found);
    return found;
  }
  void expect_row(const std::vector<float>& found, std::int64_t row) {
    for (std::int64_t i = 0; i < vocab_; ++i)
      ASSERT_NEAR(found[static_cast<std::size_t>(i)], expected_[static_cast<std::size_t>(row * vocab_ + i)],
                  1e-4f)
          << i;
  }

  ThreadPool pool_;
  std::unique_ptr<Engine> engine_;
  std::int64_t vocab_;
  std::vector<float> expected_;
};

TEST_F(SessionTest, GivesTheLogitsOfAnyRowAndOfTokensFedOneByOne) {
  const auto session = engine_->session(static_cast<std::int64_t>(kIds.size()));
  for (int text = 0; text < 2; ++text) {
    session->clear();
    session->forward(kIds);
    expect_row(logits(*session, 4, 1), 4);
    expect_row(logits(*session, 9, 1), 9);
    session->clear();
    for (std::size_t i = 0; i < kIds.size(); ++i) {
      session->forward({&kIds[i], 1});
      expect_row(logits(*session, 0, 1), static_cast<std::int64_t>(i));
    }
  }
  EXPECT_THROW(session->forward(kIds), Error);  // no room left
}

TEST_F(SessionTest, FindsTheMostLikelyOfTheFirstTokens) {
  const auto session = engine_->session(16);
  session->forward(kIds);
  for (const std::int64_t vocab : {vocab_, vocab_ / 2, std::int64_t{1}}) {
    session->make_logits(9, 1);
    const auto row = expected_.end() - vocab_;
    EXPECT_EQ(session->most_likely(vocab), std::max_element(row, row + vocab) - row);
  }
}

TEST_F(SessionTest, ScoresAgainstTargetsAndAReference) {
  const auto session = engine_->session(16), other = engine_->session(16);
  std::vector<std::int32_t> others(kIds.rbegin(), kIds.rend());
  session->forward(kIds);
  session->make_logits(0, 9);
  other->forward(others);
  other->make_logits(0, 9);
  const std::vector<std::int32_t> targets(kIds.begin() + 1, kIds.end());
  std::vector<TokenScore> scores(9);
  session->score(targets, other.get(), scores);
  std::vector<float> reference(static_cast<std::size_t>(9 * vocab_));
  other->copy_logits(reference);
  const auto log_p = [&](const float* row, std::int64_t token) {
    double sum = 0;
    for (std::int64_t i = 0; i < vocab_; ++i) sum += std::exp(static_cast<double>(row[i]));
    return static_cast<double>(row[token]) - std::log(sum);
  };
  for (std::size_t r = 0; r < 9; ++r) {
    const float *q = &expected_[r * static_cast<std::size_t>(vocab_)],
                *p = &reference[r * static_cast<std::size_t>(vocab_)];
    EXPECT_NEAR(scores[r].nll, -log_p(q, targets[r]), 1e-4);
    double kl = 0;
    for (std::int64_t i = 0; i < vocab_; ++i) kl += std::exp(log_p(p, i)) * (log_p(p, i) - log_p(q, i));
    EXPECT_NEAR(scores[r].kl, kl, 1e-3 * kl + 1e-5);
    EXPECT_EQ(scores[r].agreed,
              std::max_element(q, q + vocab_) - q == std::max_element(p, p + vocab_) - p ? 1 : 0);
  }
  session->score(targets, session.get(), scores);
  for (const TokenScore& score : scores) {
    EXPECT_NEAR(score.kl, 0, 1e-6);
    EXPECT_EQ(score.agreed, 1);
  }
}

}  // namespace
}  // namespace halfbyte
