#include "checkpoint/input_transform.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kMaxChannels = std::int64_t{1} << 30;

// A positive float32, 0 where the member is absent.
float parse_scale(const Json& json, const char* key, const std::string& where) {
  const std::optional<double> value = json_optional_double(json, key, where);
  if (!value) return 0.0f;
  const auto scale = static_cast<float>(*value);
  if (!(scale > 0.0f) || std::isinf(scale))
    fail_input("{}: {} is {}, expected a positive number", where, key, *value);
  return scale;
}

}  // namespace

void check_columns(const InputTransform& transform, const std::string& file, const std::string& part) {
  const InputInfo& info = transform.info;
  std::vector<char> seen(static_cast<std::size_t>(info.channels)), again(seen);
  std::int64_t zeros = 0;
  for (std::int64_t j = 0; j < info.width; ++j) {
    const std::int32_t channel = transform.columns[static_cast<std::size_t>(j)];
    const bool residual = j >= info.width - info.residual;
    if (channel == -1 && !residual) {
      ++zeros;
      continue;
    }
    if (channel < 0 || channel >= info.channels)
      fail_input("{}: {} names channel {} at place {}, of {} channels", file, quote(part), channel, j,
                 info.channels);
    char& mark = (residual ? again : seen)[static_cast<std::size_t>(channel)];
    if (mark)
      fail_input("{}: {} names channel {} twice, the second time at place {}; the file is damaged", file,
                 quote(part), channel, j);
    mark = 1;
  }
  if (info.width - info.residual - zeros != info.channels)
    fail_input("{}: {} leaves out {} of {} channels; the file is damaged", file, quote(part),
               info.channels - (info.width - info.residual - zeros), info.channels);
}

Json to_json(const InputInfo& info) {
  Json json = {{"method", info.method}, {"channels", info.channels}, {"width", info.width}};
  if (info.residual) {
    json["residual"] = info.residual;
    json["residual_scale"] = info.shared_scale ? "shared" : "own";
  }
  if (info.hadamard) json["hadamard"] = info.hadamard;
  if (info.scaled) json["scaled"] = true;
  if (info.gathered) json["gathered"] = true;
  if (info.outliers) {
    json["outliers"] = to_json(info.outlier_spec);
    json["outliers"]["columns"] = info.outliers;
  }
  // A float32 as a double is the same number and survives JSON.
  if (info.global_scale != 0.0f) json["global_scale"] = info.global_scale;
  if (info.residual_global_scale != 0.0f) json["residual_global_scale"] = info.residual_global_scale;
  return json;
}

InputInfo parse_input_info(const Json& json, const std::string& where) {
  InputInfo info;
  info.method = json_string(json, "method", where);
  info.channels = json_int64(json, "channels", where);
  info.width = json_int64(json, "width", where);
  info.residual = json_optional_int64(json, "residual", where).value_or(0);
  info.hadamard = json_optional_int64(json, "hadamard", where).value_or(0);
  info.scaled = json_optional_bool(json, "scaled", where).value_or(false);
  info.gathered = json_optional_bool(json, "gathered", where).value_or(false);
  if (info.residual) {
    const std::string scale = json_string(json, "residual_scale", where);
    if (scale != "own" && scale != "shared")
      fail_input("{}: residual_scale is {}, expected \"own\" or \"shared\"", where, quote(scale));
    info.shared_scale = scale == "shared";
  }
  if (info.channels < 1 || info.channels > kMaxChannels || info.residual < 0 ||
      info.residual > info.channels || info.width < info.channels + info.residual ||
      info.width > 4 * kMaxChannels)
    fail_input("{}: {} channels, of which {} residual, do not make a width of {}", where, info.channels,
               info.residual, info.width);
  if (!info.gathered && info.width != info.channels)
    fail_input("{}: width is {}, expected {} where no columns are gathered", where, info.width,
               info.channels);
  if (const Json* outliers = json_find(json, "outliers")) {
    const std::string place = where + ": outliers";
    info.outliers = json_int64(*outliers, "columns", place);
    info.outlier_spec = parse_quant_spec(*outliers, place);
    if (!has_row_blocks(info.outlier_spec.format))
      fail_input("{}: outliers cannot be {}; possible are nvfp4, mxfp4, mxfp8, int4 and int8", where,
                 to_string(info.outlier_spec));
    if (info.outliers < 1 || info.outliers >= info.width || info.residual)
      fail_input("{}: {} outlier columns of {}, {} of them residual, cannot be", where, info.outliers,
                 info.width, info.residual);
  }
  info.global_scale = parse_scale(json, "global_scale", where);
  info.residual_global_scale = parse_scale(json, "residual_global_scale", where);
  if ((info.residual_global_scale != 0.0f) !=
      (info.residual && !info.shared_scale && info.global_scale != 0.0f))
    fail_input(
        "{}: residual_global_scale must be there exactly where global_scale is and residuals have a scale "
        "of their own",
        where);
  if (info.hadamard < 0 || (info.hadamard & (info.hadamard - 1)) ||
      (info.hadamard && info.channels % info.hadamard != 0))
    fail_input("{}: hadamard is {}, expected a power of two that divides {}", where, info.hadamard,
               info.channels);
  return info;
}

