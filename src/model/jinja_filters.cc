// Filters, tests and methods: one row a name.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/fail.h"
#include "io/text.h"
#include "model/jinja_eval.h"
#include "model/unicode.h"

namespace halfbyte::jinja {

namespace {

const std::string& need_text(const Value& value, std::string_view what) {
  const auto* text = value.text();
  if (!text) fail_input("{} needs a string, not a value of type {}", what, value.type());
  return *text;
}

// The argument of that place or name, or otherwise.
Value argument(const Call& call, std::size_t place, std::string_view name, Value otherwise) {
  const Value* given = call.find(place, name);
  return given ? *given : std::move(otherwise);
}

std::int64_t need_whole(const Value& value, std::string_view what) {
  const auto* number = value.get<std::int64_t>();
  if (!number) fail_input("{} needs a whole number, not a value of type {}", what, value.type());
  return *number;
}

std::string cased(std::string_view text, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  std::string out;
  for (std::size_t i = 0; i < text.size();)
    append_utf8(out, static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(next_code_point(text, i)))));
  return out;
}

bool is_letter(char32_t c) { return utf8proc_category_string(static_cast<utf8proc_int32_t>(c))[0] == 'L'; }

// Every letter that follows no letter in title case, the others in lower case.
std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    const auto code = static_cast<utf8proc_int32_t>(c);
    append_utf8(out, static_cast<char32_t>(inside ? utf8proc_tolower(code) : utf8proc_totitle(code)));
    inside = is_letter(c);
  }
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const auto code = static_cast<utf8proc_int32_t>(next_code_point(text, i));
    append_utf8(out, static_cast<char32_t>(first ? utf8proc_totitle(code) : utf8proc_tolower(code)));
  }
  return out;
}

// Takes characters off the ends that are in chars, or white space where chars is none (Python counts four more).
std::string stripped(std::string_view text, const Value& chars, bool left, bool right) {
  std::vector<char32_t> set;
  if (const auto* given = chars.text())
    for (std::size_t i = 0; i < given->size();) set.push_back(next_code_point(*given, i));
  const auto goes = [&](char32_t c) {
    if (chars.text()) return std::find(set.begin(), set.end(), c) != set.end();
    return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
  };
  while (left && !text.empty()) {
    std::size_t end = 0;
    if (!goes(next_code_point(text, end))) break;
    text.remove_prefix(end);
  }
  while (right && !text.empty()) {
    std::size_t begin = text.size();
    if (!goes(previous_code_point(text, begin))) break;
    text = text.substr(0, begin);
  }
  return std::string(text);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t count) {
  std::string out;
  std::size_t done = 0;
  if (from.empty()) {  // before each character and at the end
    for (std::size_t i = 0; i <= text.size() && count != 0; --count) {
      out += to;
      done = i;
      if (i == text.size()) break;
      next_code_point(text, i);
      out += text.substr(done, i - done);
      done = i;
    }
    return out + text.substr(done);
  }
  for (; count != 0; --count) {
    const std::size_t found = text.find(from, done);
    if (found == text.npos) break;
    out.append(text, done, found - done);
    out += to;
    if (out.size() > std::size_t{64} << 20) fail_input("a string grows too long");
    done = found + from.size();
  }
  return out.append(text, done);
}

Value split(const std::string& text, const Value& separator, std::int64_t most) {
  std::vector<Value> parts;
  std::string_view rest = text;
  if (const auto* between = separator.text()) {
    if (between->empty()) fail_input("split needs a separator that is not empty");
    for (std::size_t at; most != 0 && (at = rest.find(*between)) != rest.npos; --most) {
      parts.emplace_back(std::string(rest.substr(0, at)));
      rest.remove_prefix(at + between->size());
    }
    parts.emplace_back(std::string(rest));
    return Value::list(std::move(parts));
  }
  std::string word;
  for (std::size_t i = 0; i < rest.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(rest, i);
    if (!is_white_space(c)) {
      if (word.empty() && most-- == 0) {
        parts.emplace_back(std::string(rest.substr(begin)));
        return Value::list(std::move(parts));
      }
      word += rest.substr(begin, i - begin);
    } else if (!word.empty()) {
      parts.emplace_back(std::exchange(word, ""));
    }
  }
  if (!word.empty()) parts.emplace_back(std::move(word));
  return Value::list(std::move(parts));
}

