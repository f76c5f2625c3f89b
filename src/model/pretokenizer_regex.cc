// Translates Oniguruma's expressions to PCRE2's and finds their matches.
#include "model/pretokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

std::string range_text(char32_t lo, char32_t hi) {
  if (lo == hi) return fmt::format("\\x{{{:X}}}", static_cast<unsigned>(lo));
  return fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<unsigned>(lo), static_cast<unsigned>(hi));
}

std::string ranges_text(std::span<const CodeRange> ranges) {
  std::string text;
  for (const CodeRange& range : ranges) text += range_text(range.lo, range.hi);
  return text;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        const std::string inside = escape();
        out_ += is_class_ ? fmt::format("[{}{}]", negated_ ? "^" : "", inside) : inside;
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repetition();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) {
    fail(ErrorKind::unsupported, "{}: the pattern {} uses {}, which halfbyte does not support", where_,
         quote(in_), what);
  }

  char need() {
    if (at_ >= in_.size()) refuse("an unfinished construct");
    return in_[at_++];
  }

  // The category of \p{...} as the members of a class.
  std::string property(std::string_view name) {
    static constexpr std::string_view kKnown =
        " L M N P S Z Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp ";
    const bool known = !name.empty() && name.size() <= 2 && name.find(' ') == name.npos &&
                       kKnown.find(fmt::format(" {} ", name)) != kKnown.npos;
    if (!known) refuse(fmt::format("the property {}", quote(name)));
    std::string text = fmt::format("\\p{{{}}}", name);
    for (const CategoryRange& range : added_categories())
      if (range.category.starts_with(name)) text += range_text(range.lo, range.hi);
    return text;
  }

  std::string hex(std::size_t digits) {
    const auto is_hex = [](char c) {
      return std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos;
    };
    std::size_t end = at_;
    while (end < in_.size() && end - at_ < digits && is_hex(in_[end])) ++end;
    if (end == at_) refuse("an escape without hexadecimal digits");
    const std::string text = fmt::format("\\x{{{}}}", in_.substr(at_, end - at_));
    at_ = end;
    return text;
  }

  // Reads an escape. With is_class_ it stands for a set, given as the members of a class, and negated_ for all others.
  std::string escape() {
    is_class_ = negated_ = false;
    ++at_;
    const char c = need();
    switch (c) {
      case 's':
      case 'S':
        is_class_ = true;
        negated_ = c == 'S';
        return ranges_text(white_space());
      case 'd':
      case 'D':
        is_class_ = true;
        negated_ = c == 'D';
        return property("Nd");
      case 'w':
      case 'W':
        is_class_ = true;
        negated_ = c == 'W';
        return property("L") + property("M") + property("Nd") + property("Nl") + property("Pc") +
               ranges_text(other_pattern_word());
      case 'p':
      case 'P': {
        is_class_ = true;
        negated_ = c == 'P';
        if (need() != '{') refuse("\\p without braces");
        if (at_ < in_.size() && in_[at_] == '^') {
          negated_ = !negated_;
          ++at_;
        }
        const std::size_t end = std::min(in_.find('}', at_), in_.size());
        const std::string text = property(in_.substr(at_, end - at_));
        at_ = end;
        need();
        return text;
      }
      case 'x':
        if (at_ < in_.size() && in_[at_] == '{') {
          ++at_;
          std::string text = hex(8);
          if (need() != '}') refuse("an unfinished \\x{");
          return text;
        }
        return hex(2);
      case 'u':
        return hex(4);
      case 'v':
        return "\\x0B";
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        return {'\\', c};
      default:
        if (static_cast<unsigned char>(c) >= 0x80) return std::string(1, c);
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
          refuse(fmt::format("the escape \\{}", c));
        return {'\\', c};
    }
  }

  void character_class() {
    out_ += '[';
    ++at_;
    if (at_ < in_.size() && in_[at_] == '^') {
      out_ += '^';
      ++at_;
    }
    if (at_ < in_.size() && in_[at_] == ']') refuse("a class that starts with ]");
    for (;;) {
      const char c = need();
      if (c == ']') break;
      if (c == '[') refuse("a class inside a class");
      if (c == '&' && at_ < in_.size() && in_[at_] == '&') refuse("an intersection of classes");
      if (c != '\\') {
        out_ += c;
        continue;
      }
      --at_;
      const std::string inside = escape();
      if (negated_ && inside == ranges_text(white_space()))
        out_ += ranges_text(not_white_space());
      else if (negated_)
        refuse("a negated set inside a class");
      else
        out_ += inside;
    }
    out_ += ']';
  }

  static std::vector<CodeRange> not_white_space() {
    std::vector<CodeRange> rest;
    char32_t next = 0;
    for (const CodeRange& range : white_space()) {
      if (range.lo > next) rest.push_back({next, range.lo - 1});
      next = range.hi + 1;
    }
    // PCRE2 takes no surrogates in UTF mode; white space has none on either side of them.
    rest.push_back({next, 0xD7FF});
    rest.push_back({0xE000, 0x10FFFF});
    return rest;
  }

  void group() {
    static constexpr std::array<std::string_view, 8> kOpenings = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
    if (in_.substr(at_, 2) == "(*") refuse("a verb or an unescaped * after (");
    if (in_.substr(at_, 2) != "(?") {
      out_ += '(';
      ++at_;
      return;
    }
    for (std::string_view opening : kOpenings)
      if (in_.substr(at_, opening.size()) == opening && (opening != "(?i)" || at_ == 0)) {
        out_ += opening;
        at_ += opening.size();
        return;
      }
    refuse(fmt::format("the group {}", quote(in_.substr(at_, 4))));
  }

  // {n}, {n,}, {,m}, {n,m}; anything else in braces is literal text in both.
  void repetition() {
    const std::size_t end = in_.find('}', at_);
    const std::string_view inside = end == in_.npos ? std::string_view() : in_.substr(at_ + 1, end - at_ - 1);
    const auto counts = [](std::string_view text) {
      return text.find_first_not_of("0123456789,") == text.npos &&
             std::count(text.begin(), text.end(), ',') <= 1 && text.find_first_of("0123456789") != text.npos;
    };
    if (!counts(inside)) {
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += fmt::format("{{{}{}}}", inside[0] == ',' ? "0" : "", inside);
    at_ = end + 1;
    const char next = at_ < in_.size() ? in_[at_] : '\0';
    const bool fixed = inside.find(',') == inside.npos;
    if (next == '+' || next == '*' || (next == '?' && fixed)) refuse("a repetition of a repetition");
  }

  std::string_view in_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
  bool is_class_ = false, negated_ = false;
};

