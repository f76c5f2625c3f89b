// Rope scaling of a GGUF file, as config.json describes it.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "checkpoint/gguf_config.h"
#include "core/fail.h"
#include "core/tensor.h"
#include "io/text.h"

namespace halfbyte {

namespace {

// Llama 3: frequencies whose wavelength is below context / high stay, those above context / low are divided by factor,
// and between the two the inverse of the divisor goes linearly in 1 / wavelength.
struct Llama3Rope {
  double factor, low, high, context;
};

double divisor(const Llama3Rope& rope, double wavelength) {
  const double turns = rope.context / wavelength;  // within the original context
  if (turns > rope.high) return 1;
  if (turns < rope.low) return rope.factor;
  const double smooth = (turns - rope.low) / (rope.high - rope.low);
  return 1 / ((1 - smooth) / rope.factor + smooth);
}

double wavelength(const GgufModel& model, std::size_t i) {
  const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim);
  return 2 * std::numbers::pi * std::pow(model.rope_theta, exponent);
}

// The file's divisors were computed in float32: a few parts in 10^6, more where a wavelength meets a corner.
bool fits(const Llama3Rope& rope, const GgufModel& model, std::span<const double> divisors) {
  for (std::size_t i = 0; i < divisors.size(); ++i)
    if (!(std::abs(divisor(rope, wavelength(model, i)) / divisors[i] - 1) < 1e-4)) return false;
  return true;
}

// low and high from the line through the first and last divisor between 1 and factor, rounded to 1/16.
std::optional<Llama3Rope> fit(double factor, double context, const GgufModel& model,
                              std::span<const double> divisors) {
  std::optional<std::pair<double, double>> first, last;  // (turns, smooth)
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double smooth = (1 / divisors[i] - 1 / factor) / (1 - 1 / factor);
    if (smooth < 1e-6 || smooth > 1 - 1e-6) continue;
    last = {context / wavelength(model, i), smooth};
    if (!first) first = last;
  }
  if (!first || first->first == last->first) return std::nullopt;
  const double slope = (first->second - last->second) / (first->first - last->first);  // 1 / (high - low)
  const double low = last->first - last->second / slope;
  const auto round = [](double x) { return std::round(x * 16) / 16; };
  return Llama3Rope{factor, round(low), round(low + 1 / slope), context};
}

Json from_divisors(const GgufFile& file, const GgufModel& model, const GgufTensor& tensor) {
  if (tensor.type->name != "F32" || tensor.shape != Shape{model.head_dim / 2})
    fail_input("{}: tensor \"rope_freqs.weight\" is {} {}, expected F32 [{}]", file.path(), tensor.type->name,
               to_string(tensor.shape), model.head_dim / 2);
  std::vector<double> divisors;
  double factor = 1;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    divisors.push_back(load<float>(tensor.data.data(), i));
    factor = std::max(factor, divisors.back());
  }
  const std::string key = model.arch + ".rope.scaling.original_context_length";
  const std::int64_t original = file.has(key) ? file.integer(key) : 8192;
  if (original < 1 || original > 0x7FFFFFFF)
    fail_input("{}: the key {} is {}, expected 1 to 2147483647", file.path(), quote(key), original);
  const auto context = static_cast<double>(original);
  const Llama3Rope usual{factor, 1, 4, context};  // Llama 3.1 (factor 8) and 3.2 (factor 32)
  const bool plain = factor == 1;
  for (const std::optional<Llama3Rope>& rope : {std::optional(usual), fit(factor, context, model, divisors)})
    if (rope && rope->low > 0 && rope->low < rope->high && fits(*rope, model, divisors)) {
      if (plain) return nullptr;
      return {{"rope_type", "llama3"},
              {"factor", rope->factor},
              {"low_freq_factor", rope->low},
              {"high_freq_factor", rope->high},
              {"original_max_position_embeddings", original}};
    }
  fail(ErrorKind::unsupported,
       "{}: the divisors in \"rope_freqs.weight\" are not those of Llama 3's rope scaling", file.path());
}

}  // namespace

Json gguf_rope_scaling(const GgufFile& file, const GgufModel& model) {
  const std::string prefix = model.arch + ".rope.";
  const std::string type =
      file.has(prefix + "scaling.type") ? std::string(file.string(prefix + "scaling.type")) : "none";
  const GgufTensor* divisors = file.find_tensor("rope_freqs.weight");
  double factor = 1;
  for (const char* name : {"scaling.factor", "scale_linear"})
    if (file.has(prefix + name)) factor = file.number(prefix + name);
  const bool linear = type == "linear" || (type == "none" && file.has(prefix + "scale_linear"));
  if ((type != "none" && type != "linear") || (linear && divisors))
    fail(ErrorKind::unsupported, "{}: the rope scaling {}{} is not supported", file.path(), quote(type),
         divisors ? " together with the tensor \"rope_freqs.weight\"" : "");
  if (divisors) return from_divisors(file, model, *divisors);
  if (!linear || factor == 1) return nullptr;
  if (!std::isfinite(factor) || factor <= 0)
    fail_input("{}: the rope scaling factor is {}, expected a positive number", file.path(), factor);
  return {{"rope_type", "linear"}, {"factor", factor}};
}

}  // namespace halfbyte
