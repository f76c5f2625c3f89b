// Reads the BPE model of tokenizer.json and applies its merges in the order of their ranks.
#include "model/bpe.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <queue>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::size_t character_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

void MergeTable::reserve(std::size_t merges) { slots_.assign(std::bit_ceil(2 * merges + 2), Slot{}); }

std::size_t MergeTable::place(std::uint64_t key) const {
  const std::uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
  std::size_t at = static_cast<std::size_t>(mixed >> 20) & (slots_.size() - 1);
  while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[place(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  const Slot& slot = slots_[place(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

Bpe Bpe::from_json(const Json& model, std::string_view file) {
  const std::string where = fmt::format("{}: model", file);
  // Files of before 2020 leave the type out.
  const std::string type = json_optional_string(model, "type", where).value_or("BPE");
  if (type != "BPE") fail(ErrorKind::unsupported, "{} is of type {}, halfbyte reads BPE", where, quote(type));
  if (json_optional_double(model, "dropout", where).value_or(0) != 0)
    fail(ErrorKind::unsupported, "{}: dropout is not supported, since ids would differ from run to run",
         where);
  Bpe bpe;
  bpe.prefix_ = json_optional_string(model, "continuing_subword_prefix", where).value_or("");
  bpe.suffix_ = json_optional_string(model, "end_of_word_suffix", where).value_or("");
  bpe.fuse_unknown_ = json_optional_bool(model, "fuse_unk", where).value_or(false);
  bpe.ignore_merges_ = json_optional_bool(model, "ignore_merges", where).value_or(false);
  bpe.read_vocab(model, where);
  bpe.read_merges(model, where);
  if (const auto unknown = json_optional_string(model, "unk_token", where)) {
    bpe.unknown_ = bpe.id_of(*unknown);
    if (!bpe.unknown_) fail_input("{}: unk_token {} is not in the vocabulary", where, quote(*unknown));
  }
  if (json_optional_bool(model, "byte_fallback", where).value_or(false))
    for (int byte = 0; byte < 256; ++byte)
      bpe.byte_ids_.push_back(bpe.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  return bpe;
}

void Bpe::read_vocab(const Json& model, std::string_view where) {
  const Json& vocab = json_object(model, "vocab", where);
  const auto count = static_cast<std::int64_t>(vocab.size());
  if (count == 0 || count > 1 << 30) fail_input("{}: the vocabulary holds {} tokens", where, count);
  tokens_.resize(vocab.size());
  std::vector<bool> seen(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    if (!value.is_number_integer())
      fail_input("{}: the id of token {} is not a whole number", where, quote(token));
    // An unsigned number above 2^63 reads as negative here and is refused all the same.
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id >= count)
      fail_input("{}: token {} has the id {}, but {} tokens must have the ids 0 to {} without gaps", where,
                 quote(token), value.dump(), count, count - 1);
    const auto index = static_cast<std::size_t>(id);
    if (seen[index])
      fail_input("{}: tokens {} and {} have the same id {}", where, quote(tokens_[index]), quote(token), id);
    seen[index] = true;
    tokens_[index] = token;
  }
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<std::int32_t>(i));
}

void Bpe::read_merges(const Json& model, std::string_view where) {
  const Json& merges = json_array(model, "merges", where);
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  std::string joined;
  const auto known = [&](std::string_view token) {
    const auto id = id_of(token);
    if (!id)
      fail_input("{}: merge {} needs the token {}, which is not in the vocabulary", where, rank,
                 quote(token));
    return *id;
  };
  for (const Json& merge : merges) {
    std::string_view left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        fail_input("{}: merge {} is {}, expected two tokens with one space between", where, rank,
                   quote(text));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      fail_input("{}: merge {} must be \"a b\" or [\"a\", \"b\"]", where, rank);
    }
    if (right.size() < prefix_.size())
      fail_input("{}: merge {} lacks the prefix {}", where, rank, quote(prefix_));
    joined.assign(left);
    joined += right.substr(prefix_.size());
    const std::int32_t left_id = known(left), right_id = known(right);
    merges_.set(left_id, right_id, {rank, known(joined)});
    ++rank;
  }
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<Bpe::Symbol> Bpe::symbols(std::string_view word) const {
  std::vector<Symbol> result;
  result.reserve(word.size());
  const auto add = [&](std::int32_t id) {
    const auto position = static_cast<std::int32_t>(result.size());
    if (position > 0) result.back().next = position;
    result.push_back({id, position - 1, -1, true});
  };
  bool pending_unknown = false;
  std::string decorated;
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t end = std::min(word.size(), i + character_length(word[i]));
    std::string_view character = word.substr(i, end - i);
    if ((i > 0 && !prefix_.empty()) || (end == word.size() && !suffix_.empty())) {
      decorated = (i > 0 ? prefix_ : "") + std::string(character) + (end == word.size() ? suffix_ : "");
      character = decorated;
    }
    i = end;
    if (const auto id = id_of(character)) {
      if (pending_unknown) add(*unknown_);
      pending_unknown = false;
      add(*id);
      continue;
    }
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (!byte_ids_.empty() &&
        std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; })) {
      // A pending unknown stays pending across bytes, as in the tokenizers package.
      for (char byte : character) add(byte_id(byte));
      continue;
    }
    if (!unknown_) continue;  // such a character vanishes
    if (pending_unknown && !fuse_unknown_) add(*unknown_);
    pending_unknown = true;
  }
  if (pending_unknown) add(*unknown_);
  return result;
}

void Bpe::merge(std::vector<Symbol>& symbols) const {
  struct Candidate {
    std::int32_t rank, position, result;
    bool operator<(
        const Candidate& other) const {  // the queue gives its largest first: lowest rank, then leftmost
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Candidate> start;
  start.reserve(symbols.size());
  const auto at = [&](std::int32_t position) -> Symbol& {
    return symbols[static_cast<std::size_t>(position)];
  };
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i)
    if (const auto* found = merges_.find(at(i).id, at(i + 1).id))
      start.push_back({found->rank, i, found->result});
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(start));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = at(top.position);
    if (!left.alive || left.next < 0) continue;
    Symbol& right = at(left.next);
    // The pair may have changed since it was queued; another pair with the same result is merged as well as the
    // queued one, as the tokenizers package does.
    const auto* now = merges_.find(left.id, right.id);
    if (!now || now->result != top.result) continue;
    left.id = top.result;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (left.previous >= 0)
      if (const auto* found = merges_.find(at(left.previous).id, left.id))
        queue.push({found->rank, left.previous, found->result});
    if (left.next >= 0)
      if (const auto* found = merges_.find(left.id, at(left.next).id))
        queue.push({found->rank, top.position, found->result});
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  if (ignore_merges_) {
    if (const auto id = id_of(word)) {
      out.push_back(*id);
      return;
    }
  }
  if (word.size() >= std::size_t{1} << 31)
    fail(ErrorKind::unsupported, "a word of {} bytes is too long to encode; split the text", word.size());
  std::vector<Symbol> list = symbols(word);
  merge(list);
  for (const Symbol& symbol : list)
    if (symbol.alive) out.push_back(symbol.id);
}

}  // namespace halfbyte