// The attribute of an item, along a path with dots.
Value attribute_of(Value item, const std::string& path) {
  std::size_t begin = 0;
  for (;;) {
    const std::size_t dot = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, dot - begin);
    item = at(item, Value(name));
    if (dot == path.size()) return item;
    begin = dot + 1;
  }
}

Value join(const Value& value, const Call& call) {
  const std::string between = to_text(argument(call, 0, "d", ""));
  const Value attribute = argument(call, 1, "attribute", Value::none());
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value)) {
    if (!std::exchange(first, false)) out += between;
    out += to_text(attribute.text() ? attribute_of(item, *attribute.text()) : item);
    if (out.size() > std::size_t{64} << 20) fail_input("a string grows too long");
  }
  return out;
}

Value items_of(const Value& value) {
  if (value.is<Undefined>()) return Value::list({});
  if (!value.is<DictPtr>()) fail_input("items needs a dict, not a value of type {}", value.type());
  std::vector<Value> items;
  for (const auto& [key, item] : *value.entries()) items.push_back(Value::list({Value(key), item}));
  return Value::list(std::move(items));
}

Value map(const Value& value, const Call& call) {
  std::vector<Value> out;
  const Value* attribute = call.find(call.args.size(), "attribute");
  const Value* otherwise = call.find(call.args.size(), "default");
  if (!attribute && call.args.empty()) fail_input("map needs the name of a filter or an attribute");
  Call rest;
  if (!attribute) rest.args.assign(call.args.begin() + 1, call.args.end());
  for (const Value& item : iterate(value)) {
    if (!attribute) {
      out.push_back(apply_filter(need_text(call.args[0], "map"), item, rest));
      continue;
    }
    Value found = attribute_of(item, need_text(*attribute, "map"));
    out.push_back(found.is<Undefined>() && otherwise ? *otherwise : std::move(found));
  }
  return Value::list(std::move(out));
}

// select, reject (by_attribute = false), selectattr, rejectattr.
Value choose(const Value& value, const Call& call, bool by_attribute, bool keep) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (call.args.size() < first) fail_input("selectattr and rejectattr need the name of an attribute");
  Call rest;
  if (call.args.size() > first)
    rest.args.assign(call.args.begin() + static_cast<std::ptrdiff_t>(first) + 1, call.args.end());
  std::vector<Value> out;
  for (const Value& item : iterate(value)) {
    const Value tested = by_attribute ? attribute_of(item, need_text(call.args[0], "selectattr")) : item;
    const bool holds = call.args.size() > first
                           ? apply_test(need_text(call.args[first], "select"), tested, rest)
                           : tested.truthy();
    if (holds == keep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value whole_number(const Value& value, const Value& otherwise) {
  if (value.is<std::int64_t>()) return value;
  if (const auto* truth = value.get<bool>()) return std::int64_t{*truth};
  if (const auto* real = value.get<double>(); real && std::abs(*real) < 9e18)
    return static_cast<std::int64_t>(*real);
  if (!value.text()) return otherwise;
  const std::string text = stripped(*value.text(), Value::none(), true, true);
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  std::int64_t whole = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return whole;
  double real = 0;
  const auto [real_end, real_error] = std::from_chars(begin, text.data() + text.size(), real);
  if (real_error == std::errc() && real_end == text.data() + text.size() && std::abs(real) < 9e18)
    return static_cast<std::int64_t>(real);
  return otherwise;
}

Value real_number(const Value& value, const Value& otherwise) {
  if (value.is<double>()) return value;
  if (value.is<std::int64_t>() || value.is<bool>()) return arithmetic("/", value, Value(std::int64_t{1}));
  if (!value.text()) return otherwise;
  const std::string text = stripped(*value.text(), Value::none(), true, true);
  double real = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
  return error == std::errc() && end == text.data() + text.size() ? Value(real) : otherwise;
}

Value reversed(const Value& value) {
  return slice(value.is<DictPtr>() ? Value::list(iterate(value)) : value, Value::none(), Value::none(),
               Value(std::int64_t{-1}));
}

Value unique(const Value& value) {
  std::vector<Value> out;
  for (Value& item : iterate(value))
    if (std::none_of(out.begin(), out.end(), [&](const Value& v) { return equal(v, item); }))
      out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value indented(const Value& value, const Call& call) {
  const Value width = argument(call, 0, "width", Value(std::int64_t{4}));
  const std::string blanks = width.text() ? *width.text()
                                          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                            need_whole(width, "indent"), 0, 1000)),
                                                        ' ');
  const bool first = argument(call, 1, "first", false).truthy(),
             blank = argument(call, 2, "blank", false).truthy();
  const std::string text = to_text(value);
  std::string out = first ? blanks : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && (blank || (i + 1 < text.size() && text[i + 1] != '\n'))) out += blanks;
    if (out.size() > std::size_t{64} << 20) fail_input("a string grows too long");
  }
  return out;
}

