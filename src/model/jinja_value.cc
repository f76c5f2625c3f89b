// Python's rules for truth, equality, order, length, subscripts and arithmetic.
#include "model/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "io/text.h"
#include "model/unicode.h"

namespace halfbyte::jinja {

namespace {

// Values nested deeper than this come from no sensible template; the cap also keeps every recursion over them short.
constexpr int kMaxDepth = 64;
constexpr std::int64_t kMaxItems = 1 << 20;
constexpr std::int64_t kMaxWeight = std::int64_t{64} << 20;

// Counts an item of a list or dict. The cap on weight keeps every walk over a value short, also where lists hold the
// same list again and again.
template <typename Holder>
void count_in(Holder& holder, const Value& item) {
  if (item.depth() >= kMaxDepth) fail_input("a value holds others more than {} levels deep", kMaxDepth);
  holder.depth = std::max(holder.depth, item.depth() + 1);
  holder.weight += item.weight();
  if (holder.weight > kMaxWeight) fail_input("a list or dict holds more than {} MiB", kMaxWeight >> 20);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    next_code_point(text, i);
    result.push_back(text.substr(begin, i - begin));
  }
  return result;
}

bool is_number(const Value& v) { return v.is<bool>() || v.is<std::int64_t>() || v.is<double>(); }
bool is_whole(const Value& v) { return v.is<bool>() || v.is<std::int64_t>(); }
std::int64_t whole(const Value& v) { return v.is<bool>() ? *v.get<bool>() : *v.get<std::int64_t>(); }
double number(const Value& v) { return v.is<double>() ? *v.get<double>() : static_cast<double>(whole(v)); }

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  return out + '"';
}

void append_json(std::string& out, const Value& value, int indent, int level) {
  const auto line = [&](int at) {
    if (indent >= 0) out += '\n' + std::string(static_cast<std::size_t>(indent * at), ' ');
  };
  const auto comma = [&] { out += indent >= 0 ? "," : ", "; };
  if (const auto* list = value.items()) {
    out += '[';
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i > 0) comma();
      line(level + 1);
      append_json(out, (*list)[i], indent, level + 1);
    }
    if (!list->empty()) line(level);
    out += ']';
  } else if (value.is<DictPtr>()) {
    const auto& entries = *value.entries();
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) comma();
      line(level + 1);
      out += json_text(entries[i].first) + ": ";
      append_json(out, entries[i].second, indent, level + 1);
    }
    if (!entries.empty()) line(level);
    out += '}';
  } else if (const auto* text = value.text()) {
    out += json_text(*text);
  } else if (const auto* truth = value.get<bool>()) {
    out += *truth ? "true" : "false";
  } else if (value.is<None>()) {
    out += "null";
  } else if (is_number(value)) {
    out += to_text(value);
  } else {
    fail_input("tojson cannot write a value of type {}", value.type());
  }
}

// Where a slice starts and ends, by Python's rules.
struct Bounds {
  std::int64_t begin, end, step;
};

Bounds slice_bounds(const Value& begin, const Value& end, const Value& step, std::int64_t size) {
  const auto value = [&](const Value& v, std::int64_t otherwise) {
    if (v.is<None>()) return otherwise;
    if (!is_whole(v)) fail_input("a slice needs whole numbers, but one is of type {}", v.type());
    return whole(v);
  };
  const std::int64_t by = value(step, 1);
  if (by == 0 || by < -kMaxItems || by > kMaxItems) fail_input("a slice has the step {}", by);
  const auto clamp = [&](std::int64_t at) {
    if (at < 0) at = at < -size ? -1 : at + size;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  return {begin.is<None>() ? (by > 0 ? 0 : size - 1) : clamp(value(begin, 0)),
          end.is<None>() ? (by > 0 ? size : -1) : clamp(value(end, 0)), by};
}

}  // namespace

Value Value::none() {
  Value value;
  value.data = None{};
  return value;
}

Value Value::list(std::vector<Value> items) {
  List list;
  for (const Value& item : items) count_in(list, item);
  list.items = std::move(items);
  Value value;
  value.data = std::make_shared<const List>(std::move(list));
  return value;
}

Value Value::dict(std::vector<std::pair<std::string, Value>> entries) {
  Dict dict;
  for (const auto& entry : entries) {
    count_in(dict, entry.second);
    dict.weight += std::ssize(entry.first);
  }
  dict.entries = std::move(entries);
  Value value;
  value.data = std::make_shared<const Dict>(std::move(dict));
  return value;
}

const std::string* Value::text() const {
  const auto* text = get<Text>();
  return text ? text->get() : nullptr;
}

const std::vector<Value>* Value::items() const {
  const auto* list = get<ListPtr>();
  return list ? &(*list)->items : nullptr;
}

