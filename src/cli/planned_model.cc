#include "cli/planned_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "calibrate/calibrate.h"
#include "calibrate/stats_file.h"
#include "cli/bits_budget.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/sha256.h"
#include "io/text.h"
#include "layerwise/residual_statistics.h"
#include "layerwise/sequential_rounder.h"
#include "model/linears.h"
#include "model/model.h"
#include "quantize/hadamard.h"
#include "quantize/residual_budget.h"
#include "quantize/search_rounder.h"
#include "quantize/smoothquant.h"
#include "quantize/static_scales.h"

namespace halfbyte::cli {

namespace {

std::vector<LinearSource> sources_of(std::span<const LinearInfo> linears) {
  std::vector<LinearSource> sources;
  for (const LinearInfo& linear : linears)
    sources.push_back({linear.name, input_name(linear.input, linear.layer)});
  return sources;
}

Producers producers_of(const ModelConfig& config) {
  Producers producers;
  for (InputProducer& producer : list_producers(config))
    producers.emplace(producer.input, Producer{std::move(producer.tensor), std::move(producer.rows)});
  return producers;
}

// A plan that goes by calibration text: the statistics that text gives, from one run of the model each.
class TextRun {
 public:
  TextRun(const PlanSettings& settings, const SampleSet& samples, ThreadPool& pool)
      : settings_(settings), samples_(samples), pool_(pool) {}

  // Second moments take more text than the magnitudes that are asked for here.
  CalibrationStats statistics() {
    constexpr std::size_t kSamples = 16;
    const SampleSet some = samples_.first(kSamples);
    Progress progress("calibrating", static_cast<std::int64_t>(some.size()));
    CalibrationStats stats =
        calibrate(model(), some, settings_.samples, pool_, [&](const CalibrationProgress& p) {
          progress.update(p.done, "");
        }).stats;
    stats.sources = settings_.text.sums();
    return stats;
  }

  std::map<std::string, ResidualStatistics> residuals(const Checkpoint& checkpoint, const QuantizePlan& plan,
                                                      std::span<const LinearSource> sources) {
    constexpr std::int64_t kTokens = 6144;
    return residual_statistics(model(), checkpoint, plan, sources, samples_, kTokens, pool_);
  }

 private:
  Model& model() {
    if (!model_) model_.emplace(Model::load(settings_.model, pool_));
    return *model_;
  }