Value json_filter(const Value& value, const Call& call) {
  if (!call.args.empty()) fail_input("tojson takes named arguments only");
  Value indent = Value::none();
  for (const auto& [name, given] : call.named) {
    if (name == "indent")
      indent = given;
    else if (name != "ensure_ascii" || given.truthy())
      fail_input("tojson with {} is not supported", name);
  }
  if (indent.is<None>()) return to_json(value, -1);
  return to_json(value, static_cast<int>(std::clamp<std::int64_t>(need_whole(indent, "tojson"), 0, 64)));
}

Value end_of(const Value& value, bool last) {
  std::vector<Value> items = iterate(value);
  return items.empty() ? Value() : last ? items.back() : items.front();
}

using Filter = Value (*)(const Value&, const Call&);
struct FilterRow {
  std::string_view name;
  Filter run;
};

constexpr FilterRow kFilters[] = {
    {"abs",
     [](const Value& v, const Call&) {
       return less(v, Value(std::int64_t{0})) ? arithmetic("-", Value(std::int64_t{0}), v) : v;
     }},
    {"capitalize", [](const Value& v, const Call&) -> Value { return capitalized(to_text(v)); }},
    {"count", [](const Value& v, const Call&) -> Value { return length(v); }},
    {"d", [](const Value& v, const Call& c) { return apply_filter("default", v, c); }},
    {"default",
     [](const Value& v, const Call& c) {
       const bool also_false = argument(c, 1, "boolean", false).truthy();
       return v.is<Undefined>() || (also_false && !v.truthy()) ? argument(c, 0, "default_value", "") : v;
     }},
    {"first", [](const Value& v, const Call&) { return end_of(v, false); }},
    {"float", [](const Value& v, const Call& c) { return real_number(v, argument(c, 0, "default", 0.0)); }},
    {"indent", indented},
    {"int", [](const Value& v,
               const Call& c) { return whole_number(v, argument(c, 0, "default", std::int64_t{0})); }},
    {"items", [](const Value& v, const Call&) { return items_of(v); }},
    {"join", join},
    {"last", [](const Value& v, const Call&) { return end_of(v, true); }},
    {"length", [](const Value& v, const Call&) -> Value { return length(v); }},
    {"list", [](const Value& v, const Call&) { return Value::list(iterate(v)); }},
    {"lower", [](const Value& v, const Call&) -> Value { return cased(to_text(v), utf8proc_tolower); }},
    {"map", map},
    {"reject", [](const Value& v, const Call& c) { return choose(v, c, false, false); }},
    {"rejectattr", [](const Value& v, const Call& c) { return choose(v, c, true, false); }},
    {"replace",
     [](const Value& v, const Call& c) -> Value {
       const std::int64_t count =
           whole_number(argument(c, 2, "count", std::int64_t{-1}), Value(std::int64_t{-1}))
               .get<std::int64_t>()[0];
       return replaced(to_text(v), to_text(argument(c, 0, "old", "")), to_text(argument(c, 1, "new", "")),
                       count);
     }},
    {"reverse", [](const Value& v, const Call&) { return reversed(v); }},
    {"safe", [](const Value& v, const Call&) { return v; }},
    {"select", [](const Value& v, const Call& c) { return choose(v, c, false, true); }},
    {"selectattr", [](const Value& v, const Call& c) { return choose(v, c, true, true); }},
    {"string", [](const Value& v, const Call&) -> Value { return to_text(v); }},
    {"title", [](const Value& v, const Call&) -> Value { return titled(to_text(v)); }},
    {"tojson", json_filter},
    {"trim",
     [](const Value& v, const Call& c) -> Value {
       return stripped(to_text(v), argument(c, 0, "chars", Value::none()), true, true);
     }},
    {"unique", [](const Value& v, const Call&) { return unique(v); }},
    {"upper", [](const Value& v, const Call&) -> Value { return cased(to_text(v), utf8proc_toupper); }},
};

