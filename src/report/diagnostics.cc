// Sections from analyses: findings, residual channels, output errors by layer, errors of inputs as histograms.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "report/report.h"

namespace halfbyte {

namespace {

// "mlp_product" of "model.layers.3.mlp_product", "down_proj" of "model.layers.3.mlp.down_proj".
std::string part_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// One series a kind, in order of first appearance, with a value a layer.
class ByLayer {
 public:
  // Several values of one kind and layer are averaged.
  void add(const std::string& kind, std::int64_t layer, double value) {
    if (std::ranges::find(kinds_, kind) == kinds_.end()) kinds_.push_back(kind);
    auto& [sum, count] = cells_[{kind, layer}];
    sum += value;
    ++count;
    layers_.insert(layer);
  }
  Chart chart(std::string title, std::string y_label, bool log_y) const {
    Chart chart{.kind = Chart::Kind::line,
                .title = std::move(title),
                .x_label = "layer",
                .y_label = std::move(y_label),
                .log_y = log_y,
                .categories = {},
                .series = {}};
    for (const std::int64_t layer : layers_)
      chart.categories.push_back(layer < 0 ? "head" : std::to_string(layer));
    for (const std::string& kind : kinds_) {
      Series series{kind, {}};
      for (const std::int64_t layer : layers_) {
        const auto cell = cells_.find({kind, layer});
        series.y.push_back(cell == cells_.end() ? std::nullopt
                                                : std::optional(cell->second.first / cell->second.second));
      }
      chart.series.push_back(std::move(series));
    }
    return chart;
  }
  bool empty() const { return kinds_.empty(); }

