#include "analyze/analyze.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "analyze/findings.h"
#include "analyze/input_probe.h"
#include "analyze/output_probe.h"
#include "core/fail.h"
#include "io/text.h"
#include "quantize/hadamard.h"
#include "quantize/methods.h"
#include "quantize/smoothquant.h"

namespace halfbyte {

namespace {

using Transforms = std::map<std::string, InputTransform, std::less<>>;  // by input

struct Method {
  std::string name;
  Transforms inputs;
};

// Everything about one input that is watched.
struct Watched {
  std::vector<LinearInfo> linears;
  InputTransform unchanged;
  std::vector<Variant> variants;  // all different
  // Places in variants: in the order of methods and of formats, and of these two methods.
  std::vector<std::size_t> method_variant, format_variant;
  std::optional<std::size_t> rtn, arc;
  bool capped = false;
  std::unique_ptr<InputProbe> input;
  std::unique_ptr<OutputProbe> output;

  // The place of that variant, which is added where it is new.
  std::size_t variant(const QuantSpec& spec, const InputTransform* transform) {
    for (std::size_t v = 0; v < variants.size(); ++v)
      if (variants[v].spec == spec && variants[v].transform == transform) return v;
    variants.push_back({spec, transform});
    return variants.size() - 1;
  }
};

class Analyzer {
 public:
  Analyzer(const ModelConfig& config, const Checkpoint& checkpoint, const CalibrationStats& stats,
           const AnalyzeOptions& options, ThreadPool& pool)
      : checkpoint_(checkpoint), options_(options), pool_(pool), linears_(list_linears(config)) {
    for (const LinearInfo& linear : linears_)
      sources_.push_back({linear.name, input_name(linear.input, linear.layer)});
    for (const std::string& name : options.methods) methods_.push_back({name, plan(name, stats)});
    watch(stats);
  }

  std::int64_t inputs() const { return static_cast<std::int64_t>(watched_.size()); }

  // Whether that input is one of them.
  bool add(const std::string& name, const float* x, std::int64_t rows, std::int64_t columns) {
    const auto found = watched_.find(name);
    if (found == watched_.end()) return false;
    for (std::int64_t i = 0; i < rows * columns; ++i)
      if (!std::isfinite(x[i]))
        fail_input("{}: the model computes {} for channel {} of {}; its weights are damaged or out of range",
                   checkpoint_.dir().string(), std::isnan(x[i]) ? "NaN" : "an infinity", i % columns,
                   quote(name));
    Watched& input = found->second;
    std::vector<EngineInput> made;
    for (const Variant& variant : input.variants)
      made.push_back(variant.spec.format == Format::bf16
                         ? EngineInput{}
                         : make_engine_input(x, rows, *variant.transform, variant.spec, pool_));
    input.input->add(x, rows, input.rtn ? &made[*input.rtn] : nullptr,
                     input.arc ? &made[*input.arc] : nullptr, pool_);
    input.output->add(x, rows, made, pool_);
    return true;
  }

  Analysis finish() const {
    Analysis analysis;
    analysis.format = to_string(options_.spec);
    analysis.tau = options_.tau;
    analysis.residual_rule = options_.residual_rule;
    for (const Method& method : methods_) analysis.methods.push_back(method.name);
    for (const QuantSpec& spec : options_.formats) analysis.formats.emplace_back(format_name(spec.format));
    std::string last;
    for (const LinearInfo& linear : linears_) {
      const std::string name = input_name(linear.input, linear.layer);
      const auto found = watched_.find(name);
      if (found == watched_.end() || name == last) continue;
      last = name;
      analysis.inputs.push_back(found->second.input->finish(options_.tau, found->second.capped));
      for (std::size_t l = 0; l < found->second.linears.size(); ++l)
        analysis.linears.push_back(linear_of(found->second, l, name));
    }
    return analysis;
  }

 private:
  // What a method makes of every input with something to quantize.
  Transforms plan(const std::string& method, const CalibrationStats& stats) {
    std::vector<std::string> names;
    for (const LinearSource& source : sources_) names.push_back(source.name);
    QuantizePlan plan = make_plan(checkpoint_, names,
                                  {.weights = options_.spec,
                                   .activations = ActivationSpec{.spec = options_.spec},
                                   .keep = options_.keep});
    if (method == "arc")
      plan_arc(checkpoint_, plan, sources_, stats, options_.arc);
    else if (method == "smoothquant")
      plan_smoothquant(checkpoint_, plan, sources_, stats, {.alpha = options_.alpha}, pool_);
    else if (method == "hadamard")
      plan_hadamard(checkpoint_, plan, sources_, options_.hadamard_block);
    else if (method != "rtn")
      fail_input("--methods: {} is none of rtn, arc, smoothquant and hadamard", quote(method));
    Transforms transforms;
    for (PlannedInput& input : plan.inputs) transforms.emplace(input.name, std::move(input.transform));
    return transforms;
  }