bool is_number(const Value& v) { return v.is<std::int64_t>() || v.is<double>() || v.is<bool>(); }
const Value& other(const Call& call, std::string_view test) {
  if (call.args.empty()) fail_input("the test {} needs an argument", test);
  return call.args[0];
}
bool divides(const Value& v, std::int64_t by) {
  if (by == 0) fail_input("division by zero");
  return equal(arithmetic("%", v, Value(by)), Value(std::int64_t{0}));
}

struct TestRow {
  std::string_view name;
  bool (*holds)(const Value&, const Call&);
};

constexpr TestRow kTests[] = {
    {"!=", [](const Value& v, const Call& c) { return !equal(v, other(c, "!=")); }},
    {"==", [](const Value& v, const Call& c) { return equal(v, other(c, "==")); }},
    {"boolean", [](const Value& v, const Call&) { return v.is<bool>(); }},
    {"callable", [](const Value& v, const Call&) { return v.is<FunctionPtr>(); }},
    {"defined", [](const Value& v, const Call&) { return !v.is<Undefined>(); }},
    {"divisibleby",
     [](const Value& v, const Call& c) {
       return divides(v, need_whole(other(c, "divisibleby"), "divisibleby"));
     }},
    {"eq", [](const Value& v, const Call& c) { return equal(v, other(c, "eq")); }},
    {"equalto", [](const Value& v, const Call& c) { return equal(v, other(c, "equalto")); }},
    {"even", [](const Value& v, const Call&) { return divides(v, 2); }},
    {"false", [](const Value& v, const Call&) { return v.is<bool>() && !v.truthy(); }},
    {"float", [](const Value& v, const Call&) { return v.is<double>(); }},
    {"ge", [](const Value& v, const Call& c) { return !less(v, other(c, "ge")); }},
    {"gt", [](const Value& v, const Call& c) { return less(other(c, "gt"), v); }},
    {"in", [](const Value& v, const Call& c) { return contains(other(c, "in"), v); }},
    {"integer", [](const Value& v, const Call&) { return v.is<std::int64_t>(); }},
    {"iterable", [](const Value& v,
                    const Call&) { return v.text() || v.items() || v.is<DictPtr>() || v.is<Undefined>(); }},
    {"le", [](const Value& v, const Call& c) { return !less(other(c, "le"), v); }},
    {"lt", [](const Value& v, const Call& c) { return less(v, other(c, "lt")); }},
    {"mapping", [](const Value& v, const Call&) { return v.is<DictPtr>(); }},
    {"ne", [](const Value& v, const Call& c) { return !equal(v, other(c, "ne")); }},
    {"none", [](const Value& v, const Call&) { return v.is<None>(); }},
    {"number", [](const Value& v, const Call&) { return is_number(v); }},
    {"odd", [](const Value& v, const Call&) { return !divides(v, 2); }},
    {"sequence", [](const Value& v,
                    const Call&) { return v.text() || v.items() || v.is<DictPtr>() || v.is<Undefined>(); }},
    {"string", [](const Value& v, const Call&) { return v.text() != nullptr; }},
    {"true", [](const Value& v, const Call&) { return v.is<bool>() && v.truthy(); }},
    {"undefined", [](const Value& v, const Call&) { return v.is<Undefined>(); }},
};

// Whether the text starts or ends with the affix, or with one of a list of them.
Value has_affix(const Value& v, const Call& call, bool end) {
  const Value affix = argument(call, 0, "prefix", Value());
  const std::vector<Value> all = affix.items() ? *affix.items() : std::vector<Value>{affix};
  return std::any_of(all.begin(), all.end(), [&](const Value& one) {
    const std::string& part = need_text(one, end ? "endswith" : "startswith");
    return end ? v.text()->ends_with(part) : v.text()->starts_with(part);
  });
}

Value strip_method(const Value& v, const Call& c, bool left, bool right) {
  return stripped(*v.text(), argument(c, 0, "chars", Value::none()), left, right);
}

