// The steps of a normalizer, each as the tokenizers package does it.
#include "model/tokenizer_normalizer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/pretokenizer_regex.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

using Step = std::function<std::string(std::string_view)>;

Step replace(Pattern pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](std::string_view text) {
    std::vector<Span> spans;
    pattern.spans(text, spans);
    std::string out;
    for (const Span& span : spans)
      if (span.match)
        out += content;
      else
        out += text.substr(span.begin, span.end - span.begin);
    return out;
  };
}

void read_steps(const Json& value, std::string_view where, std::vector<Step>& steps) {
  static constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms{
      {{"NFC", NormalForm::nfc},
       {"NFD", NormalForm::nfd},
       {"NFKC", NormalForm::nfkc},
       {"NFKD", NormalForm::nfkd}}};
  const std::string type = json_string(value, "type", where);
  for (const auto& [name, form] : kForms)
    if (type == name) {
      steps.push_back([f = form](std::string_view text) { return normalize(text, f); });
      return;
    }
  if (type == "Sequence") {
    for (const Json& step : json_array(value, "normalizers", where)) read_steps(step, where, steps);
  } else if (type == "Prepend") {
    steps.push_back([prefix = json_string(value, "prepend", where)](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    });
  } else if (type == "Replace") {
    steps.push_back(replace(Pattern::from_json(json_member(value, "pattern", where), where),
                            json_string(value, "content", where)));
  } else {
    fail(ErrorKind::unsupported,
         "{} of type {} is not supported; halfbyte knows NFC, NFD, NFKC, NFKD, Prepend, Replace "
         "and Sequence",
         where, quote(type));
  }
}

}  // namespace

Normalizer Normalizer::from_json(const Json& value, std::string_view file) {
  Normalizer result;
  if (!value.is_null()) read_steps(value, fmt::format("{}: normalizer", file), result.steps_);
  return result;
}

std::string Normalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) result = step(result);
  return result;
}

}  // namespace halfbyte