 private:
  struct LastIsHead {
    bool operator()(std::int64_t a, std::int64_t b) const {
      return static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b);
    }
  };
  std::vector<std::string> kinds_;
  std::set<std::int64_t, LastIsHead> layers_;
  std::map<std::pair<std::string, std::int64_t>, std::pair<double, int>> cells_;
};

std::string percent(double share) { return fmt::format("{:.2f}", 100 * share); }

// What every part below is made for; the heading tells analyses apart where there are several.
using MakeBlocks = std::function<void(const Analysis&, std::vector<Block>&)>;

void add_section(const ReportInputs& inputs, const char* id, const char* title, const MakeBlocks& make,
                 Document& document) {
  Section section{id, title, {}};
  for (const Analysis& analysis : inputs.analyses) {
    std::vector<Block> blocks;
    make(analysis, blocks);
    if (blocks.empty()) continue;
    if (inputs.analyses.size() > 1)
      section.blocks.emplace_back(Text{fmt::format("{}, {}:", short_name(analysis.model), analysis.format)});
    for (Block& block : blocks) section.blocks.push_back(std::move(block));
  }
  if (!section.blocks.empty()) document.sections.push_back(std::move(section));
}

void findings(const Analysis& analysis, std::vector<Block>& blocks) {
  std::string texts;
  for (const std::string& text : analysis.texts) texts += (texts.empty() ? "" : ", ") + text;
  blocks.emplace_back(Text{fmt::format("{} in {}, over {} tokens of {} in windows of {}, against {}.",
                                       short_name(analysis.model), analysis.format, analysis.tokens, texts,
                                       analysis.seq_len, analysis.stats)});
  if (!analysis.findings.empty()) blocks.emplace_back(Bullets{analysis.findings});
}

void residual_channels(const Analysis& analysis, std::vector<Block>& blocks) {
  ByLayer shares, above;
  bool any = false;
  for (const InputAnalysis& input : analysis.inputs) {
    any = any || input.residual > 0;
    const auto channels = static_cast<double>(input.channels);
    shares.add(part_of(input.name), input.layer, 100 * static_cast<double>(input.residual) / channels);
    above.add(part_of(input.name), input.layer, 100 * input.above_tau);
  }
  if (any) blocks.emplace_back(shares.chart("Residual channels S", "% of the input's channels", false));
  if (!above.empty())
    blocks.emplace_back(above.chart(fmt::format("Channels above 2^-{} of the largest", analysis.tau),
                                    "% of the input's channels", false));
  Table table{.caption = "Inputs",
              .columns = {{"input", false},
                          {"channels"},
                          {"S"},
                          {"S %"},
                          {"capped", false},
                          {"above tau %"},
                          {"largest / calibrated"},
                          {"mean square / calibrated"},
                          {"channels above"},
                          {"clipped"}},
              .rows = {}};
  for (const InputAnalysis& input : analysis.inputs)
    table.rows.push_back({input.name, std::to_string(input.channels), std::to_string(input.residual),
                          percent(static_cast<double>(input.residual) / static_cast<double>(input.channels)),
                          input.capped ? "yes" : "", percent(input.above_tau),
                          number_text(input.drift.absmax_ratio), number_text(input.drift.mean_square_ratio),
                          std::to_string(input.drift.channels_above),
                          input.clipped ? std::to_string(*input.clipped) : "-"});
  blocks.emplace_back(std::move(table));
}

void output_errors(const Analysis& analysis, std::vector<Block>& blocks) {
  ByLayer both, weights, formats;
  Table table{.caption = "Relative output error of every linear, weights and activations rounded",
              .columns = {{"linear", false}, {"weights"}, {"E|y|^2"}},
              .rows = {}};
  for (const std::string& method : analysis.methods) table.columns.push_back({method});
  for (const std::string& format : analysis.formats) table.columns.push_back({format});
  for (const LinearAnalysis& linear : analysis.linears) {
    std::vector<std::string> row{linear.name, std::to_string(linear.out * linear.in),
                                 number_text(linear.output_square)};
    for (const std::string& method : analysis.methods) {
      const auto error = linear.methods.find(method);
      row.push_back(error == linear.methods.end() ? "-" : number_text(error->second.both));
      if (error == linear.methods.end()) continue;
      both.add(method, linear.layer, error->second.both);
      weights.add(method, linear.layer, error->second.weights);
    }
    for (const std::string& format : analysis.formats) {
      const auto error = linear.formats.find(format);
      row.push_back(error == linear.formats.end() ? "-" : number_text(error->second.error.both));
      if (error != linear.formats.end() && error->second.error.both > 0)
        formats.add(format, linear.layer, error->second.error.both);
    }
    table.rows.push_back(std::move(row));
  }
  if (!both.empty()) {
    blocks.emplace_back(Text{
        "The sum of squared differences from the unrounded linear's output over the sum of its squares, on "
        "real inputs; the mean over a layer's linears."});
    blocks.emplace_back(error_summary(analysis));
    blocks.emplace_back(both.chart("Weights and activations rounded", "relative output error", true));
    blocks.emplace_back(weights.chart("Weights alone rounded", "relative output error", true));
  }
  if (!formats.empty())
    blocks.emplace_back(
        formats.chart("Candidate formats, rounded to nearest", "relative output error", true));
  if (!table.rows.empty()) blocks.emplace_back(std::move(table));
}

void histograms(const Analysis& analysis, std::vector<Block>& blocks) {
  using Member = std::optional<ErrorHistogram> InputAnalysis::*;
  struct Kind {
    const char* name;
    Member member;
  };
  constexpr std::array<Kind, 3> kKinds{{{"rtn, storage order", &InputAnalysis::rtn},
                                        {"arc, before compensation", &InputAnalysis::before},
                                        {"arc, after compensation", &InputAnalysis::after}}};
  std::vector<std::string> parts;
  for (const InputAnalysis& input : analysis.inputs)
    if (std::ranges::find(parts, part_of(input.name)) == parts.end()) parts.push_back(part_of(input.name));
  for (const std::string& part : parts) {
    Chart chart{.kind = Chart::Kind::line,
                .title = "Inputs " + part,
                .x_label = "|error| / largest |x|",
                .y_label = "% of values",
                .log_y = true,
                .categories = {"0"},
                .series = {}};
    for (int bin = 1; bin < kErrorBins; ++bin) chart.categories.push_back(fmt::format("2^{}", bin - 24));
    for (const Kind& kind : kKinds) {
      std::array<double, kErrorBins> sums{};
      double all = 0;
      for (const InputAnalysis& input : analysis.inputs)
        if (const auto& histogram = input.*kind.member; histogram && part_of(input.name) == part)
          for (std::size_t bin = 0; bin < sums.size(); ++bin) {
            sums[bin] += static_cast<double>((*histogram)[bin]);
            all += static_cast<double>((*histogram)[bin]);
          }
      if (all == 0) continue;
      Series series{kind.name, {}};
      for (const double sum : sums)
        series.y.push_back(sum > 0 ? std::optional(100 * sum / all) : std::nullopt);
      chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty()) blocks.emplace_back(std::move(chart));
  }
  if (!blocks.empty())
    blocks.insert(blocks.begin(),
                  Text{"How often rounding an input errs by how much, all layers together. Both axes are "
                       "logarithmic; the first bin holds what is below 2^-23, exact values too."});
}

void bounds(const Analysis& analysis, std::vector<Block>& blocks) {
  ByLayer shares;
  Table table{.caption = "",
              .columns = {{"input", false},
                          {"values"},
                          {"guaranteed"},
                          {"violations"},
                          {"largest |e| / bound"},
                          {"largest alpha1 alpha2"},
                          {"rms |e|"},
                          {"MXFP8 |e| / 2 M eps8"},
                          {"MXFP8 rms |e|"}},
              .rows = {}};
  for (const InputAnalysis& input : analysis.inputs) {
    if (!input.bound) continue;
    const BoundCheck& b = *input.bound;
    table.rows.push_back({input.name, std::to_string(b.values), std::to_string(b.guaranteed),
                          std::to_string(b.violations), number_text(b.largest_share),
                          number_text(b.largest_alpha), number_text(std::sqrt(b.mean_square)),
                          number_text(b.mxfp8_largest_share), number_text(std::sqrt(b.mxfp8_mean_square))});
    shares.add("arc / bound", input.layer, b.largest_share);
    shares.add("mxfp8 / bound", input.layer, b.mxfp8_largest_share);
  }
  if (table.rows.empty()) return;
  blocks.emplace_back(
      Text{"The bound of residual channels, |e| <= alpha1 alpha2 M eps8 with eps8 = 2^-4 and M a block's "
           "largest magnitude, on every compensated value; and MXFP8 on the same values against its own, 2 M "
           "eps8. Guaranteed are values whose two block scales are normal E4M3 numbers. rms is over the "
           "largest |x| of the input."});
  blocks.emplace_back(shares.chart("Largest error over its bound", "share of the bound", false));
  blocks.emplace_back(std::move(table));
}

}  // namespace

