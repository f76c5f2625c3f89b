// Cuts a template into tokens.
#include "model/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "io/text.h"
#include "model/unicode.h"

namespace halfbyte::jinja {

namespace {

bool is_space(char c) { return std::string_view(" \t\n\r\f\v").find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    // All line ends become \n, and one at the very end goes, as Jinja does.
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        if (i + 1 == source.size() || source[i + 1] != '\n') source_ += '\n';
      } else {
        source_ += source[i];
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
    in_ = source_;
  }

  std::vector<Token> run() {
    while (at_ < in_.size()) {
      const std::size_t tag = next_tag();
      std::string_view text = in_.substr(at_, tag - at_);
      if (tag == in_.size()) {
        put_text(text);
        at_ = tag;
        break;
      }
      const char kind = in_[tag + 1];
      const char sign = tag + 2 < in_.size() ? in_[tag + 2] : '\0';
      if (sign == '-')
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      else if (sign != '+' && kind != '{')
        text = without_indent(text);
      put_text(text);
      line_ += static_cast<int>(std::count(in_.begin() + static_cast<std::ptrdiff_t>(at_ + text.size()),
                                           in_.begin() + static_cast<std::ptrdiff_t>(tag), '\n'));
      at_ = tag + (sign == '-' || sign == '+' ? 3 : 2);
      if (kind == '#')
        comment();
      else if (kind == '{')
        inside(TokenType::print_begin, "}}");
      else if (!raw())
        inside(TokenType::block_begin, "%}");
    }
    put(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const { fail_input("line {}: {}", line_, what); }

  void put(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  void put_text(std::string_view text) {
    if (text.empty()) return;
    put(TokenType::text, std::string(text));
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  std::size_t next_tag() const {
    for (std::size_t i = in_.find('{', at_); i != in_.npos && i + 1 < in_.size(); i = in_.find('{', i + 1))
      if (in_[i + 1] == '{' || in_[i + 1] == '%' || in_[i + 1] == '#') return i;
    return in_.size();
  }

  // Without the blanks before a tag that stands first on its line.
  std::string_view without_indent(std::string_view text) const {
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == text.npos ? 0 : newline + 1;
    if (begin == 0 && at_ > 0 && in_[at_ - 1] != '\n') return text;
    return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_space)
               ? text.substr(0, begin)
               : text;
  }

  void skip_space() {
    while (at_ < in_.size() && is_space(in_[at_])) line_ += in_[at_++] == '\n';
  }

  // Takes the end of a tag at this place, with the white space that goes with it.
  bool take_end(std::string_view end) {
    const std::string_view rest = in_.substr(at_);
    const bool minus = rest.starts_with('-') && rest.substr(1).starts_with(end);
    const bool plus = end != "}}" && rest.starts_with('+') && rest.substr(1).starts_with(end);
    if (!minus && !plus && !rest.starts_with(end)) return false;
    at_ += end.size() + (minus || plus);
    if (minus) {
      skip_space();
    } else if (!plus && end != "}}" && at_ < in_.size() && in_[at_] == '\n') {
      ++at_;
      ++line_;
    }
    return true;
  }

  void comment() {
    for (; at_ < in_.size(); ++at_) {
      if (take_end("#}")) return;
      line_ += in_[at_] == '\n';
    }
    refuse("a comment does not end");
  }

  // {% raw %}...{% endraw %}: text to the letter.
  bool raw() {
    const std::size_t start = at_;
    const int line = line_;
    const auto word = [&](std::string_view name) {
      skip_space();
      if (!in_.substr(at_).starts_with(name)) return false;
      at_ += name.size();
      skip_space();
      return take_end("%}");
    };
    if (!word("raw")) {
      at_ = start;
      line_ = line;
      return false;
    }
    for (std::size_t i = in_.find("{%", at_); i != in_.npos; i = in_.find("{%", i + 2)) {
      std::string_view text = in_.substr(at_, i - at_);
      const std::size_t begin = at_;
      const char sign = i + 2 < in_.size() ? in_[i + 2] : '\0';
      if (sign == '-')
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      else if (sign != '+')
        text = without_indent(text);
      at_ = i + (sign == '-' || sign == '+' ? 3 : 2);
      if (word("endraw")) {
        put_text(text);
        return true;
      }
      at_ = begin;
    }
    refuse("raw text does not end");
  }

  void inside(TokenType begin, std::string_view end) {
    put(begin, "");
    std::string open;  // brackets not closed yet
    for (;;) {
      skip_space();
      if (at_ >= in_.size()) refuse(fmt::format("a tag does not end with {}", end));
      if (open.empty() && take_end(end)) break;
      const char c = in_[at_];
      if (is_digit(c)) {
        number();
      } else if (is_letter(c)) {
        const std::size_t start = at_;
        while (at_ < in_.size() && (is_letter(in_[at_]) || is_digit(in_[at_]))) ++at_;
        put(TokenType::name, std::string(in_.substr(start, at_ - start)));
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        op(open);
      }
    }
    put(begin == TokenType::print_begin ? TokenType::print_end : TokenType::block_end, "");
  }

  void op(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOps = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}", ";"};
    for (std::string_view candidate : kOps) {
      if (!in_.substr(at_).starts_with(candidate)) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) refuse(fmt::format("{} closes nothing", c));
        open.pop_back();
      }
      put(TokenType::op, std::string(candidate));
      at_ += candidate.size();
      return;
    }
    refuse(fmt::format("unexpected character {}", quote(in_.substr(at_, 1))));
  }

