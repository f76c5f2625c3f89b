// Normalizers of tokenizer.json: rewriting of text before it is cut into words.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

class Normalizer {
 public:
  // The "normalizer" of tokenizer.json, or null for none. Types: NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence.
  static Normalizer from_json(const nlohmann::json& value, std::string_view file);

  bool empty() const { return steps_.empty(); }
  std::string operator()(std::string_view text) const;

 private:
  std::vector<std::function<std::string(std::string_view)>> steps_;
};

}  // namespace halfbyte