  const PlanSettings& settings_;
  const SampleSet& samples_;
  ThreadPool& pool_;
  std::optional<Model> model_;
};

QuantizePlan make(const PlanSettings& user, const Checkpoint& checkpoint, const ModelConfig& config,
                  std::span<const LinearSource> sources, const Producers& producers, PlanOrigin& origin,
                  std::optional<SampleSet>& samples, ThreadPool& pool) {
  const PlanSettings settings = with_best(user);
  // Named wrong, a rule is wrong also where the format has no use for it.
  global_scale_rule_from_name(settings.global_scale);
  mx_scale_rule_from_name(settings.mx_scale);
  choose("--activation-scope", settings.scope, {"tensor", "token", "static"});
  const bool fused = choose("--weight-scale", settings.weight_scale, {"fused", "own"}) == 0;
  const bool folds = choose("--fold", settings.fold, {"all", "none"}) == 0;
  const bool best = settings.method == "best";
  const auto rounding =
      static_cast<Rounding>(choose("--rounding", settings.rounding, {"nearest", "search", "feedback"}));
  const bool mean_damping = choose("--damping-of", settings.damping_of, {"each", "mean"}) == 1;
  if (!(settings.bits_budget >= 0))
    fail_input("--bits-budget is {}, expected a number of bits", settings.bits_budget);
  refuse_idle_options(settings);
  if (settings.format.empty()) fail_input("--format is missing: nf4, fp4, nvfp4, mxfp4, mxfp8, int4 or int8");

  std::vector<std::string> linears;
  for (const LinearSource& source : sources) linears.push_back(source.name);
  const QuantSpec weights = weights_of(settings);
  PlanOptions options{
      .weights = weights, .activations = activations_of(settings, weights), .keep = settings.keep};
  std::erase(options.keep, "none");
  if (settings.bits_budget > 0) options.rules = rules_of_budget(settings, sources, checkpoint);
  for (const std::string& rule : settings.layer_formats) options.rules.push_back(parse_rule(settings, rule));
  QuantizePlan plan = make_plan(checkpoint, linears, options);
  plan.options = spoken(settings);

  std::optional<CalibrationStats> stats;
  std::optional<TextRun> run;
  const auto need_text = [&](const std::string& who) -> TextRun& {
    if (settings.text.empty())
      fail_input("{} runs the model on text: give --text FILE or --jsonl FILE, of what the model will read",
                 who);
    if (!run) {
      samples.emplace(settings.text.samples(settings.model, settings.samples));
      origin.calibration_texts = settings.text.sums();
      run.emplace(settings, *samples, pool);
    }
    return *run;
  };
  const auto need_stats = [&](const std::string& who) -> const CalibrationStats& {
    if (stats) return *stats;
    if (!settings.stats.empty()) {
      stats = read_stats(settings.stats);
      origin.stats = sha256(MappedFile(settings.stats).bytes());
      if (origin.calibration_texts.empty()) origin.calibration_texts = stats->sources;
    } else if (!settings.text.empty()) {
      stats = need_text(who).statistics();
    } else {
      fail_input("{} goes by statistics: give --stats FILE, which \"halfbyte calibrate\" writes{}", who,
                 best || rounding != Rounding::nearest ? ", or --text FILE" : "");
    }
    return *stats;
  };
  std::map<std::string, ResidualStatistics> residuals;
  const auto spread = [&](const std::string& who) {
    if (!plan.activations)
      fail_input("{} corrects the rounding of activations: give --activations same or a format", who);
    const ResidualRule rule = parse_residual_rule(settings.residual);
    if (rule.kind != ResidualRule::Kind::budget)
      fail_input("--residual is {}, but --method best takes budget=5 (percent of the weights' bytes) or none",
                 quote(settings.residual));
    residuals = need_text(who).residuals(checkpoint, plan, sources);
    plan_residual_budget(checkpoint, plan, sources, residuals, rule.value, pool);
  };
  const auto smooth = [&] {
    const std::size_t by = choose("--smooth-by", settings.smooth_by, {"absmax", "rms"});
    plan_smoothquant(checkpoint, plan, sources, need_stats("--method " + settings.method),
                     {.alpha = settings.alpha, .by = static_cast<SmoothStatistic>(by)}, pool,
                     folds ? producers : Producers{});
  };
  switch (choose("--method", settings.method, {"rtn", "smoothquant", "hadamard", "atom", "arc", "best"})) {
    case 1:
      smooth();
      break;
    case 2:
      plan_hadamard(checkpoint, plan, sources, settings.hadamard_block);
      break;
    case 3:
      plan_atom(checkpoint, plan, sources, need_stats("--method atom"), atom_options(settings));
      break;
    case 4:
      if (parse_residual_rule(settings.residual).kind == ResidualRule::Kind::budget) {
        spread("--residual budget");
        plan.method = "arc";
      } else {
        plan_arc(checkpoint, plan, sources, need_stats("--method arc"), arc_options(settings));
      }
      break;
    case 5:
      if (settings.smooth_by != "none") smooth();
      if (settings.residual != "none") spread("--method best");
      plan.method = "best";
      for (PlannedInput& input : plan.inputs) input.transform.info.method = "best";
      break;
    default:
      break;
  }
  const bool fixed = settings.scope == "static" && plan.activations;
  if (fixed) plan_static_scales(checkpoint, plan, sources, need_stats("--activation-scope static"));
  plan.rounding = rounding;
  if (rounding == Rounding::search)
    plan_importance(checkpoint, plan, sources, need_stats("--rounding search"), residuals);
  if (rounding == Rounding::feedback) {
    check_feedback(plan, config);
    if (!(settings.damping > 0 && settings.damping <= 1) ||
        !(settings.match_output >= 0 && settings.match_output <= 1))
      fail_input("--damping is {} and --match-output {}, expected above 0 up to 1, and 0 to 1",
                 settings.damping, settings.match_output);
    need_text("--rounding feedback");
    plan.feedback = {.samples = settings.samples.samples,
                     .seq_len = settings.samples.seq_len,
                     .seed = settings.samples.seed,
                     .damping = settings.damping,
                     .mean_damping = mean_damping,
                     .match_output = settings.match_output};
  }
  if (given(settings, "--stats") && !stats)
    fail_input("--stats does nothing with --method {}{}", settings.method,
               fixed ? "" : " and --activation-scope " + settings.scope);
  if (!settings.text.empty() && !run)
    fail_input("--text does nothing with --method {} and --rounding {}", settings.method, settings.rounding);
  if (fused) share_weight_scales(checkpoint, plan, sources);
  check_budget(settings, checkpoint, plan, sources);
  return plan;
}

}  // namespace

PlannedModel::PlannedModel(const PlanSettings& settings, ThreadPool& pool)
    : checkpoint(settings.model), config(parse_model_config(checkpoint.config(), checkpoint.config_file())) {
  const std::vector<LinearInfo> linears = list_linears(config);
  sources = sources_of(linears);
  producers = producers_of(config);
  if (settings.plan.empty()) {
    plan = make(settings, checkpoint, config, sources, producers, origin, samples, pool);
    check_tensors(checkpoint, config);
    origin.model = model_fingerprint(checkpoint, pool);
  } else {
    if (checkpoint.quantized())
      fail_input("{}: the model is quantized already; quantize the original, each rounding adds to the loss",
                 settings.model);
    check_tensors(checkpoint, config);
    PlanFile file = parse_plan(read_json_file(settings.plan, std::int64_t{1} << 30), settings.plan,
                               checkpoint, sources, producers);
    plan = std::move(file.plan);
    plan_file = std::filesystem::path(settings.plan).filename().string();
    if (const std::string warning = residual_warning(plan); !warning.empty())
      plan.warnings.push_back(warning);
    origin = std::move(file.origin);
    if (plan.rounding == Rounding::feedback) {
      if (settings.text.sums() != origin.calibration_texts)
        fail_input(
            "{}: was made on other calibration text than given here; error feedback runs over it once more: "
            "give "
            "the same files in the same order (--text)",
            settings.plan);
      const FeedbackOptions& feedback = plan.feedback;
      samples.emplace(settings.text.samples(
          settings.model, {.samples = feedback.samples, .seq_len = feedback.seq_len, .seed = feedback.seed}));
    } else if (!settings.text.empty()) {
      fail_input("{}: rounds without calibration text; leave out --text", settings.plan);
    }
    const std::string found = model_fingerprint(checkpoint, pool);
    if (origin.model != found)
      fail_input("{}: was made for another model than {} (fingerprint {}, expected {}); plan again",
                 settings.plan, settings.model, found, origin.model);
  }
  text = plan_text(plan, origin);
  if (!settings.plan.empty()) return;
  // What is carried out is what the file says, with every check of it.
  std::vector<std::string> warnings = std::move(plan.warnings);
  plan = parse_plan(parse_json(text, "plan"), "plan", checkpoint, sources, producers).plan;
  plan.warnings = std::move(warnings);
}

std::unique_ptr<WeightRounder> PlannedModel::rounder(ThreadPool& pool) const {
  switch (plan.rounding) {
    case Rounding::search:
      return std::make_unique<SearchRounder>(plan, sources, pool);
    case Rounding::feedback:
      return std::make_unique<SequentialRounder>(checkpoint, config, plan, producers, *samples, pool);
    case Rounding::nearest:
      break;
  }
  return nullptr;
}

RunRecord PlannedModel::record() const {
  std::map<std::string, std::string> options = plan.options;
  if (!plan_file.empty()) options["plan"] = plan_file;
  return {.tool = "halfbyte " HALFBYTE_VERSION,
          .model = origin.model,
          .stats = origin.stats,
          .plan = sha256(text),
          .calibration_texts = origin.calibration_texts,
          .options = std::move(options)};
}

void print_plan(const QuantizePlan& plan) {
  if (!plan.inputs.empty()) {
    fmt::print("{:<40} {:>8} {:>8} {:>9} {:>8}  {}\n", "input", "channels", "residual", "share %", "8 bits",
               "method");
    for (const PlannedInput& input : plan.inputs) {
      const InputInfo& info = input.transform.info;
      std::string method = info.method;
      if (!input.ranking.empty()) method += " " + std::string(column_order_name(input.order));
      if (info.hadamard > 1) method += fmt::format(" {}", info.hadamard);
      if (!input.folded_into.empty()) method += " in " + input.folded_into;
      if (info.global_scale != 0.0f) method += fmt::format(", global scale {:g}", info.global_scale);
      fmt::print("{:<40} {:>8} {:>8} {:>9.2f} {:>8}  {}\n", input.name, info.channels, info.residual,
                 100 * static_cast<double>(info.residual) / static_cast<double>(info.channels), info.outliers,
                 method);
    }
    fmt::print("\n");
  }
  std::map<std::string, std::int64_t> kinds;
  for (const PlannedTensor& tensor : plan.tensors)
    ++kinds[!tensor.spec ? "left alone: " + tensor.reason
                         : to_string(*tensor.spec) + ", activations " +
                               (tensor.activations ? to_string(*tensor.activations) : "float")];
  fmt::print("{:<8}  {}\n", "tensors", "precision");
  for (const auto& [kind, count] : kinds) fmt::print("{:<8}  {}\n", count, kind);
}

}  // namespace halfbyte::cli
