#include "analyze/analysis_file.h"

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "core/shape.h"
#include "io/text.h"

namespace halfbyte {

namespace {

Json to_json(const OutputError& error) { return {{"both", error.both}, {"weights", error.weights}}; }

Json to_json(const InputAnalysis& input) {
  Json json = {{"name", input.name},
               {"layer", input.layer},
               {"channels", input.channels},
               {"absmax", input.absmax},
               {"calibrated_absmax", input.calibrated_absmax},
               {"above_tau", input.above_tau},
               {"drift",
                {{"absmax_ratio", input.drift.absmax_ratio},
                 {"mean_square_ratio", input.drift.mean_square_ratio},
                 {"channels_above", input.drift.channels_above},
                 {"top_overlap", input.drift.top_overlap}}},
               {"residual", input.residual},
               {"capped", input.capped}};
  if (input.clipped) json["clipping"] = {{"values", *input.clipped}, {"largest", input.clipped_largest}};
  Json& histograms = json["histograms"] = Json::object();
  if (input.rtn) histograms["rtn"] = *input.rtn;
  if (input.before) histograms["before"] = *input.before;
  if (input.after) histograms["after"] = *input.after;
  if (input.bound)
    json["bound"] = {{"values", input.bound->values},
                     {"guaranteed", input.bound->guaranteed},
                     {"violations", input.bound->violations},
                     {"above_outside", input.bound->above_outside},
                     {"largest_share", input.bound->largest_share},
                     {"largest_alpha", input.bound->largest_alpha},
                     {"mean_square", input.bound->mean_square},
                     {"mxfp8_largest_share", input.bound->mxfp8_largest_share},
                     {"mxfp8_mean_square", input.bound->mxfp8_mean_square}};
  return json;
}

Json to_json(const LinearAnalysis& linear) {
  Json json = {{"name", linear.name},
               {"input", linear.input},
               {"layer", linear.layer},
               {"out", linear.out},
               {"in", linear.in},
               {"elements", linear.out * linear.in},
               {"output_square", linear.output_square}};
  Json& methods = json["methods"] = Json::object();
  for (const auto& [name, error] : linear.methods) methods[name] = to_json(error);
  Json& formats = json["formats"] = Json::object();
  for (const auto& [name, format] : linear.formats) {
    formats[name] = to_json(format.error);
    formats[name]["bits"] = format.bits;
  }
  return json;
}

double not_negative(const Json& object, const char* key, const std::string& where) {
  const double value = json_double(object, key, where);
  if (!(value >= 0)) fail_input("{}: \"{}\" is {}, expected 0 or more", where, key, value);
  return value;
}

std::int64_t counted(const Json& object, const char* key, const std::string& where) {
  const std::int64_t value = json_int64(object, key, where);
  if (value < 0) fail_input("{}: \"{}\" is {}, expected 0 or more", where, key, value);
  return value;
}

std::int64_t layer_of(const Json& object, const std::string& where) {
  const std::int64_t layer = json_int64(object, "layer", where);
  if (layer < -1 || layer > 100000)
    fail_input("{}: \"layer\" is {}, expected a layer's number, or -1 for the head", where, layer);
  return layer;
}

std::vector<std::string> strings(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> list;
  for (const Json& entry : json_array(object, key, where)) {
    if (!entry.is_string()) fail_input("{}: \"{}\" must hold strings only", where, key);
    list.push_back(entry.get<std::string>());
  }
  return list;
}

std::optional<ErrorHistogram> histogram(const Json& object, const char* key, const std::string& where) {
  if (!json_find(object, key)) return std::nullopt;
  const Json& bins = json_array(object, key, where);
  ErrorHistogram counts{};
  if (bins.size() != counts.size())
    fail_input("{}: \"{}\" has {} bins, expected {}", where, key, bins.size(), counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const bool negative =
        !bins[i].is_number_unsigned() && bins[i].is_number_integer() && bins[i].get<std::int64_t>() < 0;
    if (!bins[i].is_number_integer() || negative || bins[i].get<std::uint64_t>() >> 62)
      fail_input("{}: \"{}\" must hold whole numbers from 0 up", where, key);
    counts[i] = bins[i].get<std::int64_t>();
  }
  return counts;
}

BoundCheck parse_bound(const Json& json, const std::string& where) {
  return {.values = counted(json, "values", where),
          .guaranteed = counted(json, "guaranteed", where),
          .violations = counted(json, "violations", where),
          .above_outside = counted(json, "above_outside", where),
          .largest_share = not_negative(json, "largest_share", where),
          .largest_alpha = not_negative(json, "largest_alpha", where),
          .mean_square = not_negative(json, "mean_square", where),
          .mxfp8_largest_share = not_negative(json, "mxfp8_largest_share", where),
          .mxfp8_mean_square = not_negative(json, "mxfp8_mean_square", where)};
}

InputAnalysis parse_input(const Json& json, const std::string& file) {
  InputAnalysis input;
  input.name = json_string(json, "name", file + ": inputs");
  const std::string where = file + ": " + quote(input.name);
  input.layer = layer_of(json, where);
  input.channels = counted(json, "channels", where);
  if (input.channels == 0) fail_input("{}: \"channels\" is 0, expected 1 or more", where);
  input.absmax = not_negative(json, "absmax", where);
  input.calibrated_absmax = not_negative(json, "calibrated_absmax", where);
  input.above_tau = not_negative(json, "above_tau", where);
  const Json& drift = json_object(json, "drift", where);
  input.drift = {.absmax_ratio = not_negative(drift, "absmax_ratio", where),
                 .mean_square_ratio = not_negative(drift, "mean_square_ratio", where),
                 .channels_above = counted(drift, "channels_above", where),
                 .top_overlap = not_negative(drift, "top_overlap", where)};
  input.residual = counted(json, "residual", where);
  input.capped = json_bool(json, "capped", where);
  if (json_find(json, "clipping")) {
    const Json& clipping = json_object(json, "clipping", where);
    input.clipped = counted(clipping, "values", where);
    input.clipped_largest = not_negative(clipping, "largest", where);
  }
  const Json& histograms = json_object(json, "histograms", where);
  input.rtn = histogram(histograms, "rtn", where);
  input.before = histogram(histograms, "before", where);
  input.after = histogram(histograms, "after", where);
  if (json_find(json, "bound")) input.bound = parse_bound(json_object(json, "bound", where), where);
  return input;
}

OutputError parse_error(const Json& json, const std::string& where) {
  return {.both = not_negative(json, "both", where), .weights = not_negative(json, "weights", where)};
}

LinearAnalysis parse_linear(const Json& json, const std::string& file) {
  LinearAnalysis linear;
  linear.name = json_string(json, "name", file + ": linears");
  const std::string where = file + ": " + quote(linear.name);
  linear.input = json_string(json, "input", where);
  linear.layer = layer_of(json, where);
  linear.out = counted(json, "out", where);
  linear.in = counted(json, "in", where);
  const auto elements = checked_mul(linear.out, linear.in);
  if (!elements || *elements != counted(json, "elements", where))
    fail_input("{}: \"elements\" is not \"out\" times \"in\"", where);
  linear.output_square = not_negative(json, "output_square", where);
  for (const auto& [name, error] : json_object(json, "methods", where).items())
    linear.methods.emplace(name, parse_error(error, where + ": " + quote(name)));
  for (const auto& [name, format] : json_object(json, "formats", where).items()) {
    const std::string place = where + ": " + quote(name);
    linear.formats.emplace(name,
                           FormatError{parse_error(format, place), not_negative(format, "bits", place)});
  }
  return linear;
}

}  // namespace

Json to_json(const Analysis& analysis) {
  Json json = {{"halfbyte_analysis", kAnalysisVersion},
               {"command", analysis.command},
               {"model", analysis.model},
               {"stats", analysis.stats},
               {"texts", analysis.texts},
               {"format", analysis.format},
               {"windows", analysis.windows},
               {"seq_len", analysis.seq_len},
               {"tokens", analysis.tokens},
               {"tau", analysis.tau},
               {"residual_rule", analysis.residual_rule},
               {"methods", analysis.methods},
               {"formats", analysis.formats},
               {"inputs", Json::array()},
               {"linears", Json::array()},
               {"findings", analysis.findings}};
  for (const InputAnalysis& input : analysis.inputs) json["inputs"].push_back(to_json(input));
  for (const LinearAnalysis& linear : analysis.linears) json["linears"].push_back(to_json(linear));
  return json;
}

bool is_analysis(const Json& json) { return json_find(json, "halfbyte_analysis") != nullptr; }

Analysis parse_analysis(const Json& json, const std::string& file) {
  if (const std::int64_t version = json_int64(json, "halfbyte_analysis", file); version != kAnalysisVersion)
    fail_input("{}: \"halfbyte_analysis\" is {}, expected {}; another version of halfbyte wrote it", file,
               version, kAnalysisVersion);
  Analysis analysis;
  analysis.command = strings(json, "command", file);
  analysis.model = json_string(json, "model", file);
  analysis.stats = json_string(json, "stats", file);
  analysis.texts = strings(json, "texts", file);
  analysis.format = json_string(json, "format", file);
  analysis.windows = counted(json, "windows", file);
  analysis.seq_len = counted(json, "seq_len", file);
  analysis.tokens = counted(json, "tokens", file);
  analysis.tau = json_double(json, "tau", file);
  analysis.residual_rule = json_string(json, "residual_rule", file);
  analysis.methods = strings(json, "methods", file);
  analysis.formats = strings(json, "formats", file);
  for (const Json& input : json_array(json, "inputs", file))
    analysis.inputs.push_back(parse_input(input, file));
  for (const Json& linear : json_array(json, "linears", file))
    analysis.linears.push_back(parse_linear(linear, file));
  analysis.findings = strings(json, "findings", file);
  return analysis;
}

}  // namespace halfbyte