  void number() {
    std::string digits;
    bool real = false;
    for (; at_ < in_.size(); ++at_) {
      const char c = in_[at_];
      const bool dot = c == '.' && !real && at_ + 1 < in_.size() && is_digit(in_[at_ + 1]);
      if (!is_digit(c) && c != '_' && !dot) break;
      real |= dot;
      if (c != '_') digits += c;
    }
    const std::size_t sign = at_ + 1 < in_.size() && (in_[at_ + 1] == '-' || in_[at_ + 1] == '+') ? 1 : 0;
    if (at_ + 1 + sign < in_.size() && (in_[at_] | 0x20) == 'e' && is_digit(in_[at_ + 1 + sign])) {
      real = true;
      digits += 'e';
      if (sign) digits += in_[at_ + 1];
      for (at_ += 1 + sign; at_ < in_.size() && is_digit(in_[at_]); ++at_) digits += in_[at_];
    }
    if (at_ < in_.size() && is_letter(in_[at_]))
      refuse(fmt::format("{} is not a number", quote(digits + in_[at_])));
    put(real ? TokenType::real : TokenType::integer, digits);
  }

  void string() {
    const char mark = in_[at_++];
    const int line = line_;
    std::string text;
    while (at_ < in_.size() && in_[at_] != mark) {
      line_ += in_[at_] == '\n';
      if (in_[at_] == '\\')
        escape(text);
      else
        text += in_[at_++];
    }
    if (at_ >= in_.size()) refuse("a string does not end");
    ++at_;
    tokens_.push_back({TokenType::string, std::move(text), line});
  }

  // The escapes of Python's strings; an unknown one stays as it is.
  void escape(std::string& text) {
    ++at_;
    if (at_ >= in_.size()) return;
    const char c = in_[at_++];
    static constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    if (const auto i = kFrom.find(c); i != kFrom.npos) {
      text += kTo[i];
    } else if (c == '\n') {  // the line goes on
    } else if (c == 'x' || c == 'u' || c == 'U') {
      code_point(text, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      --at_;
      std::size_t digits = 1;
      while (digits < 3 && at_ + digits < in_.size() && in_[at_ + digits] >= '0' && in_[at_ + digits] <= '7')
        ++digits;
      code_point(text, digits, 8);
    } else {
      text += '\\';
      text += c;
    }
  }

  void code_point(std::string& text, std::size_t digits, unsigned base) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const auto digit = at_ < in_.size()
                             ? std::string_view("0123456789abcdef")
                                   .find(static_cast<char>(is_letter(in_[at_]) ? in_[at_] | 0x20 : in_[at_]))
                             : std::string_view::npos;
      if (digit >= base) refuse("a string has an unfinished escape");
      value = value * base + static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      refuse("a string names a code point that is none");
    append_utf8(text, value);
  }

  std::string source_;
  std::string_view in_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace halfbyte::jinja
