// Values of the template language: what Jinja's expressions yield, printed and compared as Python does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace halfbyte::jinja {

struct Value;
struct List;
struct Dict;
struct Function;

struct Undefined {
  std::string name;  // of what is missing, for messages
};
struct None {};
using Text = std::shared_ptr<const std::string>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using SpacePtr = std::shared_ptr<Dict>;  // a namespace: the only value that changes
using FunctionPtr = std::shared_ptr<const Function>;

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, Text, ListPtr, DictPtr, SpacePtr, FunctionPtr>
      data;

  Value() : data(Undefined{}) {}
  Value(bool value) : data(value) {}
  Value(std::int64_t value) : data(value) {}
  Value(double value) : data(value) {}
  Value(std::string text) : data(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(SpacePtr space) : data(std::move(space)) {}
  Value(FunctionPtr function) : data(std::move(function)) {}
  static Value none();
  static Value list(std::vector<Value> items);  // refuses what is nested too deep or too large
  static Value dict(std::vector<std::pair<std::string, Value>> items);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  const std::string* text() const;                                    // nullptr for other types
  const std::vector<Value>* items() const;                            // of a list
  const std::vector<std::pair<std::string, Value>>* entries() const;  // of a dict or a namespace
  const Value* find(std::string_view key) const;                      // in a dict or a namespace
  bool truthy() const;
  std::string_view type() const;  // for messages
  int depth() const;              // 0 for what holds nothing
  std::int64_t weight() const;    // bytes of text and values in it, each as often as it is reached
};

struct List {
  std::vector<Value> items;
  int depth = 1;
  std::int64_t weight = 1;
};

struct Dict {
  std::vector<std::pair<std::string, Value>> entries;  // in order of insertion
  int depth = 1;
  std::int64_t weight = 1;
};

struct Call {
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at that place or of that name, or nullptr.
  const Value* find(std::size_t place, std::string_view name) const;
};

struct Function {
  std::string name;
  std::function<Value(const Call&)> run;
};

bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);                 // refuses values without an order
bool contains(const Value& container, const Value& item);  // item in container
std::string to_text(const Value& value);                   // str()
std::string to_repr(const Value& value);                   // repr(), as inside a printed list
std::string to_json(const Value& value,
                    int indent);                 // json.dumps with ensure_ascii=False; indent < 0: one line
std::vector<Value> iterate(const Value& value);  // items, keys, characters; nothing for undefined
std::int64_t length(const Value& value);
// value[index], value[begin:end:step] and value.name; undefined where there is none.
Value at(const Value& value, const Value& index);
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);
Value arithmetic(std::string_view op, const Value& a, const Value& b);

}  // namespace halfbyte::jinja
