// Error feedback: the factor of the second moments, and rows rounded against it in chunks.
#include "quantize/gptq.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/fail.h"
#include "formats/packing.h"
#include "quantize/block_scale.h"
#include "quantize/scale_search.h"

namespace halfbyte {

namespace {

using Matrix = Eigen::Map<Eigen::MatrixXd, Eigen::Aligned64>;  // column-major
using ConstMatrix = Eigen::Map<const Eigen::MatrixXd, Eigen::Aligned64>;

// Eigen cuts products to fit the caches that it finds; with these sizes it cuts, and so sums, alike everywhere.
void fix_cache_sizes() {
  static const bool done = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
  (void)done;
}

// Replaces the lower triangle of a by its Cholesky factor, by panels from the left; what lies above the diagonal is lost.
// False where a is not positive definite.
bool factorise(Matrix a, ThreadPool& pool) {
  constexpr std::int64_t kPanel = 128;
  const std::int64_t size = a.rows();
  for (std::int64_t first = 0; first < size; first += kPanel) {
    const std::int64_t width = std::min(kPanel, size - first), next = first + width;
    Eigen::Ref<Eigen::MatrixXd> corner = a.block(first, first, width, width);
    if (Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>>(corner).info() != Eigen::Success) return false;
    const std::int64_t tiles = ceil_div(size - next, kPanel);
    const auto tile = [&](std::int64_t index) { return next + index * kPanel; };
    const auto extent = [&](std::int64_t index) { return std::min(kPanel, size - tile(index)); };
    pool.parallel_for(tiles, [&](std::int64_t i) {
      auto below = a.block(tile(i), first, extent(i), width);
      corner.triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(below);
    });
    pool.parallel_for(tiles * tiles, [&](std::int64_t pair) {
      const std::int64_t i = pair / tiles, j = pair % tiles;
      if (j > i) return;
      a.block(tile(i), tile(j), extent(i), extent(j)).noalias() -=
          a.block(tile(i), first, extent(i), width) * a.block(tile(j), first, extent(j), width).transpose();
    });
  }
  return true;
}

// What all rows of one weight share.
struct Shared {
  std::span<const float> w;  // [rows, width] natural order
  std::int64_t width;
  std::int64_t block, row_blocks;  // row_blocks: 0 where blocks run over row ends
  const BlockCodec& codec;
  std::span<const std::int32_t> columns;  // by slot
  ConstMatrix factor;
  std::span<const double> diagonal;
  QuantizedTensor& out;
  std::span<const float> damped;  // [width, width] natural order; empty where scales stay
};

// Whether a format's scales can take any positive value: then they can move to where the error is least.
bool scales_move(const QuantSpec& spec, std::int64_t width, std::int64_t block) {
  const ScaleKind kind = format_info(spec.format).scale;
  return (kind == ScaleKind::absmax_f32 || kind == ScaleKind::f32) && !spec.double_quant &&
         width % block == 0;
}

// Rows of a chunk as one pass left them.
struct Rounded {
  std::vector<std::uint8_t> codes;  // [rows, width]
  std::vector<float> scales;        // [rows, blocks]
  std::vector<double> errors;       // [rows] of the output, without what no scale changes
};

// Rows that are rounded together.
class Chunk {
 public:
  Chunk(const Shared& shared, std::int64_t first_row, std::int64_t rows)
      : s_(shared),
        first_row_(first_row),
        rows_(rows),
        weights_(rows * s_.width),
        errors_(rows * s_.width),
        wanted_(weights_.data(), rows, s_.width),
        error_(errors_.data(), rows, s_.width),
        codes_(static_cast<std::size_t>(rows * s_.width)) {
    start();
  }

  // As if nothing were rounded.
  void start() {
    for (std::int64_t slot = 0; slot < s_.width; ++slot)
      for (std::int64_t row = 0; row < rows_; ++row) wanted_(row, slot) = weight(row, slot);
  }

  // Rounds slots [first, last), all slots from `last` on being rounded, under the scales that are stored.
  void round_fixed(std::int64_t first, std::int64_t last) {
    add_errors(first, last);
    for (std::int64_t slot = last - 1; slot >= first; --slot) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        const BlockScale scale = scale_of(row, column(slot));
        keep(row, slot, s_.codec.encode(static_cast<float>(wanted_(row, slot)), scale), scale);
      }
      wanted_.middleCols(first, slot - first).noalias() +=
          error_.col(slot) * s_.factor.row(slot).segment(first, slot - first);
    }
  }

