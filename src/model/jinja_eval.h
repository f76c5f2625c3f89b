// Runs a template, and the filters, tests and methods that its expressions call.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_ast.h"

namespace halfbyte::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// The text that the template yields. Refuses what it does not know and what goes beyond its bounds on steps, depth and
// size, naming the line.
std::string render(const std::vector<NodePtr>& nodes, const Variables& variables);

// value | name(call); refuses an unknown name. apply calls another filter (map('upper')) or test (select('string')).
Value apply_filter(std::string_view name, const Value& value, const Call& call);
bool apply_test(std::string_view name, const Value& value, const Call& call);
// value.name(call) of a string or a dict; refuses an unknown name.
Value call_method(const Value& value, std::string_view name, const Call& call);
bool has_method(const Value& value, std::string_view name);

}  // namespace halfbyte::jinja
