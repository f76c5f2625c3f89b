// Recursive descent over the tokens of a template, with Jinja's precedence of operators.
#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "core/fail.h"
#include "io/text.h"
#include "model/jinja_ast.h"
#include "model/jinja_lexer.h"

namespace halfbyte::jinja {

namespace {

constexpr int kMaxDepth = 100;  // of the parser's own calls
constexpr int kMaxTree = 300;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  std::vector<NodePtr> run() { return body({}); }

 private:
  // Counts how deep the parser calls itself.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.depth_ > kMaxDepth)
        parser.refuse(fmt::format("is nested deeper than {} levels", kMaxDepth));
    }
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void refuse(std::string_view what) const { fail_input("line {}: {}", now().line, what); }
  [[noreturn]] void unexpected() const {
    switch (now().type) {
      case TokenType::end:
        refuse("the template ends too early");
      case TokenType::block_end:
        refuse("unexpected end of a tag: %}");
      case TokenType::print_end:
        refuse("unexpected end of a tag: }}");
      default:
        refuse(fmt::format("unexpected {}", quote(now().text)));
    }
  }

  bool is(TokenType type) const { return now().type == type; }
  bool is_op(std::string_view op) const { return is(TokenType::op) && now().text == op; }
  bool is_name(std::string_view name) const { return is(TokenType::name) && now().text == name; }
  bool take_op(std::string_view op) { return is_op(op) ? (++at_, true) : false; }
  bool take_name(std::string_view name) { return is_name(name) ? (++at_, true) : false; }
  void need(TokenType type) {
    if (!is(type)) unexpected();
    ++at_;
  }
  void need_op(std::string_view op) {
    if (!take_op(op)) unexpected();
  }
  std::string need_name() {
    if (!is(TokenType::name)) unexpected();
    return tokens_[at_++].text;
  }