  // The same for one block along every row, with the scale that leaves the least error.
  void round_searched(std::int64_t first, std::int64_t last) {
    add_errors(first, last);
    const std::int64_t block = column(last - 1) / s_.block;
    const Eigen::MatrixXd corner = s_.factor.block(first, first, last - first, last - first).transpose();
    Trial best, trial;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const ScaleCandidates candidates = s_.codec.candidates(absmax(corner, row, first), true);
      best.error = std::numeric_limits<double>::infinity();
      best.scale = nullptr;
      for (const BlockScale& scale : candidates.span()) {
        trial.scale = &scale;
        run(trial, corner, row, first, best.error);
        if (!best.scale || trial.error < best.error) std::swap(best, trial);
      }
      store_scale(s_.out, (first_row_ + row) * s_.row_blocks + block, *best.scale);
      for (std::int64_t slot = first; slot < last; ++slot)
        keep(row, slot, best.codes[static_cast<std::size_t>(slot - first)], *best.scale);
    }
  }

  // Moves the scales of all rows, every slot being rounded, to where the error is least under these codes: with L_b the levels of
  // block b and H the damped moments, a solves sum over c of (L_b H L_c) a_c = L_b H w. Rows stay where that has no positive
  // solution.
  Rounded move_scales() {
    const std::int64_t blocks = s_.width / s_.block;
    Array<double> level_values(rows_ * s_.width), weight_values(rows_ * s_.width);
    Matrix levels(level_values.data(), rows_, s_.width), weights(weight_values.data(), rows_, s_.width);
    for (std::int64_t column = 0; column < s_.width; ++column)
      for (std::int64_t row = 0; row < rows_; ++row) {
        const auto at = static_cast<std::size_t>(row * s_.width + column);
        levels(row, column) = static_cast<double>(s_.codec.decode(codes_[at], {.value = 1.0f}));
        weights(row, column) =
            static_cast<double>(s_.w[static_cast<std::size_t>(first_row_ * s_.width) + at]);
      }
    const auto size = static_cast<std::size_t>(rows_);
    std::vector<Eigen::MatrixXd> products(size, Eigen::MatrixXd(blocks, blocks));
    std::vector<Eigen::VectorXd> wanted(size, Eigen::VectorXd(blocks));
    const Eigen::Map<const Eigen::MatrixXf> moments(s_.damped.data(), s_.width, s_.width);  // symmetric
    Eigen::MatrixXd moved;  // [rows, width] L_b H
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Eigen::MatrixXd part = moments.middleRows(b * s_.block, s_.block).cast<double>();
      moved.noalias() = levels.middleCols(b * s_.block, s_.block) * part;
      for (std::int64_t row = 0; row < rows_; ++row) {
        const auto r = static_cast<std::size_t>(row);
        wanted[r](b) = moved.row(row).dot(weights.row(row));
        for (std::int64_t c = 0; c < blocks; ++c)
          products[r](b, c) = moved.row(row)
                                  .segment(c * s_.block, s_.block)
                                  .dot(levels.row(row).segment(c * s_.block, s_.block));
      }
    }
    Rounded rounded{.codes = codes_, .scales = {}, .errors = {}};
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::int64_t first = (first_row_ + row) * blocks;
      Eigen::VectorXd old(blocks);
      for (std::int64_t b = 0; b < blocks; ++b) old(b) = static_cast<double>(s_.out.scales[first + b]);
      const auto error = [&](const Eigen::VectorXd& a) {
        return a.dot(products[r] * a) - 2.0 * a.dot(wanted[r]);
      };
      const double before = error(old);
      Eigen::VectorXd best = least_squares(products[r], wanted[r], old).cast<float>().cast<double>();
      const double after = error(best);
      const bool better = after < before && (best.array() > 0.0).all();
      if (better)
        for (std::int64_t b = 0; b < blocks; ++b) s_.out.scales[first + b] = static_cast<float>(best(b));
      rounded.errors.push_back(better ? after : before);
      rounded.scales.insert(rounded.scales.end(), s_.out.scales.data() + first,
                            s_.out.scales.data() + first + blocks);
    }
    return rounded;
  }

  // Takes the rows of `other` that have less error into `best`.
  void keep_better(Rounded& best, const Rounded& other) const {
    const auto width = static_cast<std::size_t>(s_.width), blocks = best.scales.size() / best.errors.size();
    for (std::size_t row = 0; row < best.errors.size(); ++row) {
      if (!(other.errors[row] < best.errors[row])) continue;
      best.errors[row] = other.errors[row];
      std::copy_n(other.codes.data() + row * width, width, best.codes.data() + row * width);
      std::copy_n(other.scales.data() + row * blocks, blocks, best.scales.data() + row * blocks);
    }
  }

  void take(const Rounded& best) {
    codes_ = best.codes;
    std::ranges::copy(best.scales, s_.out.scales.data() + first_row_ * (s_.width / s_.block));
  }

  void pack() const {
    const Format format = s_.codec.spec().format;
    const std::span<const std::uint8_t> codes(codes_);
    if (!s_.row_blocks) return pack_codes(format, codes, s_.out.codes.data() + first_row_ * s_.width / 2);
    const std::int64_t row_bytes = format_info(format).bits == 8 ? s_.width : packed_bytes(s_.width);
    for (std::int64_t row = 0; row < rows_; ++row)
      pack_codes(format,
                 codes.subspan(static_cast<std::size_t>(row * s_.width), static_cast<std::size_t>(s_.width)),
                 s_.out.codes.data() + (first_row_ + row) * row_bytes);
  }

 private:
  // A block of one row rounded under one scale.
  struct Trial {
    const BlockScale* scale = nullptr;
    double error = 0;
    std::array<std::uint8_t, 128> codes{};  // as far as the error stayed below the limit
  };

  // Blocks without a level but zero keep their scale.
  static Eigen::VectorXd least_squares(Eigen::MatrixXd products, Eigen::VectorXd wanted,
                                       const Eigen::VectorXd& old) {
    for (std::int64_t b = 0; b < old.size(); ++b)
      if (!(products(b, b) > 0.0)) {
        products(b, b) = 1.0;
        wanted(b) = old(b);
      }
    const Eigen::LLT<Eigen::MatrixXd> factor(products);
    if (factor.info() != Eigen::Success) return old;
    return factor.solve(wanted);
  }

  std::int64_t column(std::int64_t slot) const { return s_.columns[static_cast<std::size_t>(slot)]; }
  double weight(std::int64_t row, std::int64_t slot) const {
    return static_cast<double>(s_.w[static_cast<std::size_t>((first_row_ + row) * s_.width + column(slot))]);
  }

  BlockScale scale_of(std::int64_t row, std::int64_t column) const {
    if (s_.row_blocks)
      return stored_scale(s_.out, (first_row_ + row) * s_.row_blocks + column / s_.block, true);
    const std::int64_t block = ((first_row_ + row) * s_.width + column) / s_.block;
    return stored_scale(s_.out, block, (block + 1) * s_.block <= static_cast<std::int64_t>(s_.w.size()));
  }

  void keep(std::int64_t row, std::int64_t slot, std::uint8_t code, const BlockScale& scale) {
    codes_[static_cast<std::size_t>(row * s_.width + column(slot))] = code;
    error_(row, slot) = weight(row, slot) - static_cast<double>(s_.codec.decode(code, scale));
  }

  // Adds to the weights of slots [first, last) what all slots rounded so far ask of them.
  void add_errors(std::int64_t first, std::int64_t last) {
    const std::int64_t done = s_.width - last;
    if (done)
      wanted_.middleCols(first, last - first).noalias() +=
          error_.rightCols(done) * s_.factor.block(last, first, done, last - first);
  }

  // Largest magnitude of a block that begins at slot `first`, each of its weights changed as those before ask it to, themselves
  // not yet rounded. corner(left, slot) is the block's part of the factor.
  float absmax(const Eigen::MatrixXd& corner, std::int64_t row, std::int64_t first) const {
    std::array<double, 128> wanted;
    double largest = 0;
    for (std::int64_t i = 0; i < corner.rows(); ++i)
      wanted[static_cast<std::size_t>(i)] = wanted_(row, first + i);
    for (std::int64_t i = corner.rows() - 1; i >= 0; --i) {
      const double w = wanted[static_cast<std::size_t>(i)];
      largest = std::max(largest, std::abs(w));
      const double change = weight(row, first + i) - w;
      for (std::int64_t left = 0; left < i; ++left)
        wanted[static_cast<std::size_t>(left)] += change * corner(left, i);
    }
    return static_cast<float>(std::min(largest, static_cast<double>(std::numeric_limits<float>::max())));
  }

  // Rounds such a block under the trial's scale. Stops where the error reaches the limit, which it is then not below.
  void run(Trial& trial, const Eigen::MatrixXd& corner, std::int64_t row, std::int64_t first,
           double limit) const {
    std::array<double, 128> wanted;
    for (std::int64_t i = 0; i < corner.rows(); ++i)
      wanted[static_cast<std::size_t>(i)] = wanted_(row, first + i);
    trial.error = 0;
    for (std::int64_t i = corner.rows() - 1; i >= 0; --i) {
      const double w = wanted[static_cast<std::size_t>(i)];
      const std::uint8_t code = s_.codec.encode(static_cast<float>(w), *trial.scale);
      const double value = static_cast<double>(s_.codec.decode(code, *trial.scale));
      const double weighted = (w - value) * s_.diagonal[static_cast<std::size_t>(first + i)];
      trial.codes[static_cast<std::size_t>(i)] = code;
      trial.error += weighted * weighted;
      if (trial.error >= limit) return;
      const double error = weight(row, first + i) - value;
      for (std::int64_t left = 0; left < i; ++left)
        wanted[static_cast<std::size_t>(left)] += error * corner(left, i);
    }
  }

  const Shared& s_;
  std::int64_t first_row_, rows_;
  Array<double> weights_, errors_;
  Matrix wanted_;  // [rows, width] by slot: the weight and what it takes up from the slots rounded before
  Matrix error_;   // [rows, width] by slot: weight - value, of the slots rounded so far
  std::vector<std::uint8_t> codes_;  // [rows, width] natural order
};

}  // namespace

