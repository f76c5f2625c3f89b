// SentencePiece BPE of a GGUF file: scores become a list of merges, as transformers does it for the same model.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "checkpoint/gguf_vocab.h"
#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::size_t kMaxPiece = 256;               // bytes; SentencePiece's own default is 16 characters
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

struct Merge {
  std::string_view left, right;
  double score;                           // of the piece it makes
  std::size_t left_length, right_length;  // in characters
  std::int64_t left_id, right_id;
};

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Every way to join two pieces into a third. SentencePiece joins the pair whose result has the highest score; a list
// of merges sorted by that score does the same. Ways to make one piece follow each other, longer left part first.
std::vector<Merge> find_merges(const GgufFile& file, const GgufVocab& vocab) {
  const auto scores = file.numbers("tokenizer.ggml.scores");
  if (static_cast<std::int64_t>(scores.size()) != vocab.size())
    fail_input("{}: has {} token scores for {} tokens", file.path(), scores.size(), vocab.size());
  const auto normal = [&](std::string_view piece) {
    const std::int64_t id = vocab.find(piece);
    return id >= 0 && vocab.kind(id) == TokenKind::normal ? id : -1;
  };
  std::vector<Merge> merges;
  for (std::int64_t id = 0; id < vocab.size(); ++id) {
    if (vocab.kind(id) != TokenKind::normal) continue;
    const std::string_view piece = vocab.text(id);
    const double score = scores[static_cast<std::size_t>(id)];
    if (!std::isfinite(score)) fail_input("{}: token {} has the score {}", file.path(), id, score);
    if (piece.size() > kMaxPiece)
      fail(ErrorKind::unsupported, "{}: token {} is {} bytes long, more than the {} that halfbyte imports",
           file.path(), id, piece.size(), kMaxPiece);
    const std::size_t first = merges.size();
    for (std::size_t at = 1; at < piece.size(); ++at) {
      if ((piece[at] & 0xC0) == 0x80) continue;
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      const std::int64_t left_id = normal(left), right_id = normal(right);
      if (left_id >= 0 && right_id >= 0)
        merges.push_back({left, right, score, characters(left), characters(right), left_id, right_id});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
              });
  }
  std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_length, a.right_length) >
           std::tuple(b.score, b.left_length, b.right_length);
  });
  const auto same = std::ranges::adjacent_find(merges, [](const Merge& a, const Merge& b) {
    return a.score == b.score && std::string(a.left).append(a.right) != std::string(b.left).append(b.right);
  });
  if (same != merges.end())
    fail(ErrorKind::unsupported,
         "{}: several joined pieces have the score {}, so that the order of merging is not known",
         file.path(), same->score);
  return merges;
}

}  // namespace

Json sentencepiece_bpe(const GgufFile& file, const GgufVocab& vocab) {
  const std::string charsmap = "tokenizer.ggml.precompiled_charsmap";
  if (file.has(charsmap) && file.array(charsmap).count != 0)
    fail(ErrorKind::unsupported, "{}: a SentencePiece model with normalization rules ({}) is not supported",
         file.path(), charsmap);
  const auto bytes = [&] {
    std::int64_t count = 0;
    for (std::int64_t id = 0; id < vocab.size(); ++id) {
      if (vocab.kind(id) != TokenKind::byte) continue;
      ++count;
    }
    return count;
  }();
  for (int byte = 0; bytes != 0 && byte < 256; ++byte)
    if (vocab.find(fmt::format("<0x{:02X}>", byte)) < 0 || bytes != 256)
      fail_input("{}: has {} byte tokens, expected none or all of <0x00> to <0xFF>", file.path(), bytes);
  const Json nothing = nullptr;
  Json unknown = nothing;
  for (std::int64_t id = 0; id < vocab.size(); ++id)
    if (vocab.kind(id) == TokenKind::unknown) unknown = vocab.text(id);

  Json merges = Json::array();
  for (const Merge& merge : find_merges(file, vocab)) merges.push_back({merge.left, merge.right});
  const std::string prefix_key = "tokenizer.ggml.add_space_prefix";
  const bool prefix = !file.has(prefix_key) || file.boolean(prefix_key);
  const auto replace = [](std::string_view from, std::string_view to) -> Json {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  Json normalizers = Json::array(), decoders = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace(" ", kSpace));
  decoders.push_back(replace(kSpace, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {
      {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
      {"pre_tokenizer", nothing},
      {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nothing},
        {"unk_token", unknown},
        {"continuing_subword_prefix", nothing},
        {"end_of_word_suffix", nothing},
        {"fuse_unk", true},
        {"byte_fallback", bytes == 256},
        {"ignore_merges", false},
        {"vocab", vocab.json()},
        {"merges", std::move(merges)}}},
  };
}

std::optional<SpacePrefix> sentencepiece_prefix(const Json& tokenizer) {
  const Json* normalizer = json_find(tokenizer, "normalizer");
  const Json* splitter = json_find(tokenizer, "pre_tokenizer");
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", kSpace}};
  const auto sequence = [](Json list) -> Json {
    return {{"type", "Sequence"}, {"normalizers", std::move(list)}};
  };
  if (!splitter && normalizer) {
    if (*normalizer == sequence(Json::array({prepend, replace}))) return SpacePrefix{.prefix = true};
    if (*normalizer == sequence(Json::array({replace})) || *normalizer == replace) return SpacePrefix{};
  }
  if (!normalizer && splitter && splitter->value("type", "") == "Metaspace" &&
      splitter->value("replacement", "") == kSpace && !splitter->value("split", true)) {
    const std::string scheme = splitter->value("prepend_scheme", "always");
    return SpacePrefix{.prefix = scheme != "never", .only_first = scheme == "first"};
  }
  return std::nullopt;
}

std::vector<float> sentencepiece_scores(const std::vector<std::string>& texts,
                                        const std::vector<TokenKind>& kinds,
                                        const std::vector<std::pair<std::string, std::string>>& merges,
                                        const std::string& where) {
  std::unordered_map<std::string_view, std::size_t> normal;
  for (std::size_t id = 0; id < texts.size(); ++id)
    if (kinds[id] == TokenKind::normal) normal.emplace(texts[id], id);
  std::vector<float> scores(texts.size());
  std::vector<std::size_t> ways(texts.size());  // merges that make the piece
  std::string last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string piece = merges[rank].first + merges[rank].second;
    const auto found = normal.find(piece);
    if (found == normal.end())
      fail_input("{}: the merge number {} makes {}, which is no token", where, rank, quote(piece));
    // Ways to make one piece must follow each other, or no score of the piece says when it is made.
    if (ways[found->second]++ != 0 && piece != last)
      fail(ErrorKind::unsupported,
           "{}: merges that make {} have others between them, which scores cannot say", where, quote(piece));
    if (piece != last) scores[found->second] = -static_cast<float>(rank);
    last = piece;
  }
  for (const auto& [piece, id] : normal) {
    std::size_t possible = 0;
    for (std::size_t at = 1; at < std::min(piece.size(), kMaxPiece + 1); ++at)
      possible += (piece[at] & 0xC0) != 0x80 && normal.contains(piece.substr(0, at)) &&
                  normal.contains(piece.substr(at));
    if (possible != ways[id])
      fail(ErrorKind::unsupported,
           "{}: {} can be made of two tokens in {} ways and {} of them are merges, but llama.cpp knows "
           "pieces and scores only",
           where, quote(piece), possible, ways[id]);
  }
  return scores;
}

}  // namespace halfbyte