const std::vector<std::pair<std::string, Value>>* Value::entries() const {
  if (const auto* dict = get<DictPtr>()) return &(*dict)->entries;
  if (const auto* space = get<SpacePtr>()) return &(*space)->entries;
  return nullptr;
}

const Value* Value::find(std::string_view key) const {
  if (const auto* all = entries())
    for (const auto& [name, value] : *all)
      if (name == key) return &value;
  return nullptr;
}

bool Value::truthy() const {
  if (is<Undefined>() || is<None>()) return false;
  if (is_number(*this)) return number(*this) != 0;
  if (const auto* t = text()) return !t->empty();
  if (const auto* list = items()) return !list->empty();
  if (is<DictPtr>()) return !entries()->empty();
  return true;
}

std::string_view Value::type() const {
  static constexpr std::string_view kNames[] = {"undefined", "none", "boolean", "integer",   "float",
                                                "string",    "list", "dict",    "namespace", "function"};
  return kNames[data.index()];
}

int Value::depth() const {
  if (const auto* list = get<ListPtr>()) return (*list)->depth;
  if (const auto* dict = get<DictPtr>()) return (*dict)->depth;
  return is<SpacePtr>() ? kMaxDepth : 0;  // a namespace inside another value could hold itself
}

std::int64_t Value::weight() const {
  if (const auto* list = get<ListPtr>()) return (*list)->weight;
  if (const auto* dict = get<DictPtr>()) return (*dict)->weight;
  return text() ? std::ssize(*text()) + 1 : 1;
}

const Value* Call::find(std::size_t place, std::string_view name) const {
  if (place < args.size()) return &args[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) return whole(a) == whole(b);
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  if (a.data.index() != b.data.index()) return false;
  if (const auto* text = a.text()) return *text == *b.text();
  if (const auto* list = a.items())
    return std::equal(list->begin(), list->end(), b.items()->begin(), b.items()->end(), equal);
  if (a.is<DictPtr>()) {
    if (a.entries()->size() != b.entries()->size()) return false;
    return std::all_of(a.entries()->begin(), a.entries()->end(), [&](const auto& entry) {
      const Value* other = b.find(entry.first);
      return other && equal(entry.second, *other);
    });
  }
  return a.is<Undefined>() || a.is<None>();
}

bool less(const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) return whole(a) < whole(b);
  if (is_number(a) && is_number(b)) return number(a) < number(b);
  if (a.text() && b.text()) return *a.text() < *b.text();  // UTF-8 sorts as code points do
  fail_input("values of type {} and {} have no order", a.type(), b.type());
}

bool contains(const Value& container, const Value& item) {
  if (const auto* text = container.text()) {
    if (!item.text()) fail_input("only a string can be in a string, not a value of type {}", item.type());
    return text->find(*item.text()) != text->npos;
  }
  if (const auto* list = container.items())
    return std::any_of(list->begin(), list->end(), [&](const Value& v) { return equal(v, item); });
  if (container.is<DictPtr>()) return item.text() && container.find(*item.text());
  if (container.is<Undefined>()) return false;
  fail_input("nothing can be in a value of type {}", container.type());
}

std::string to_text(const Value& value) {
  if (value.is<Undefined>()) return "";
  if (const auto* text = value.text()) return *text;
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is<None>()) return "None";
  if (const auto* truth = value.get<bool>()) return *truth ? "True" : "False";
  if (const auto* integer = value.get<std::int64_t>()) return std::to_string(*integer);
  if (const auto* real = value.get<double>()) return real_text(*real);
  std::string out;
  if (const auto* text = value.text()) {
    const char mark = text->find('\'') != text->npos && text->find('"') == text->npos ? '"' : '\'';
    out += mark;
    for (char c : *text) {
      if (c == mark || c == '\\') {
        out += '\\';
        out += c;
      } else if (c == '\n' || c == '\r' || c == '\t') {
        out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
    }
    return out += mark;
  }
  if (const auto* list = value.items()) {
    for (const Value& item : *list) out += (out.empty() ? "" : ", ") + to_repr(item);
    return fmt::format("[{}]", out);
  }
  if (value.is<DictPtr>()) {
    for (const auto& [key, item] : *value.entries())
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", to_repr(key), to_repr(item));
    return fmt::format("{{{}}}", out);
  }
  if (value.is<Undefined>()) return "Undefined";
  fail_input("a value of type {} cannot be printed", value.type());
}

std::string to_json(const Value& value, int indent) {
  std::string out;
  append_json(out, value, indent, 0);
  return out;
}