ErrorFeedback::ErrorFeedback(std::span<const float> second_moment, std::int64_t main, std::int64_t residual,
                             const GptqOptions& options, ThreadPool& pool)
    : main_(main), width_(main + residual), damping_(options.damping), passes_(options.passes) {
  fix_cache_sizes();
  if (main < 0 || residual < 0 ||
      checked_mul(width_, width_) != static_cast<std::int64_t>(second_moment.size()))
    fail_input("{}: {} second moments for {} channels and {} residual ones", options.name,
               second_moment.size(), main, residual);
  if (!(options.damping >= 0.0 && options.damping <= 1e6))
    fail_input("{}: a damping of {}, expected a number from 0 on, like 0.01", options.name, options.damping);
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t j = 0; j < width; ++j)
    for (std::size_t k = j; k < width; ++k)
      if (const float moment = second_moment[j * width + k]; !is_finite(moment) || (j == k && moment < 0.0f))
        fail_input("{}: the second moment of channels {} and {} is {}, expected a finite number{}",
                   options.name, j, k, moment, j == k ? " that is not negative" : "");

  moments_.resize(width);
  for (std::size_t k = 0; k < width; ++k) moments_[k] = second_moment[k * width + k];
  columns_.resize(width);
  std::iota(columns_.begin(), columns_.end(), 0);
  std::stable_sort(columns_.begin(), columns_.begin() + main_, [&](std::int32_t a, std::int32_t b) {
    return moments_[static_cast<std::size_t>(a)] > moments_[static_cast<std::size_t>(b)];
  });
  std::reverse(columns_.begin(), columns_.end());

  for (std::int64_t k = 0; k < width_; ++k) {
    const double moment = static_cast<double>(moments_[static_cast<std::size_t>(k)]);
    largest_ = std::max(largest_, moment);
    if (k < main_) mean_ += moment / static_cast<double>(main_);
  }
  factor_ = Array<double>(width_ * width_);
  const Matrix factor(factor_.data(), width_, width_);
  for (int raised = 0;; ++raised) {
    fill(second_moment, options.kind, pool);
    if (factorise(factor, pool)) break;
    if (raised == 3)
      fail_input(
          "{}: the second moments are not positive definite, not even with a damping of {}; were they "
          "gathered on the "
          "same input, and on more tokens than it has channels?",
          options.name, damping_);
    damping_ *= 10.0;
  }
  if (passes_ > 1) {
    damped_ = Array<float>(width_ * width_);
    pool.parallel_for(width_, [&](std::int64_t j) {
      for (std::int64_t k = 0; k < width_; ++k)
        damped_[j * width_ + k] =
            second_moment[static_cast<std::size_t>(std::min(j, k) * width_ + std::max(j, k))];
      damped_[j * width_ + j] =
          static_cast<float>(damped(static_cast<double>(damped_[j * width_ + j]), options.kind));
    });
  }
  diagonal_.resize(width);
  pool.parallel_for(width_, [&](std::int64_t slot) {
    double* const column = factor_.data() + slot * width_;
    const double largest = column[slot];
    diagonal_[static_cast<std::size_t>(slot)] = largest;
    for (std::int64_t i = slot + 1; i < width_; ++i) column[i] /= largest;
  });
}

