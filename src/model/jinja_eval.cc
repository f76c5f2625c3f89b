// Walks the syntax tree with Jinja's scopes and Python's evaluation order.
#include "model/jinja_eval.h"

#include <ctime>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte::jinja {

namespace {

// What a template from a model directory may cost; real ones stay far below even for chats of a megabyte.
constexpr std::int64_t kMaxSteps = 4'000'000;
constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;  // of all texts made while rendering
constexpr int kMaxDepth = 600;
constexpr std::int64_t kMaxRange = 100'000;

enum class Flow { on, stop, next };  // what a loop's body asks for

class Evaluator {
 public:
  explicit Evaluator(const Variables& variables) {
    scopes_.push_back(variables);
    add_globals();
    scopes_.emplace_back();
  }

  std::string run(const std::vector<NodePtr>& nodes) {
    std::string out;
    try {
      body(nodes, out);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("line {}: {}", line_, error.what()));
    }
    return out;
  }

 private:
  struct Level {
    Level(Evaluator& e, int line) : evaluator(e), outer(e.line_) {
      e.line_ = line;
      if (++e.depth_ > kMaxDepth)
        fail_input("macros or expressions are nested deeper than {} levels", kMaxDepth);
      if (++e.steps_ > kMaxSteps) fail_input("the template takes more than {} steps", kMaxSteps);
    }
    ~Level() {
      --evaluator.depth_;
      if (std::uncaught_exceptions() == 0) evaluator.line_ = outer;  // else the line stays for the message
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Evaluator& evaluator;
    int outer;
  };

  void spend(std::size_t bytes) {
    bytes_ += static_cast<std::int64_t>(bytes);
    if (bytes_ > kMaxBytes) fail_input("the template makes more than {} MiB of text", kMaxBytes >> 20);
  }

  // Work that goes over all of a value counts as one step every 8 bytes.
  const Value& charge(const Value& value) {
    steps_ += value.weight() >> 3;
    if (steps_ > kMaxSteps) fail_input("the template takes more than {} steps", kMaxSteps);
    return value;
  }

  void put(std::string& out, std::string_view text) {
    spend(text.size());
    out += text;
  }

  void add_global(std::string name, std::function<Value(const Call&)> run) {
    scopes_.back().emplace_back(name, std::make_shared<const Function>(Function{name, std::move(run)}));
  }

  void add_globals() {
    add_global("raise_exception", [](const Call& call) -> Value {
      const Value* message = call.find(0, "message");
      fail_input("{}", message ? to_text(*message) : "the template raised an exception");
    });
    add_global("namespace", [](const Call& call) -> Value {
      auto space = std::make_shared<Dict>();
      for (const Value& arg : call.args)
        if (const auto* entries = arg.entries()) space->entries = *entries;
      for (const auto& [name, value] : call.named) set_in(*space, name, value);
      return space;
    });
    add_global("dict", [](const Call& call) -> Value {
      if (!call.args.empty()) fail_input("dict is supported with named arguments only");
      return Value::dict(call.named);
    });
    add_global("range", range);
    add_global("strftime_now", [](const Call& call) -> Value {
      const Value* format = call.find(0, "format");
      if (!format || !format->text()) fail_input("strftime_now needs a format");
      const std::time_t seconds = std::time(nullptr);
      std::tm now{};
      localtime_r(&seconds, &now);
      char text[256];
      return std::string(text, std::strftime(text, sizeof(text), format->text()->c_str(), &now));
    });
  }

