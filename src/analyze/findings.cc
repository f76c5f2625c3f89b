#include "analyze/findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "quantize/arc.h"

namespace halfbyte {

namespace {

constexpr double kDriftLimit = 1.25;  // of largest magnitudes, from which the texts count as unlike
constexpr double kOutstanding = 2;    // times the median error, from which a linear is named
constexpr std::size_t kMostNamed = 5;

using Findings = std::vector<std::string>;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string place(std::int64_t layer, const std::string& name) {
  const std::string part = name.substr(name.rfind('.') + 1);
  return layer < 0 ? part : fmt::format("layer {} {}", layer, part);
}

double share_of(const InputAnalysis& input) {
  return static_cast<double>(input.residual) / static_cast<double>(input.channels);
}

const InputAnalysis* input_of(const Analysis& analysis, const LinearAnalysis& linear) {
  const auto found = std::ranges::find(analysis.inputs, linear.input, &InputAnalysis::name);
  return found == analysis.inputs.end() ? nullptr : &*found;
}

// A method's errors over all linears, with activations (both) or without.
std::vector<double> errors_of(const Analysis& analysis, const std::string& method,
                              double OutputError::*member) {
  std::vector<double> errors;
  for (const LinearAnalysis& linear : analysis.linears)
    if (const auto error = linear.methods.find(method); error != linear.methods.end())
      errors.push_back(error->second.*member);
  return errors;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

void find_drift(const Analysis& analysis, Findings& findings) {
  std::int64_t unlike = 0, above = 0, channels = 0;
  const InputAnalysis* worst = nullptr;
  for (const InputAnalysis& input : analysis.inputs) {
    unlike += input.drift.absmax_ratio > kDriftLimit;
    above += input.drift.channels_above;
    channels += input.channels;
    if (!worst || input.drift.absmax_ratio > worst->drift.absmax_ratio) worst = &input;
  }
  if (!worst) return;
  const double share = 100 * static_cast<double>(above) / static_cast<double>(channels);
  if (unlike)
    findings.push_back(fmt::format(
        "calibration and this text differ: {} of {} inputs are more than {}x as large as calibrated, most of "
        "all {} ({:.2f}x), and {:.1f} % of channels exceed their calibrated maximum: calibrate on text like "
        "this one too",
        unlike, analysis.inputs.size(), kDriftLimit, place(worst->layer, worst->name),
        worst->drift.absmax_ratio, share));
  else
    findings.push_back(fmt::format(
        "calibration fits this text: no input is more than {}x as large as calibrated (most: {}, {:.2f}x); "
        "{:.1f} % of channels exceed their calibrated maximum",
        kDriftLimit, place(worst->layer, worst->name), worst->drift.absmax_ratio, share));
}

void find_residuals(const Analysis& analysis, Findings& findings) {
  if (std::ranges::find(analysis.methods, "arc") == analysis.methods.end()) return;
  std::int64_t capped = 0, outside = 0;
  double least = 1, most = 0, sum = 0;
  for (const InputAnalysis& input : analysis.inputs) {
    const double share = share_of(input);
    capped += input.capped;
    outside += share < kLeastResidualShare || share > kMostResidualShare;
    least = std::min(least, share);
    most = std::max(most, share);
    sum += share;
  }
  const std::size_t count = analysis.inputs.size();
  if (!count) return;
  std::string text = fmt::format(
      "residual channels by {}: {:.1f} % of an input's channels on average, from {:.1f} to {:.1f} %",
      analysis.residual_rule, 100 * sum / static_cast<double>(count), 100 * least, 100 * most);
  if (outside) text += fmt::format("; {} of {} inputs are outside the advised 0.5 to 5 %", outside, count);
  // Rules that ask for a number say nothing of the magnitudes.
  const bool by_magnitude =
      analysis.residual_rule.starts_with("tau") || analysis.residual_rule.starts_with("energy");
  if (capped)
    text += fmt::format("; the cap cut {}{}", capped,
                        by_magnitude ? ": magnitudes there are spread, not in a few channels" : "");
  findings.push_back(std::move(text));
}

void find_clipping(const Analysis& analysis, Findings& findings) {
  if (analysis.inputs.empty()) return;
  std::int64_t clipped = 0, inputs = 0;
  double largest = 0;
  for (const InputAnalysis& input : analysis.inputs) {
    if (!input.clipped) return;
    clipped += *input.clipped;
    inputs += *input.clipped > 0;
    largest = std::max(largest, input.clipped_largest);
  }
  if (clipped)
    findings.push_back(fmt::format(
        "under static scales from calibration {} values of {} inputs would saturate, the largest at {:.2f}x "
        "the range: prefer dynamic scales, or calibrate on more text",
        clipped, inputs, largest));
  else
    findings.push_back(fmt::format(
        "under static scales from calibration no value would saturate (the largest reaches {:.0f} % of its "
        "range)",
        100 * largest));
}

void find_bound(const Analysis& analysis, Findings& findings) {
  BoundCheck all;
  for (const InputAnalysis& input : analysis.inputs) {
    if (!input.bound) continue;
    const auto n = static_cast<double>(input.bound->values);
    all.values += input.bound->values;
    all.guaranteed += input.bound->guaranteed;
    all.violations += input.bound->violations;
    all.largest_share = std::max(all.largest_share, input.bound->largest_share);
    all.mean_square += n * input.bound->mean_square;
    all.mxfp8_mean_square += n * input.bound->mxfp8_mean_square;
    all.mxfp8_largest_share = std::max(all.mxfp8_largest_share, input.bound->mxfp8_largest_share);
  }
  if (!all.values) return;
  std::string text =
      all.violations
          ? fmt::format("the error bound of residual channels is broken by {} of {} values: report this",
                        all.violations, all.guaranteed)
          : fmt::format(
                "the error bound of residual channels, alpha1 alpha2 M eps8, holds on all {} compensated "
                "values with normal scales (of {}); the largest error is {:.0f} % of it, MXFP8's {:.0f} % "
                "of 2 M eps8",
                all.guaranteed, all.values, 100 * all.largest_share, 100 * all.mxfp8_largest_share);
  if (all.mxfp8_mean_square > 0)
    text += fmt::format("; their root mean square error is {:.2f}x that of MXFP8",
                        std::sqrt(all.mean_square / all.mxfp8_mean_square));
  findings.push_back(std::move(text));
}

void find_methods(const Analysis& analysis, Findings& findings) {
  const double rtn = mean(errors_of(analysis, "rtn", &OutputError::both));
  if (!(rtn > 0)) return;
  std::string text = fmt::format("rounding to nearest in {} errs by {:.2f} % of a linear's output on average",
                                 analysis.format, 100 * rtn);
  for (const std::string& method : analysis.methods) {
    if (method == "rtn") continue;
    const double error = mean(errors_of(analysis, method, &OutputError::both));
    text += fmt::format(", {} {:.2f} % ({:+.0f} %)", method, 100 * error, 100 * (error / rtn - 1));
  }
  findings.push_back(std::move(text));
  const double weights = mean(errors_of(analysis, "rtn", &OutputError::weights));
  findings.push_back(
      fmt::format("of that {:.0f} % is the weights' part: {}", 100 * weights / rtn,
                  weights > 0.5 * rtn
                      ? "work on the weights first (4/6, another format), residual channels cannot help there"
                      : "methods that correct activations have most to win"));
}

// What to keep a linear in: the candidate of fewest bits that errs less than the limit.
std::string remedy_format(const LinearAnalysis& linear, double limit) {
  const std::string* best = nullptr;
  double bits = 0;
  for (const auto& [name, format] : linear.formats)
    if (format.error.both < limit && (!best || format.bits < bits)) {
      best = &name;
      bits = format.bits;
    }
  return best ? *best : "bf16";
}

void find_outstanding(const Analysis& analysis, Findings& findings) {
  if (analysis.methods.empty()) return;
  const bool arc = std::ranges::find(analysis.methods, "arc") != analysis.methods.end();
  const std::string& method = arc ? *std::ranges::find(analysis.methods, "arc") : analysis.methods.front();
  const double middle = median(errors_of(analysis, method, &OutputError::both));
  std::vector<std::pair<double, const LinearAnalysis*>> outstanding;
  for (const LinearAnalysis& linear : analysis.linears)
    if (const auto error = linear.methods.find(method);
        error != linear.methods.end() && middle > 0 && error->second.both > kOutstanding * middle)
      outstanding.emplace_back(error->second.both, &linear);
  std::ranges::stable_sort(outstanding, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < std::min(kMostNamed, outstanding.size()); ++i) {
    const auto& [error, linear] = outstanding[i];
    const InputAnalysis* input = input_of(analysis, *linear);
    const bool capped = arc && input && input->capped;
    std::string text = place(linear->layer, linear->name) + ": ";
    if (arc && input)
      text += fmt::format("S {} {:.0f} %, ", capped ? "capped at" : "is", 100 * share_of(*input));
    text += fmt::format("{:.1f}x the median error of {} ({:.2f} %): {}keep it in {}", error / middle, method,
                        100 * error, capped ? "raise the cap or " : "", remedy_format(*linear, middle));
    findings.push_back(std::move(text));
  }
  if (outstanding.size() > kMostNamed)
    findings.push_back(fmt::format("{} more linears err more than {:g}x the median",
                                   outstanding.size() - kMostNamed, kOutstanding));
  if (outstanding.empty() && middle > 0)
    findings.push_back(fmt::format("no linear errs more than {:g}x the median of {}", kOutstanding, method));
}

}  // namespace

std::vector<std::string> find_in_words(const Analysis& analysis) {
  Findings findings;
  find_drift(analysis, findings);
  find_residuals(analysis, findings);
  find_clipping(analysis, findings);
  find_bound(analysis, findings);
  find_methods(analysis, findings);
  find_outstanding(analysis, findings);
  return findings;
}

}  // namespace halfbyte