std::vector<TensorSpec> input_specs(const std::string& name, const InputInfo& info) {
  std::vector<TensorSpec> specs;
  if (info.scaled) specs.push_back({name + ".scale", DType::f32, {info.channels}});
  if (info.gathered) specs.push_back({name + ".columns", DType::i32, {info.width}});
  return specs;
}

void for_each_part(const std::string& name, const InputTransform& transform, const PartVisitor& visit) {
  if (transform.info.scaled) visit(name + ".scale", std::as_bytes(std::span(transform.scale)));
  if (transform.info.gathered) visit(name + ".columns", std::as_bytes(std::span(transform.columns)));
}

InputTransform read_input(const SafetensorsModel& files, const std::string& name, const InputInfo& info) {
  InputTransform transform{.info = info, .scale = {}, .columns = {}};
  for (const TensorSpec& spec : input_specs(name, info)) {
    const TensorView* stored = files.find(spec.name);
    if (!stored)
      fail_input("{}: {} is missing, needed by the linears that read {}", files.path(), quote(spec.name),
                 quote(name));
    const std::string& file = files.file_of(spec.name).path();
    if (stored->dtype != spec.dtype || stored->shape != spec.shape)
      fail_input("{}: {} is {} {}, expected {} {}", file, quote(spec.name), dtype_name(stored->dtype),
                 to_string(stored->shape), dtype_name(spec.dtype), to_string(spec.shape));
    const std::byte* bytes = stored->data.data();
    for (std::int64_t i = 0; i < stored->elements(); ++i) {
      if (spec.dtype == DType::i32) {
        transform.columns.push_back(load<std::int32_t>(bytes, i));
        continue;
      }
      const auto scale = load<float>(bytes, i);
      if (!(scale > 0) || std::isinf(scale))
        fail_input("{}: {} holds {} at place {}, expected a positive number; the file is damaged", file,
                   quote(spec.name), scale, i);
      transform.scale.push_back(scale);
    }
    if (spec.dtype == DType::i32) check_columns(transform, file, spec.name);
  }
  return transform;
}

std::vector<std::int32_t> residual_positions(const InputTransform& transform) {
  const auto main = static_cast<std::size_t>(transform.info.width - transform.info.residual);
  std::vector<std::int32_t> place(static_cast<std::size_t>(transform.info.channels));
  for (std::size_t j = 0; j < main; ++j)
    if (transform.columns[j] >= 0)
      place[static_cast<std::size_t>(transform.columns[j])] = static_cast<std::int32_t>(j);
  std::vector<std::int32_t> positions;
  for (std::size_t j = main; j < transform.columns.size(); ++j)
    positions.push_back(place[static_cast<std::size_t>(transform.columns[j])]);
  return positions;
}

}  // namespace halfbyte