// A second moment with its damping.
double ErrorFeedback::damped(double moment, DampingKind kind) const {
  const double sum = moment + damping_ * (kind == DampingKind::mean ? mean_ : moment) + 1e-12 * largest_;
  return sum == 0.0 ? 1.0 : sum;
}

void ErrorFeedback::fill(std::span<const float> second_moment, DampingKind kind, ThreadPool& pool) {
  pool.parallel_for(width_, [&](std::int64_t slot) {
    const std::int64_t k = columns_[static_cast<std::size_t>(slot)];
    double* const column = factor_.data() + slot * width_;
    for (std::int64_t i = slot; i < width_; ++i) {
      const std::int64_t j = columns_[static_cast<std::size_t>(i)];
      column[i] = static_cast<double>(
          second_moment[static_cast<std::size_t>(std::min(j, k) * width_ + std::max(j, k))]);
    }
    column[slot] = damped(column[slot], kind);
  });
}

QuantizedTensor ErrorFeedback::quantize(std::span<const float> w, const QuantSpec& spec,
                                        std::optional<float> global_scale, ThreadPool& pool,
                                        std::string_view name) const {
  constexpr std::int64_t kRows = 32;  // of a chunk; even, so that chunks of flat 4-bit codes end with a byte
  constexpr std::int64_t kColumns = 64;  // rounded between two products with all errors so far
  const std::int64_t rows = width_ ? static_cast<std::int64_t>(w.size()) / width_ : 0;
  QuantizedTensor out =
      choose_scales(w, {rows, width_},
                    {.spec = spec, .importance = moments_, .global_scale = global_scale, .name = name}, pool);
  const BlockAxis axis = format_info(spec.format).axis;
  const BlockCodec codec(out);
  const std::int64_t block = std::max<std::int64_t>(1, effective_block(spec, width_));
  const Shared shared{.w = w,
                      .width = width_,
                      .block = block,
                      .row_blocks = axis == BlockAxis::flat ? 0 : ceil_div(width_, block),
                      .codec = codec,
                      .columns = columns_,
                      .factor = ConstMatrix(factor_.data(), width_, width_),
                      .diagonal = diagonal_,
                      .out = out,
                      .damped = damped_.span()};
  // Columns whose scales are fixed: the main ones and what shares their blocks.
  const std::int64_t fixed = axis == BlockAxis::row ? std::min(width_, round_up(main_, block)) : width_;
  const auto round = [&](Chunk& chunk) {
    std::int64_t last = width_;
    while (last > width_ - fixed) {
      const std::int64_t first = std::max(last - kColumns, width_ - fixed);
      chunk.round_fixed(first, last);
      last = first;
    }
    while (last > 0) {
      const std::int64_t first = std::max<std::int64_t>(last - block, 0);
      chunk.round_searched(first, last);
      last = first;
    }
  };
  const bool moves = passes_ > 1 && scales_move(spec, width_, block);
  pool.parallel_for(ceil_div(rows, kRows), [&](std::int64_t item) {
    Chunk chunk(shared, item * kRows, std::min(kRows, rows - item * kRows));
    round(chunk);
    if (moves) {
      Rounded best = chunk.move_scales();
      for (int pass = 1; pass < passes_; ++pass) {
        chunk.start();
        round(chunk);
        chunk.keep_better(best, chunk.move_scales());
      }
      chunk.take(best);
    }
    chunk.pack();
  });
  return out;
}

}  // namespace halfbyte
