#include "checkpoint/ecosystem.h"

#include <algorithm>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

const Ecosystem* find_ecosystem(std::string_view quant_method) {
  for (const Ecosystem* ecosystem : {&kBitsandbytes, &kCompressedTensors, &kHalfbyteArc, &kModelopt})
    if (ecosystem->name == quant_method) return ecosystem;
  return nullptr;
}

const InputInfo* input_of(const HalfbyteQuantization& quantization, const QuantizedInfo& info) {
  const auto found = quantization.inputs.find(info.input);
  return found == quantization.inputs.end() ? nullptr : &found->second;
}

bool changes_columns(const InputInfo& input) { return input.gathered || !gathers_only(input); }

bool gathers_only(const InputInfo& input) { return !input.scaled && input.hadamard <= 1 && !input.outliers; }

void require_format(const QuantizedTensor& tensor, const std::string& name, const Ecosystem& ecosystem,
                    std::initializer_list<Format> formats) {
  const QuantSpec& spec = tensor.spec;
  if (std::ranges::find(formats, spec.format) == formats.end()) {
    std::string names;
    for (const Format format : formats)
      names += (names.empty() ? "" : " or ") + std::string(format_name(format));
    fail(ErrorKind::unsupported, "{} is {}, but {} checkpoints are written with {}", quote(name),
         to_string(spec), ecosystem.name, names);
  }
  const FormatInfo& info = format_info(spec.format);
  if (info.axis == BlockAxis::row &&
      (tensor.shape.size() != 2 || tensor.shape[1] % effective_block(spec, tensor.shape[1]) != 0))
    fail(ErrorKind::unsupported,
         "{} has shape {}, but {} checkpoints need a matrix whose rows are a multiple of {}; keep that layer "
         "as it is",
         quote(name), to_string(tensor.shape), ecosystem.name, effective_block(spec, 0));
}

std::optional<float> exact_global_scale(GlobalScaleRule from, float scale, GlobalScaleRule to) {
  constexpr GlobalScaleRule kDivisor = GlobalScaleRule::compressed_tensors;
  if ((from == kDivisor) == (to == kDivisor)) return scale;
  const float reciprocal = 1.0f / scale;
  if (!nvfp4_is_global_scale(to, reciprocal)) return std::nullopt;
  for (std::uint8_t code = 0; code <= 0x7E; ++code)
    if (nvfp4_step(from, code, scale) != nvfp4_step(to, code, reciprocal)) return std::nullopt;
  return reciprocal;
}

float convert_global_scale(GlobalScaleRule from, float scale, bool divisor, bool allow_rounding,
                           const std::string& name) {
  const GlobalScaleRule to = divisor ? GlobalScaleRule::compressed_tensors : GlobalScaleRule::pow2;
  if (const auto exact = exact_global_scale(from, scale, to)) return *exact;
  const float reciprocal = 1.0f / scale;
  if (!nvfp4_is_global_scale(to, reciprocal))
    fail(ErrorKind::unsupported, "{}: the reciprocal of its global scale {} is no float32", quote(name),
         scale);
  if (!allow_rounding)
    fail(ErrorKind::unsupported,
         "{}: its global scale {} would have to become {}, and its reciprocal is not exact; quantize with "
         "--global-scale "
         "pow2 or {}, or allow the rounding with --allow-rounding",
         quote(name), scale, divisor ? "a divisor" : "a factor", divisor ? "compressed-tensors" : "modelopt");
  return reciprocal;
}

std::optional<float> static_input_scale(const StoreContext& context, const std::string& name, bool divisor) {
  if (!context.activations) return std::nullopt;
  if (context.activations->spec.format != Format::nvfp4)
    fail(ErrorKind::unsupported,
         "{}: its input is rounded to {}, which this kind of checkpoint cannot say; --weights-only leaves "
         "that out",
         quote(name), to_string(*context.activations));
  if (context.activations->scope != ActivationScope::fixed || !context.input ||
      context.input->global_scale == 0.0f)
    fail(ErrorKind::unsupported,
         "{}: its input is rounded under a scale found at run time ({}), but this kind of checkpoint holds "
         "one from "
         "calibration; quantize with static activation scales, or leave them out with --weights-only",
         quote(name), to_string(*context.activations));
  return convert_global_scale(context.activations->spec.global_scale, context.input->global_scale, divisor,
                              context.allow_rounding, name + " (input)");
}

void add_input_scale(HalfbyteQuantization& quantization, const std::string& layer, QuantizedInfo& info,
                     float scale) {
  info.input = layer;
  quantization.inputs[layer] = {
      .method = "rtn", .channels = info.shape.back(), .width = info.shape.back(), .global_scale = scale};
}

void use_common_activations(HalfbyteQuantization& quantization) {
  const QuantizedInfo& first = quantization.tensors.begin()->second;
  for (const auto& [name, info] : quantization.tensors)
    if (info.own_activations != first.own_activations || info.activations != first.activations) return;
  quantization.activations = first.activations;
  for (auto& [name, info] : quantization.tensors) {
    info.own_activations = false;
    info.activations.reset();
  }
}

void refuse_unused(const SafetensorsModel& files, const std::set<std::string>& used,
                   std::span<const std::string_view> suffixes) {
  for (const std::string& name : files.names())
    for (const std::string_view suffix : suffixes)
      if (name.ends_with(suffix) && !used.contains(name))
        fail_input(
            "{}: {} belongs to no quantized tensor of this file; it is a part of a scheme that config.json "
            "does not "
            "describe, or its weight is missing",
            files.path(), quote(name));
}

}  // namespace halfbyte