Value find_method(const Value& v, const Call& c) {
  const std::size_t at = v.text()->find(need_text(argument(c, 0, "sub", Value()), "find"));
  if (at == std::string::npos) return std::int64_t{-1};
  return length(Value(v.text()->substr(0, at)));
}

Value count_method(const Value& v, const Call& c) {
  const std::string& part = need_text(argument(c, 0, "sub", Value()), "count");
  if (part.empty()) return length(v) + 1;
  std::int64_t count = 0;
  for (std::size_t at = v.text()->find(part); at != std::string::npos;
       at = v.text()->find(part, at + part.size()))
    ++count;
  return count;
}

constexpr FilterRow kTextMethods[] = {
    {"capitalize", [](const Value& v, const Call&) -> Value { return capitalized(*v.text()); }},
    {"count", count_method},
    {"endswith", [](const Value& v, const Call& c) { return has_affix(v, c, true); }},
    {"find", find_method},
    {"join",
     [](const Value& v, const Call& c) {
       return join(argument(c, 0, "iterable", Value()), Call{{v}, {}});
     }},
    {"lower", [](const Value& v, const Call&) -> Value { return cased(*v.text(), utf8proc_tolower); }},
    {"lstrip", [](const Value& v, const Call& c) { return strip_method(v, c, true, false); }},
    {"replace",
     [](const Value& v, const Call& c) -> Value {
       return replaced(*v.text(), need_text(argument(c, 0, "old", Value()), "replace"),
                       need_text(argument(c, 1, "new", Value()), "replace"),
                       need_whole(argument(c, 2, "count", std::int64_t{-1}), "replace"));
     }},
    {"rstrip", [](const Value& v, const Call& c) { return strip_method(v, c, false, true); }},
    {"split",
     [](const Value& v, const Call& c) {
       return split(*v.text(), argument(c, 0, "sep", Value::none()),
                    need_whole(argument(c, 1, "maxsplit", std::int64_t{-1}), "split"));
     }},
    {"startswith", [](const Value& v, const Call& c) { return has_affix(v, c, false); }},
    {"strip", [](const Value& v, const Call& c) { return strip_method(v, c, true, true); }},
    {"title", [](const Value& v, const Call&) -> Value { return titled(*v.text()); }},
    {"upper", [](const Value& v, const Call&) -> Value { return cased(*v.text(), utf8proc_toupper); }},
};

constexpr FilterRow kDictMethods[] = {
    {"get",
     [](const Value& v, const Call& c) {
       const Value* found = v.find(need_text(argument(c, 0, "key", Value()), "get"));
       return found ? *found : argument(c, 1, "default", Value::none());
     }},
    {"items", [](const Value& v, const Call&) { return items_of(v); }},
    {"keys", [](const Value& v, const Call&) { return Value::list(iterate(v)); }},
    {"values",
     [](const Value& v, const Call&) {
       std::vector<Value> values;
       for (const auto& entry : *v.entries()) values.push_back(entry.second);
       return Value::list(std::move(values));
     }},
};

template <typename Row, std::size_t N>
const Row* find_row(const Row (&rows)[N], std::string_view name) {
  const Row* found =
      std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : found;
}

const FilterRow* find_method_row(const Value& value, std::string_view name) {
  if (value.text()) return find_row(kTextMethods, name);
  if (value.is<DictPtr>()) return find_row(kDictMethods, name);
  return nullptr;
}

}  // namespace

Value apply_filter(std::string_view name, const Value& value, const Call& call) {
  const FilterRow* row = find_row(kFilters, name);
  if (!row) fail(ErrorKind::unsupported, "the filter {} is not supported", quote(name));
  return row->run(value, call);
}

bool apply_test(std::string_view name, const Value& value, const Call& call) {
  const TestRow* row = find_row(kTests, name);
  if (!row) fail(ErrorKind::unsupported, "the test {} is not supported", quote(name));
  return row->holds(value, call);
}

bool has_method(const Value& value, std::string_view name) { return find_method_row(value, name) != nullptr; }

Value call_method(const Value& value, std::string_view name, const Call& call) {
  const FilterRow* row = find_method_row(value, name);
  if (!row) fail(ErrorKind::unsupported, "a value of type {} has no method {}", value.type(), quote(name));
  return row->run(value, call);
}

}  // namespace halfbyte::jinja
