// Chat templates against the renderings of transformers, and templates that must be refused.
#include "model/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "halfbyte/error.h"
#include "io/file.h"
#include "io/json.h"
#include "model/jinja_ast.h"
#include "model/jinja_eval.h"

namespace halfbyte {
namespace {

const std::string kFolder = HALFBYTE_GOLDEN "/tokenizer_chat/";

jinja::Value value_of(const Json& json) {
  using jinja::Value;
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_null()) return Value::none();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(value_of(item));
    return Value::list(std::move(items));
  }
  std::vector<std::pair<std::string, Value>> entries;
  for (const auto& [key, item] : json.items()) entries.emplace_back(key, value_of(item));
  return Value::dict(std::move(entries));
}

std::string error_of(const std::string& source, const std::vector<Message>& messages = {}) {
  try {
    render_chat(source, messages, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, RendersAsTransformersDoes) {
  const Json golden = read_json_file(kFolder + "cases.json");
  int rendered = 0, refused = 0;
  for (const Json& row : golden["chats"]) {
    SCOPED_TRACE(row["file"].get<std::string>() + ", chat " + row["chat"].get<std::string>());
    std::vector<Message> messages;
    for (const Json& message : row["messages"]) messages.push_back({message["role"], message["content"]});
    ChatOptions options{
        .add_generation_prompt = row["prompt"], .bos_token = "<s>", .eos_token = "</s>", .flags = {}};
    for (const auto& [name, flag] : row["flags"].items()) options.flags.emplace_back(name, flag.get<bool>());
    const std::string source = read_text_file(kFolder + row["file"].get<std::string>());
    if (row.contains("text")) {
      EXPECT_EQ(render_chat(source, messages, options), row["text"].get<std::string>());
      ++rendered;
    } else {
      EXPECT_THROW(render_chat(source, messages, options), Error) << row["error"];
      ++refused;
    }
  }
  EXPECT_GT(rendered, 100);
  EXPECT_GT(refused, 5);
}

TEST(ChatTemplate, ConstructsYieldWhatJinjaYields) {
  const Json golden = read_json_file(kFolder + "cases.json");
  const jinja::Variables variables{
      {"text", "h\u00e9llo\U0001F600!"},
      {"items", value_of(Json::array({"a", 1, "c", nullptr}))},
      {"user", jinja::Value::dict({{"role", "user"}, {"content", "hi"}})},
  };
  for (const Json& row : golden["snippets"]) {
    const std::string source = row["template"];
    SCOPED_TRACE(source);
    const jinja::Variables& own = variables;
    if (row.contains("text")) {
      try {
        EXPECT_EQ(jinja::render(jinja::parse(source), own), row["text"].get<std::string>());
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    } else {
      EXPECT_THROW(jinja::render(jinja::parse(source), own), Error) << row["error"];
    }
  }
}

TEST(ChatTemplate, ErrorsNameTheLineAndTheConstruct) {
  EXPECT_EQ(error_of("a\n\n{{ 1 | groupby }}"),
            "chat template: line 3: the filter \"groupby\" is not supported");
  EXPECT_EQ(error_of("a\n{% include 'x' %}"),
            "chat template: line 2: the statement \"include\" is not supported");
  EXPECT_EQ(error_of("{% if true %}\n\nx"), "chat template: line 3: the template ends before endif");
  EXPECT_EQ(error_of("\n{{ raise_exception('no system role') }}"), "chat template: line 2: no system role");
  EXPECT_EQ(error_of("{{ messages[0].role }}"),
            "chat template: line 1: an element is undefined, so it has no 'role'");
  EXPECT_EQ(error_of("{{ \xff }}"), "chat template: is not UTF-8");
}

TEST(ChatTemplate, EndlessOrHugeTemplatesAreStopped) {
  const std::string nested(5000, '('), brackets(5000, '[');
  std::string chain = "{{ 1", nots = "{{ ", elifs = "{% if 0 %}", ifs;
  for (int i = 0; i < 5000; ++i) {
    chain += " + 1";
    nots += "not ";
    elifs += "{% elif 0 %}";
    ifs += "{% if 1 %}";
  }
  const std::string bad[] = {
      "{{ " + nested + "1",
      "{{ " + brackets,
      chain + " }}",
      nots + "1 }}",
      elifs + "{% endif %}",
      ifs,
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(1000000000) %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99999) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=['ab']) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=['a']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}",
      "{{ 'x' * 99999999999 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 99999999999999999999 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{% set a = 'aaaaaaaaaa' * 1000000 %}{% for i in range(99999) %}{% set b = a | upper %}{% endfor %}",
      "{% set a = 'aaaaaaaaaa' * 1000000 %}{% for i in range(99999) %}{{ a[5] }}{% endfor %}",
      "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
  };
  for (const std::string& source : bad) EXPECT_NE(error_of(source), "") << source.substr(0, 100);
}

TEST(ChatTemplate, CutTemplatesEndInAnError) {
  // Every beginning of a template either renders or is refused, and nothing else.
  const std::string source = read_text_file(kFolder + "mistral.jinja");
  for (std::size_t size = 0; size < source.size(); ++size)
    error_of(source.substr(0, size), {{"user", "hi"}, {"assistant", "x"}});
}

}  // namespace
}  // namespace halfbyte
