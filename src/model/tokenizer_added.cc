// Reads added tokens and finds them, with the rules of the tokenizers package for white space and words around them.
#include "model/tokenizer_added.h"

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

bool word_before(std::string_view text, std::size_t position) {
  return position > 0 && is_word(previous_code_point(text, position));
}

bool word_after(std::string_view text, std::size_t position) {
  return position < text.size() && is_word(next_code_point(text, position));
}

}  // namespace

AddedToken read_added_token(const Json& value, std::string_view where) {
  AddedToken token;
  const auto flag = [&](std::string_view key, bool otherwise) {
    return json_optional_bool(value, key, where).value_or(otherwise);
  };
  token.content = json_string(value, "content", where);
  if (token.content.empty()) fail_input("{}: an added token is empty", where);
  token.special = flag("special", false);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

void AddedTokenFinder::add(std::string_view text, const AddedToken& token) {
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (char c : text) {
    const auto [child, added] =
        children_.try_emplace(std::uint64_t{node} << 8 | static_cast<unsigned char>(c), nodes_);
    if (added) ++nodes_;
    node = child->second;
  }
  ends_[node] = tokens_.size();
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
  Match best;
  std::uint32_t node = 0;
  for (std::size_t i = position; i < text.size(); ++i) {
    const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (const auto end = ends_.find(node); end != ends_.end())
      best = {i + 1 - position, &tokens_[end->second]};
  }
  return best;
}

void AddedTokenFinder::split(std::string_view text, const std::function<void(std::string_view)>& plain,
                             const std::function<void(std::int32_t)>& found) const {
  std::size_t done = 0;
  const auto plain_until = [&](std::size_t end) {
    if (done < end) plain(text.substr(done, end - done));
  };
  if (!tokens_.empty())
    for (std::size_t at = 0; at < text.size();) {
      const Match match = starts_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : Match{};
      if (!match.token) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + match.length;
      at = end;
      if (match.token->single_word && (word_before(text, begin) || word_after(text, end))) continue;
      if (match.token->lstrip)
        for (std::size_t i = begin; i > done && is_white_space(previous_code_point(text, i));) begin = i;
      if (match.token->rstrip)
        for (std::size_t i = end; i < text.size() && is_white_space(next_code_point(text, i));) end = i;
      plain_until(begin);
      found(match.token->id);
      // The search goes on behind the token itself, so a token made of white space that was taken is found again.
      done = end;
    }
  plain_until(text.size());
}

}  // namespace halfbyte