std::vector<Value> iterate(const Value& value) {
  if (const auto* list = value.items()) return *list;
  std::vector<Value> result;
  if (const auto* text = value.text()) {
    for (std::string_view c : characters(*text)) result.emplace_back(std::string(c));
  } else if (value.is<DictPtr>()) {
    for (const auto& entry : *value.entries()) result.emplace_back(entry.first);
  } else if (!value.is<Undefined>()) {
    fail_input("a value of type {} cannot be iterated over", value.type());
  }
  return result;
}

std::int64_t length(const Value& value) {
  if (const auto* list = value.items()) return std::ssize(*list);
  if (const auto* text = value.text())
    return std::count_if(text->begin(), text->end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (value.is<DictPtr>()) return std::ssize(*value.entries());
  if (value.is<Undefined>()) return 0;
  fail_input("a value of type {} has no length", value.type());
}

Value at(const Value& value, const Value& index) {
  Value missing;
  missing.data = Undefined{index.text() ? *index.text() : "an element"};
  if (const auto* undefined = value.get<Undefined>())
    fail_input("{} is undefined, so it has no {}", undefined->name, to_repr(index));
  if (index.text()) {
    const Value* found = value.find(*index.text());
    return found ? *found : missing;
  }
  if (!is_whole(index) || !(value.items() || value.text())) return missing;
  const std::int64_t size = length(value);
  const std::int64_t place = whole(index) < 0 ? whole(index) + size : whole(index);
  if (place < 0 || place >= size) return missing;
  if (const auto* list = value.items()) return (*list)[static_cast<std::size_t>(place)];
  std::size_t begin = 0, end = 0;
  for (std::int64_t i = 0; i <= place; ++i) {
    begin = end;
    next_code_point(*value.text(), end);
  }
  return value.text()->substr(begin, end - begin);
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (!value.items() && !value.text()) fail_input("a value of type {} cannot be sliced", value.type());
  const Bounds bounds = slice_bounds(begin, end, step, length(value));
  std::vector<Value> items;
  std::string text;
  const auto all = value.text() ? characters(*value.text()) : std::vector<std::string_view>();
  for (std::int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end; i += bounds.step) {
    if (value.text())
      text += all[static_cast<std::size_t>(i)];
    else
      items.push_back((*value.items())[static_cast<std::size_t>(i)]);
  }
  return value.text() ? Value(std::move(text)) : Value::list(std::move(items));
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (op == "+" && a.text() && b.text()) return *a.text() + *b.text();
  if (op == "+" && a.items() && b.items()) {
    std::vector<Value> items = *a.items();
    items.insert(items.end(), b.items()->begin(), b.items()->end());
    if (std::ssize(items) > kMaxItems) fail_input("a list grows beyond {} items", kMaxItems);
    return Value::list(std::move(items));
  }
  if (op == "*" && a.text() && is_whole(b)) {
    const std::int64_t times = std::max<std::int64_t>(whole(b), 0);
    if (times > kMaxItems || times * std::ssize(*a.text()) > 64 * kMaxItems)
      fail_input("a string grows too long");
    std::string text;
    for (std::int64_t i = 0; i < times; ++i) text += *a.text();
    return text;
  }
  if (!is_number(a) || !is_number(b)) {
    for (const Value* v : {&a, &b})
      if (const auto* undefined = v->get<Undefined>()) fail_input("{} is undefined", undefined->name);
    fail_input("{} does not work on values of type {} and {}", op, a.type(), b.type());
  }
  if ((op == "/" || op == "//" || op == "%") && number(b) == 0) fail_input("division by zero");
  if (op == "/") return number(a) / number(b);
  if (is_whole(a) && is_whole(b) && op != "**") {
    const std::int64_t x = whole(a), y = whole(b);
    std::int64_t result = 0;
    bool overflow = false;
    if (op == "+") overflow = __builtin_add_overflow(x, y, &result);
    if (op == "-") overflow = __builtin_sub_overflow(x, y, &result);
    if (op == "*") overflow = __builtin_mul_overflow(x, y, &result);
    if (op == "//" || op == "%") {
      overflow = y == -1 && x == INT64_MIN;
      if (!overflow) {
        const std::int64_t rest = x % y;
        const bool down = rest != 0 && (rest < 0) != (y < 0);  // Python rounds down
        result = op == "%" ? rest + (down ? y : 0) : x / y - (down ? 1 : 0);
      }
    }
    if (overflow) fail_input("{} {} {} does not fit in 64 bits", x, op, y);
    return result;
  }
  const double x = number(a), y = number(b);
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "//") return std::floor(x / y);
  if (op == "%") return x - y * std::floor(x / y);
  const double power = std::pow(x, y);
  if (is_whole(a) && is_whole(b) && y >= 0 && std::abs(power) < 9e15) return static_cast<std::int64_t>(power);
  return power;
}

}  // namespace halfbyte::jinja
