// Syntax tree of a template, and the parser that makes it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_value.h"

namespace halfbyte::jinja {

enum class ExprKind {
  literal,      // value
  name,         // text
  list,         // parts
  dict,         // parts: key, value, key, value...
  attribute,    // parts[0].text
  subscript,    // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]], none where left out
  call,         // parts[0](args)
  filter,       // parts[0] | text(args)
  test,         // parts[0] is text(args)
  unary,        // text is not, - or +
  binary,       // text is the operator: arithmetic, ~, and, or
  comparison,   // parts[0] ops[0] parts[1] ops[1] parts[2]...
  conditional,  // parts[1] if parts[0] else parts[2], which may be left out
};

struct Expr {
  ExprKind kind = ExprKind::literal;
  int line = 0;
  int depth = 0;  // operations below this one
  Value value;
  std::string text;
  std::vector<std::unique_ptr<Expr>> parts;
  std::vector<std::string> ops;
  std::vector<std::unique_ptr<Expr>> args;
  std::vector<std::pair<std::string, std::unique_ptr<Expr>>> named;
};
using ExprPtr = std::unique_ptr<Expr>;

enum class NodeKind {
  text,         // text
  print,        // expr
  branch,       // if expr: body, else: other
  loop,         // for names in expr if condition: body, else: other
  assign,       // set names = expr, or names[0].attribute = expr
  assign_body,  // set names[0] with filters: body as text
  macro,        // text(names with defaults): body
  group,        // body
  stop,         // break
  next,         // continue
};

struct Node {
  NodeKind kind = NodeKind::text;
  int line = 0;
  std::string text;
  std::string attribute;
  std::vector<std::string> names;
  ExprPtr expr, condition;
  std::vector<ExprPtr> defaults;  // of a macro's last parameters
  std::vector<std::unique_ptr<Node>> body, other;
};
using NodePtr = std::unique_ptr<Node>;

// Refuses what it does not know, naming the construct and its line.
std::vector<NodePtr> parse(std::string_view source);

}  // namespace halfbyte::jinja