Table error_summary(const Analysis& analysis) {
  Table table{
      .caption = "", .columns = {{"rounded to", false}, {"median %"}, {"mean %"}, {"largest %"}}, .rows = {}};
  const auto add = [&](const std::string& name, std::vector<double> errors) {
    if (errors.empty()) return;
    std::ranges::sort(errors);
    double sum = 0;
    for (const double error : errors) sum += error;
    const auto text = [](double error) { return fmt::format("{:.3f}", 100 * error); };
    table.rows.push_back({name, text(errors[errors.size() / 2]),
                          text(sum / static_cast<double>(errors.size())), text(errors.back())});
  };
  for (const std::string& method : analysis.methods) {
    std::vector<double> errors;
    for (const LinearAnalysis& linear : analysis.linears)
      if (const auto found = linear.methods.find(method); found != linear.methods.end())
        errors.push_back(found->second.both);
    add(analysis.format + " " + method, std::move(errors));
  }
  for (const std::string& format : analysis.formats) {
    std::vector<double> errors;
    for (const LinearAnalysis& linear : analysis.linears)
      if (const auto found = linear.formats.find(format); found != linear.formats.end())
        errors.push_back(found->second.error.both);
    add(format, std::move(errors));
  }
  return table;
}

void add_diagnostics(const ReportInputs& inputs, Document& document) {
  add_section(inputs, "findings", "Findings", findings, document);
  add_section(inputs, "residuals", "Residual channels by layer", residual_channels, document);
  add_section(inputs, "errors", "Output error by layer", output_errors, document);
  add_section(inputs, "histograms", "Error histograms", histograms, document);
  add_section(inputs, "bound", "Error bound", bounds, document);
}

}  // namespace halfbyte