  static Value range(const Call& call) {
    std::vector<std::int64_t> bounds;
    for (const Value& arg : call.args) {
      const auto* number = arg.get<std::int64_t>();
      if (!number) fail_input("range needs whole numbers, not a value of type {}", arg.type());
      bounds.push_back(*number);
    }
    if (bounds.empty() || bounds.size() > 3)
      fail_input("range takes 1 to 3 arguments, not {}", bounds.size());
    if (bounds.size() == 1) bounds.insert(bounds.begin(), 0);
    const std::int64_t step = bounds.size() == 3 ? bounds[2] : 1;
    if (step == 0 || step < -kMaxRange || step > kMaxRange) fail_input("range has the step {}", step);
    std::vector<Value> items;
    for (std::int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
      if (std::ssize(items) >= kMaxRange) fail_input("a range has more than {} items", kMaxRange);
      items.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return Value::list(std::move(items));
  }

  static void set_in(Dict& space, const std::string& name, Value value) {
    if (value.is<SpacePtr>() || value.depth() >= 64) fail_input("a namespace cannot be kept inside another");
    for (auto& entry : space.entries)
      if (entry.first == name) {
        entry.second = std::move(value);
        return;
      }
    space.entries.emplace_back(name, std::move(value));
  }

  void set(const std::string& name, Value value) {
    for (auto& entry : scopes_.back())
      if (entry.first == name) {
        entry.second = std::move(value);
        return;
      }
    scopes_.back().emplace_back(name, std::move(value));
  }

  Value look_up(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      for (const auto& [known, value] : *scope)
        if (known == name) return value;
    Value missing;
    missing.data = Undefined{name};
    return missing;
  }

  // Binds one value, or the items of one to several names.
  void bind(const std::vector<std::string>& names, Value value) {
    if (names.size() == 1) return set(names[0], std::move(value));
    const auto* items = value.items();
    if (!items || items->size() != names.size())
      fail_input("a value of type {} cannot be taken apart into {} names", value.type(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i) set(names[i], (*items)[i]);
  }

  Flow body(const std::vector<NodePtr>& nodes, std::string& out) {
    for (const NodePtr& node : nodes)
      if (const Flow flow = run_node(*node, out); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow run_node(const Node& node, std::string& out) {
    const Level level(*this, node.line);
    switch (node.kind) {
      case NodeKind::text:
        put(out, node.text);
        break;
      case NodeKind::print:
        put(out, to_text(evaluate(*node.expr)));
        break;
      case NodeKind::branch:
        return body(evaluate(*node.expr).truthy() ? node.body : node.other, out);
      case NodeKind::loop:
        return loop(node, out);
      case NodeKind::assign:
        assign(node);
        break;
      case NodeKind::assign_body: {
        std::string text;
        scopes_.emplace_back();
        body(node.body, text);
        Value value = std::move(text);
        if (node.expr) {
          set("", value);  // the name that the filters were applied to
          value = evaluate(*node.expr);
        }
        scopes_.pop_back();
        set(node.names[0], std::move(value));
        break;
      }
      case NodeKind::macro:
        define(node);
        break;
      case NodeKind::group:
        return body(node.body, out);
      case NodeKind::stop:
        return Flow::stop;
      case NodeKind::next:
        return Flow::next;
    }
    return Flow::on;
  }

  void assign(const Node& node) {
    Value value = evaluate(*node.expr);
    if (node.attribute.empty()) return bind(node.names, std::move(value));
    const Value target = look_up(node.names[0]);
    const auto* space = target.get<SpacePtr>();
    if (!space) fail_input("{} is no namespace, so its {} cannot be set", node.names[0], node.attribute);
    set_in(**space, node.attribute, std::move(value));
  }

  Flow loop(const Node& node, std::string& out) {
    std::vector<Value> items = iterate(evaluate(*node.expr));
    scopes_.emplace_back();
    if (node.condition) {
      std::vector<Value> kept;
      for (Value& item : items) {
        bind(node.names, item);
        if (evaluate(*node.condition).truthy()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    const auto size = std::ssize(items);
    for (std::int64_t i = 0; i < size; ++i) {
      if (++steps_ > kMaxSteps) fail_input("the template takes more than {} steps", kMaxSteps);
      scopes_.back().clear();
      const auto item = [&](std::int64_t at) {
        return at >= 0 && at < size ? items[static_cast<std::size_t>(at)] : Value();
      };
      auto info = std::make_shared<Dict>();
      info->entries = {{"index", i + 1},         {"index0", i},
                       {"revindex", size - i},   {"revindex0", size - i - 1},
                       {"first", i == 0},        {"last", i + 1 == size},
                       {"length", size},         {"previtem", item(i - 1)},
                       {"nextitem", item(i + 1)}};
      set("loop", Value(SpacePtr(std::move(info))));
      bind(node.names, item(i));
      if (body(node.body, out) == Flow::stop) break;
    }
    scopes_.pop_back();
    return items.empty() ? body(node.other, out) : Flow::on;
  }

  void define(const Node& node) {
    // The tree outlives the evaluator's values, so the macro may point into it.
    set(node.text, std::make_shared<const Function>(Function{
                       node.text, [this, &node](const Call& call) { return run_macro(node, call); }}));
  }

  Value run_macro(const Node& node, const Call& call) {
    const Level level(*this, node.line);
    if (call.args.size() > node.names.size())
      fail_input("macro {} takes {} arguments, not {}", node.text, node.names.size(), call.args.size());
    for (const auto& [name, value] : call.named)
      if (std::find(node.names.begin(), node.names.end(), name) == node.names.end())
        fail_input("macro {} has no parameter {}", node.text, quote(name));
    // A macro sees what the template has set at its outermost level, not the scopes of its caller.
    std::vector<Variables> inner(scopes_.begin(), scopes_.begin() + 2);
    std::swap(inner, scopes_);
    scopes_.emplace_back();
    const std::size_t required = node.names.size() - node.defaults.size();
    for (std::size_t i = 0; i < node.names.size(); ++i) {
      if (const Value* given = call.find(i, node.names[i]))
        set(node.names[i], *given);
      else
        set(node.names[i], i >= required ? evaluate(*node.defaults[i - required]) : Value());
    }
    std::string out;
    body(node.body, out);
    std::swap(inner, scopes_);
    return out;
  }

  Call arguments(const Expr& expr) {
    Call call;
    for (const ExprPtr& arg : expr.args) call.args.push_back(evaluate(*arg));
    for (const auto& [name, arg] : expr.named) call.named.emplace_back(name, evaluate(*arg));
    return call;
  }

  Value evaluate(const Expr& expr) {
    const Level level(*this, expr.line);
    Value value = evaluate_unbounded(expr);
    // Only these make new text out of old.
    const bool makes_text = expr.kind == ExprKind::binary || expr.kind == ExprKind::filter ||
                            expr.kind == ExprKind::call || expr.kind == ExprKind::slice;
    if (makes_text && value.text()) spend(value.text()->size());
    if (makes_text && value.items()) spend(value.items()->size() * sizeof(Value));
    return value;
  }

  Value evaluate_unbounded(const Expr& expr) {
    const auto part = [&](std::size_t i) { return evaluate(*expr.parts[i]); };
    switch (expr.kind) {
      case ExprKind::literal:
        return expr.value;
      case ExprKind::name:
        return look_up(expr.text);
      case ExprKind::list: {
        std::vector<Value> items;
        for (std::size_t i = 0; i < expr.parts.size(); ++i) items.push_back(part(i));
        return Value::list(std::move(items));
      }
      case ExprKind::dict:
        return dict(expr);
      case ExprKind::attribute:
        return at(part(0), Value(expr.text));
      case ExprKind::subscript: {
        const Value value = part(0);
        if (value.text()) charge(value);
        return at(value, part(1));
      }
      case ExprKind::slice: {
        const Value value = part(0), begin = part(1), end = part(2);
        return slice(charge(value), begin, end, part(3));
      }
      case ExprKind::call:
        return call(expr);
      case ExprKind::filter: {
        const Value value = part(0);
        return apply_filter(expr.text, charge(value), arguments(expr));
      }
      case ExprKind::test: {
        const Value value = part(0);
        return apply_test(expr.text, value, arguments(expr));
      }
      case ExprKind::unary: {
        const Value value = part(0);
        if (expr.text == "not") return !value.truthy();
        return arithmetic(expr.text == "-" ? "-" : "+", Value(std::int64_t{0}), value);
      }
      case ExprKind::binary:
        return binary(expr);
      case ExprKind::comparison:
        return comparison(expr);
      case ExprKind::conditional:
        if (part(0).truthy()) return part(1);
        return expr.parts.size() > 2 ? part(2) : Value();
    }
    return Value();
  }

  Value dict(const Expr& expr) {
    std::vector<std::pair<std::string, Value>> entries;
    for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
      const Value key = evaluate(*expr.parts[i]);
      if (!key.text()) fail_input("a key of a dict must be a string, not a value of type {}", key.type());
      Value value = evaluate(*expr.parts[i + 1]);
      const auto same =
          std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == *key.text(); });
      if (same != entries.end())
        same->second = std::move(value);
      else
        entries.emplace_back(*key.text(), std::move(value));
    }
    return Value::dict(std::move(entries));
  }

  Value call(const Expr& expr) {
    const Expr& callee = *expr.parts[0];
    if (callee.kind == ExprKind::attribute) {
      const Value object = evaluate(*callee.parts[0]);
      if (has_method(object, callee.text)) return call_method(charge(object), callee.text, arguments(expr));
      const Value* own = object.find(callee.text);
      if (!own || !own->is<FunctionPtr>())
        fail_input("a value of type {} has no method {} that halfbyte knows", object.type(),
                   quote(callee.text));
      return (*own->get<FunctionPtr>())->run(arguments(expr));
    }
    const Value function = evaluate(callee);
    if (const auto* undefined = function.get<Undefined>())
      fail_input("{} is undefined, so it cannot be called", undefined->name);
    if (!function.is<FunctionPtr>()) fail_input("a value of type {} cannot be called", function.type());
    return (*function.get<FunctionPtr>())->run(arguments(expr));
  }

  Value binary(const Expr& expr) {
    Value left = evaluate(*expr.parts[0]);
    if (expr.text == "and") return left.truthy() ? evaluate(*expr.parts[1]) : left;
    if (expr.text == "or") return left.truthy() ? left : evaluate(*expr.parts[1]);
    const Value right = evaluate(*expr.parts[1]);
    if (expr.text == "~") return to_text(left) + to_text(right);
    return arithmetic(expr.text, left, right);
  }

  Value comparison(const Expr& expr) {
    Value left = evaluate(*expr.parts[0]);
    for (std::size_t i = 0; i < expr.ops.size(); ++i) {
      Value right = evaluate(*expr.parts[i + 1]);
      const std::string& op = expr.ops[i];
      if (left.data.index() == right.data.index() || op.ends_with("in")) charge(right);
      const bool holds = op == "=="       ? equal(left, right)
                         : op == "!="     ? !equal(left, right)
                         : op == "in"     ? contains(right, left)
                         : op == "not in" ? !contains(right, left)
                         : op == "<"      ? less(left, right)
                         : op == ">"      ? less(right, left)
                         : op == "<="     ? !less(right, left)
                                          : !less(left, right);
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  std::vector<Variables>
      scopes_;  // variables and globals, the template's own, then one a loop, block or macro
  int line_ = 1, depth_ = 0;
  std::int64_t steps_ = 0, bytes_ = 0;
};

}  // namespace

std::string render(const std::vector<NodePtr>& nodes, const Variables& variables) {
  return Evaluator(variables).run(nodes);
}

}  // namespace halfbyte::jinja