  ExprPtr make(ExprKind kind, std::string text = "") const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = now().line;
    expr->text = std::move(text);
    return expr;
  }

  // Every child of an expression is added here, so that no tree is deep enough to exhaust the stack.
  void deepen(Expr& parent, const Expr& child) const {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kMaxTree)
      refuse(fmt::format("an expression is more than {} operations deep", kMaxTree));
  }
  void adopt(Expr& parent, std::vector<ExprPtr>& place, ExprPtr child) const {
    deepen(parent, *child);
    place.push_back(std::move(child));
  }

  // Nodes up to a block tag with one of these names, whose name is taken and kept in closed_by_.
  std::vector<NodePtr> body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    std::vector<NodePtr> nodes;
    for (;;) {
      auto node = std::make_unique<Node>();
      node->line = now().line;
      if (is(TokenType::text)) {
        node->text = tokens_[at_++].text;
      } else if (is(TokenType::print_begin)) {
        ++at_;
        node->kind = NodeKind::print;
        node->expr = tuple();
        need(TokenType::print_end);
      } else if (is(TokenType::block_begin)) {
        ++at_;
        const std::string name = need_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          closed_by_ = name;
          return nodes;
        }
        node->text = name;
        statement(*node);
      } else {
        if (ends.size() > 0) refuse(fmt::format("the template ends before {}", *(ends.end() - 1)));
        return nodes;
      }
      nodes.push_back(std::move(node));
    }
  }

  void close_tag() { need(TokenType::block_end); }

  void statement(Node& node) {
    const std::string name = std::move(node.text);
    node.text.clear();
    if (name == "if") {
      branch(node);
    } else if (name == "for") {
      loop(node);
    } else if (name == "set") {
      assign(node);
    } else if (name == "macro") {
      macro(node);
    } else if (name == "generation") {  // marks the assistant's text for training; prints as it is
      node.kind = NodeKind::group;
      close_tag();
      node.body = body({"endgeneration"});
      close_tag();
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) refuse(fmt::format("{} stands outside of a loop", name));
      node.kind = name == "break" ? NodeKind::stop : NodeKind::next;
      close_tag();
    } else {
      --at_;
      refuse(fmt::format("the statement {} is not supported", quote(name)));
    }
  }

  void branch(Node& node) {
    const Level level(*this);
    node.kind = NodeKind::branch;
    node.expr = tuple();
    close_tag();
    node.body = body({"elif", "else", "endif"});
    if (closed_by_ == "elif") {
      auto inner = std::make_unique<Node>();
      inner->line = now().line;
      branch(*inner);
      node.other.push_back(std::move(inner));
      return;
    }
    if (closed_by_ == "else") {
      close_tag();
      node.other = body({"endif"});
    }
    close_tag();
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names{need_name()};
    while (take_op(",")) names.push_back(need_name());
    return names;
  }

  void loop(Node& node) {
    node.kind = NodeKind::loop;
    const bool parens = take_op("(");
    node.names = targets();
    if (parens) need_op(")");
    if (!take_name("in")) unexpected();
    node.expr = tuple(false);
    if (take_name("if")) node.condition = expression();
    if (is_name("recursive")) refuse("a recursive loop is not supported");
    close_tag();
    ++loops_;
    node.body = body({"else", "endfor"});
    --loops_;
    if (closed_by_ == "else") {
      close_tag();
      node.other = body({"endfor"});
    }
    close_tag();
  }

  void assign(Node& node) {
    node.kind = NodeKind::assign;
    node.names = targets();
    if (node.names.size() == 1 && take_op(".")) node.attribute = need_name();
    if (take_op("=")) {
      node.expr = tuple();
      close_tag();
      return;
    }
    if (node.names.size() > 1 || !node.attribute.empty()) unexpected();
    node.kind = NodeKind::assign_body;
    // {% set x | filter %}: the filters apply to a name that stands for the body.
    if (is_op("|")) node.expr = filters(make(ExprKind::name, ""), false);
    close_tag();
    node.body = body({"endset"});
    close_tag();
  }

  void macro(Node& node) {
    node.kind = NodeKind::macro;
    node.text = need_name();
    need_op("(");
    while (!take_op(")")) {
      node.names.push_back(need_name());
      if (take_op("="))
        node.defaults.push_back(expression());
      else if (!node.defaults.empty())
        refuse("a parameter without a default follows one with a default");
      if (!is_op(")")) need_op(",");
    }
    close_tag();
    const int outer = std::exchange(loops_, 0);
    node.body = body({"endmacro"});
    loops_ = outer;
    close_tag();
  }

  // An expression, or several with commas between as a list.
  ExprPtr tuple(bool with_condition = true) {
    ExprPtr first = with_condition ? expression() : disjunction();
    if (!is_op(",")) return first;
    ExprPtr list = make(ExprKind::list);
    adopt(*list, list->parts, std::move(first));
    while (take_op(",")) {
      if (is(TokenType::block_end) || is(TokenType::print_end) || is_op(")") || is_op("]")) break;
      adopt(*list, list->parts, with_condition ? expression() : disjunction());
    }
    return list;
  }

  ExprPtr expression() {
    const Level level(*this);
    ExprPtr value = disjunction();
    while (is_name("if")) {
      ExprPtr choice = make(ExprKind::conditional);
      ++at_;
      adopt(*choice, choice->parts, disjunction());
      adopt(*choice, choice->parts, std::move(value));
      if (take_name("else")) adopt(*choice, choice->parts, expression());
      value = std::move(choice);
    }
    return value;
  }

  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right) {
    ExprPtr expr = make(ExprKind::binary, std::move(op));
    adopt(*expr, expr->parts, std::move(left));
    adopt(*expr, expr->parts, std::move(right));
    return expr;
  }

  template <typename Next>
  ExprPtr chain(std::initializer_list<std::string_view> ops, TokenType type, Next next) {
    ExprPtr left = next();
    while (is(type) && std::find(ops.begin(), ops.end(), now().text) != ops.end()) {
      std::string op = tokens_[at_++].text;
      left = binary(std::move(op), std::move(left), next());
    }
    return left;
  }

  ExprPtr disjunction() {
    return chain({"or"}, TokenType::name, [&] { return conjunction(); });
  }
  ExprPtr conjunction() {
    return chain({"and"}, TokenType::name, [&] { return negation(); });
  }

  ExprPtr negation() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    ExprPtr expr = make(ExprKind::unary, "not");
    ++at_;
    adopt(*expr, expr->parts, negation());
    return expr;
  }

  ExprPtr comparison() {
    static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
    ExprPtr expr = make(ExprKind::comparison);
    adopt(*expr, expr->parts, sum());
    for (;;) {
      if (is(TokenType::op) && std::find(std::begin(kOps), std::end(kOps), now().text) != std::end(kOps)) {
        expr->ops.push_back(tokens_[at_++].text);
      } else if (take_name("in")) {
        expr->ops.emplace_back("in");
      } else if (is_name("not") && after().type == TokenType::name && after().text == "in") {
        at_ += 2;
        expr->ops.emplace_back("not in");
      } else {
        break;
      }
      adopt(*expr, expr->parts, sum());
    }
    return expr->ops.empty() ? std::move(expr->parts[0]) : std::move(expr);
  }

  ExprPtr sum() {
    return chain({"+", "-"}, TokenType::op, [&] { return concatenation(); });
  }
  ExprPtr concatenation() {
    return chain({"~"}, TokenType::op, [&] { return product(); });
  }
  ExprPtr product() {
    return chain({"*", "/", "//", "%"}, TokenType::op, [&] { return power(); });
  }
  ExprPtr power() {
    return chain({"**"}, TokenType::op, [&] { return unary(true); });
  }

  ExprPtr unary(bool with_filters) {
    const Level level(*this);
    ExprPtr expr;
    if (is_op("-") || is_op("+")) {
      expr = make(ExprKind::unary, now().text);
      ++at_;
      adopt(*expr, expr->parts, unary(false));
    } else {
      expr = primary();
    }
    expr = postfix(std::move(expr));
    return with_filters ? filters(std::move(expr), true) : std::move(expr);
  }

  ExprPtr literal(Value value) {
    ExprPtr expr = make(ExprKind::literal);
    expr->value = std::move(value);
    return expr;
  }

  ExprPtr primary() {
    if (is(TokenType::name)) {
      ExprPtr expr = make(ExprKind::name, now().text);
      if (is_name("true") || is_name("True")) expr = literal(true);
      if (is_name("false") || is_name("False")) expr = literal(false);
      if (is_name("none") || is_name("None")) expr = literal(Value::none());
      ++at_;
      return expr;
    }
    if (is(TokenType::string)) {
      std::string text;
      while (is(TokenType::string)) text += tokens_[at_++].text;
      return literal(std::move(text));
    }
    if (is(TokenType::integer) || is(TokenType::real)) return number();
    if (take_op("(")) {
      if (take_op(")")) return make(ExprKind::list);
      ExprPtr expr = tuple();
      need_op(")");
      return expr;
    }
    if (take_op("[")) {
      ExprPtr expr = make(ExprKind::list);
      while (!take_op("]")) {
        adopt(*expr, expr->parts, expression());
        if (!is_op("]")) need_op(",");
      }
      return expr;
    }
    if (take_op("{")) {
      ExprPtr expr = make(ExprKind::dict);
      while (!take_op("}")) {
        adopt(*expr, expr->parts, expression());
        need_op(":");
        adopt(*expr, expr->parts, expression());
        if (!is_op("}")) need_op(",");
      }
      return expr;
    }
    unexpected();
  }

  ExprPtr number() {
    const std::string& text = now().text;
    ExprPtr expr;
    if (is(TokenType::integer)) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc()) refuse(fmt::format("the number {} does not fit in 64 bits", quote(text)));
      expr = literal(value);
    } else {
      double value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      expr = literal(value);
    }
    ++at_;
    return expr;
  }

  ExprPtr postfix(ExprPtr expr) {
    for (;;) {
      if (take_op(".")) {
        if (is(TokenType::integer)) {
          expr = with(ExprKind::subscript, std::move(expr));
          adopt(*expr, expr->parts, number());
        } else {
          expr = with(ExprKind::attribute, std::move(expr));
          expr->text = need_name();
        }
      } else if (take_op("[")) {
        expr = subscript(std::move(expr));
      } else if (take_op("(")) {
        expr = with(ExprKind::call, std::move(expr));
        arguments(*expr);
      } else {
        return expr;
      }
    }
  }

  ExprPtr with(ExprKind kind, ExprPtr first) {
    ExprPtr expr = make(kind);
    adopt(*expr, expr->parts, std::move(first));
    return expr;
  }

  ExprPtr subscript(ExprPtr value) {
    ExprPtr begin = is_op(":") ? literal(Value::none()) : expression();
    if (take_op("]")) {
      ExprPtr expr = with(ExprKind::subscript, std::move(value));
      adopt(*expr, expr->parts, std::move(begin));
      return expr;
    }
    ExprPtr expr = with(ExprKind::slice, std::move(value));
    adopt(*expr, expr->parts, std::move(begin));
    for (int i = 0; i < 2; ++i) {
      const bool more = take_op(":");
      adopt(*expr, expr->parts, more && !is_op(":") && !is_op("]") ? expression() : literal(Value::none()));
    }
    need_op("]");
    return expr;
  }

  // Up to the closing parenthesis; the opening one is taken.
  void arguments(Expr& expr) {
    while (!take_op(")")) {
      if (is_op("*") || is_op("**")) refuse("arguments spread from a list or dict are not supported");
      if (is(TokenType::name) && after().type == TokenType::op && after().text == "=") {
        std::string name = need_name();
        ++at_;
        ExprPtr value = expression();
        deepen(expr, *value);
        expr.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!expr.named.empty()) refuse("an argument without a name follows one with a name");
        adopt(expr, expr.args, expression());
      }
      if (!is_op(")")) need_op(",");
    }
  }

  ExprPtr filters(ExprPtr expr, bool tests) {
    for (int length = 0;; ++length) {
      if (take_op("|")) {
        expr = with(ExprKind::filter, std::move(expr));
        expr->text = need_name();
        if (take_op("(")) arguments(*expr);
      } else if (tests && is_name("is")) {
        ++at_;
        expr = test(std::move(expr));
      } else if (tests && length > 0 && take_op("(")) {
        expr = with(ExprKind::call, std::move(expr));
        arguments(*expr);
      } else {
        return expr;
      }
    }
  }

  ExprPtr test(ExprPtr value) {
    const bool negated = take_name("not");
    ExprPtr expr = with(ExprKind::test, std::move(value));
    expr->text = need_name();
    const bool word = is(TokenType::name) && !is_name("else") && !is_name("or") && !is_name("and") &&
                      !is_name("is") && !is_name("if") && !is_name("in") && !is_name("not");
    if (take_op("("))
      arguments(*expr);
    else if (word || is(TokenType::string) || is(TokenType::integer) || is(TokenType::real) || is_op("[") ||
             is_op("{"))
      adopt(*expr, expr->args, postfix(primary()));
    if (!negated) return expr;
    ExprPtr inverse = with(ExprKind::unary, std::move(expr));
    inverse->text = "not";
    return inverse;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::string closed_by_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

std::vector<NodePtr> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace halfbyte::jinja