// Matching needs these per thread: they hold one match and the stack of compiled code.
struct Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  Scratch() {
    if (!match || !stack || !context) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(match);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

std::string message_of(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  std::string where;
  ~Compiled() { pcre2_code_free(code); }
};

std::string translate_pattern(std::string_view oniguruma, std::string_view where) {
  return Translator(oniguruma, where).run();
}

Pattern Pattern::literal(std::string text, std::string_view where) {
  if (text.empty()) fail(ErrorKind::unsupported, "{}: an empty pattern is not supported", where);
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(std::string_view oniguruma, std::string_view where) {
  if (!is_utf8(oniguruma)) fail_input("{}: the pattern {} is not UTF-8", where, quote(oniguruma));
  Pattern pattern;
  pattern.text_ = std::string(oniguruma);
  const std::string translated = translate_pattern(oniguruma, where);
  auto compiled = std::make_shared<Compiled>();
  compiled->where = std::string(where);
  int error = 0;
  std::size_t offset = 0;
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                 &offset, context.get());
  if (!compiled->code)
    fail_input("{}: the pattern {} is not a sound regular expression: {}", where, quote(oniguruma),
               message_of(error));
  // Without compiled code (refused by some hardened systems) the same expression is interpreted.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

Pattern Pattern::from_json(const Json& value, std::string_view where) {
  if (const Json* text = json_find(value, "String"); text && text->is_string())
    return literal(text->get<std::string>(), where);
  if (const Json* text = json_find(value, "Regex"); text && text->is_string())
    return regex(text->get<std::string>(), where);
  fail_input("{}: a pattern must be {{\"String\": \"...\"}} or {{\"Regex\": \"...\"}}", where);
}

void Pattern::spans(std::string_view text, std::vector<Span>& out) const {
  out.clear();
  std::size_t done = 0;
  const auto found = [&](std::size_t begin, std::size_t end) {
    if (begin > done) out.push_back({done, begin, false});
    out.push_back({begin, end, true});
    done = end;
  };
  if (!compiled_) {
    for (std::size_t at = text.find(text_); at != text.npos; at = text.find(text_, done))
      found(at, at + text_.size());
  } else if (!text.empty()) {
    static thread_local const Scratch scratch;
    std::optional<std::size_t> last_end;
    for (std::size_t from = 0; from <= text.size();) {
      const int result = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                     from, PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0)
        fail(ErrorKind::unsupported, "{}: the pattern {} cannot be matched against a text of {} bytes: {}",
             compiled_->where, quote(text_), text.size(), message_of(result));
      const std::size_t* bounds = pcre2_get_ovector_pointer(scratch.match);
      const std::size_t begin = bounds[0], end = bounds[1];
      if (begin == end && last_end == end) {  // no empty match directly after a match
        if (from >= text.size()) break;
        next_code_point(text, from);
        continue;
      }
      found(begin, end);
      from = end;
      last_end = end;
    }
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

}  // namespace halfbyte