  void watch(const CalibrationStats& stats) {
    std::vector<std::string> names;
    for (const LinearSource& source : sources_) names.push_back(source.name);
    QuantizePlan plan =
        make_plan(checkpoint_, names, {.weights = options_.spec, .activations = {}, .keep = options_.keep});
    for (const InputGroup& group : group_by_input(checkpoint_, plan, sources_)) {
      const InputStats& calibrated = stats_of(stats, group);
      Watched& input = watched_[group.input];
      input.unchanged = unchanged_input(group.channels);
      std::vector<std::string> linears;
      for (const LinearInfo& linear : linears_)
        if (std::ranges::find(group.tensors, linear.name + ".weight", &PlannedTensor::name) !=
            group.tensors.end()) {
          input.linears.push_back(linear);
          linears.push_back(linear.name);
        }
      const InputTransform* arc = nullptr;
      for (const Method& method : methods_) {
        const auto changed = method.inputs.find(group.input);
        const InputTransform* transform =
            changed == method.inputs.end() ? &input.unchanged : &changed->second;
        const std::size_t variant = input.variant(options_.spec, transform);
        input.method_variant.push_back(variant);
        if (method.name == "rtn") input.rtn = variant;
        if (method.name == "arc") {
          input.capped = is_capped(calibrated.absmax, transform->info.residual);
          if (changed == method.inputs.end()) continue;  // no residual channels: rounding to nearest
          input.arc = variant;
          arc = transform;
        }
      }
      for (const QuantSpec& spec : options_.formats)
        input.format_variant.push_back(input.variant(spec, &input.unchanged));
      input.input =
          std::make_unique<InputProbe>(group.input, input.linears[0].layer, calibrated, options_.spec, arc);
      input.output = std::make_unique<OutputProbe>(checkpoint_, std::move(linears), input.variants);
    }
  }

  // Whether the rule asked for more residual channels than the caps allow.
  bool is_capped(const std::vector<float>& absmax, std::int64_t residual) const {
    const auto channels = static_cast<std::int64_t>(absmax.size());
    ArcOptions uncapped = options_.arc;
    uncapped.cap_channels = channels;
    uncapped.cap_percent = 100;
    return residual_channels(absmax, uncapped, effective_block(options_.spec, channels)) > residual;
  }

  LinearAnalysis linear_of(const Watched& input, std::size_t l, const std::string& name) const {
    const LinearInfo& info = input.linears[l];
    LinearAnalysis linear;
    linear.name = info.name;
    linear.input = name;
    linear.layer = info.layer;
    linear.out = info.out;
    linear.in = info.in;
    linear.output_square = input.output->output_square(l);
    for (std::size_t m = 0; m < methods_.size(); ++m)
      linear.methods[methods_[m].name] = input.output->error(l, input.method_variant[m]);
    for (std::size_t f = 0; f < options_.formats.size(); ++f) {
      const QuantSpec& spec = options_.formats[f];
      linear.formats[std::string(format_name(spec.format))] = {
          input.output->error(l, input.format_variant[f]), bits_per_weight(spec, {info.out, info.in})};
    }
    return linear;
  }

  const Checkpoint& checkpoint_;
  const AnalyzeOptions& options_;
  ThreadPool& pool_;
  std::vector<LinearInfo> linears_;
  std::vector<LinearSource> sources_;
  std::vector<Method> methods_;
  std::map<std::string, Watched, std::less<>> watched_;
};

}  // namespace

Analysis analyze(Model& model, const Checkpoint& checkpoint, const CalibrationStats& stats,
                 std::span<const std::span<const std::int32_t>> windows, const AnalyzeOptions& options,
                 ThreadPool& pool, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Analyzer analyzer(model.config(), checkpoint, stats, options, pool);
  const std::int64_t all = analyzer.inputs() * static_cast<std::int64_t>(windows.size());
  std::int64_t done = 0, tokens = 0;
  model.observe_inputs(
      [&](LinearInput input, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
        if (analyzer.add(input_name(input, layer), x, rows, columns) && progress) progress(++done, all);
      });
  try {
    std::size_t longest = 0;
    for (const auto& window : windows) longest = std::max(longest, window.size());
    KvCache cache(model.config(), static_cast<std::int64_t>(longest));
    Array<float> hidden(static_cast<std::int64_t>(longest) * model.config().hidden);
    for (const auto& window : windows) {
      cache.clear();
      model.forward(window, cache, hidden.data(), pool);
      tokens += static_cast<std::int64_t>(window.size());
    }
  } catch (...) {
    model.observe_inputs({});
    throw;
  }
  model.observe_inputs({});
  Analysis analysis = analyzer.finish();
  analysis.windows = static_cast<std::int64_t>(windows.size());
  analysis.seq_len = windows.empty() ? 0 : static_cast<std::int64_t>(windows[0].size());
  analysis.tokens = tokens;
  analysis.findings = find_in_words(analysis);
  return analysis;
}

}  // namespace halfbyte
