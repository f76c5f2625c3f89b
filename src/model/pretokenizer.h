// Pre-tokenizers of tokenizer.json: how text is cut into words before byte-pair encoding.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

namespace halfbyte {

// A piece of text on its way through the steps. at_start: nothing of the input stands before it.
struct Piece {
  std::string_view text;
  bool at_start;
};
using PieceSink = std::function<void(Piece)>;

// One step: cuts and rewrites a piece and hands on what comes out, never an empty piece.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void run(Piece piece, const PieceSink& next) const = 0;
};

class PreTokenizers {
 public:
  // The "pre_tokenizer" of tokenizer.json, or null for none. Types: ByteLevel, Digits, Metaspace, Split, Sequence.
  static PreTokenizers from_json(const nlohmann::json& value, std::string_view file);

  void run(Piece piece, const PieceSink& words) const;

 private:
  std::vector<std::shared_ptr<const PreTokenizer>> steps_;
};

// Bytes as the printable characters that stand for them in a byte-level vocabulary ("\n" is U+010A).
std::string bytes_to_characters(std::string_view bytes);
// The reverse, or the text itself where it holds any other character.
std::string characters_to_bytes(std::string_view text);

}  // namespace halfbyte
