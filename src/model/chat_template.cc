// Gives a chat template its variables and runs it.
#include "model/chat_template.h"

#include "core/fail.h"
#include "io/text.h"
#include "model/jinja_ast.h"
#include "model/jinja_eval.h"

namespace halfbyte {

std::string render_chat(std::string_view chat_template, const std::vector<Message>& messages,
                        const ChatOptions& options) {
  using jinja::Value;
  if (!is_utf8(chat_template)) fail_input("chat template: is not UTF-8");
  std::vector<Value> list;
  for (const Message& message : messages) {
    if (!is_utf8(message.role) || !is_utf8(message.content)) fail_input("a chat message is not UTF-8");
    list.push_back(Value::dict({{"role", message.role}, {"content", message.content}}));
  }
  jinja::Variables variables{{"messages", Value::list(std::move(list))},
                             {"tools", Value::none()},
                             {"documents", Value::none()},
                             {"add_generation_prompt", options.add_generation_prompt}};
  if (!options.bos_token.empty()) variables.emplace_back("bos_token", options.bos_token);
  if (!options.eos_token.empty()) variables.emplace_back("eos_token", options.eos_token);
  for (const auto& [name, value] : options.flags) variables.emplace_back(name, value);
  try {
    return jinja::render(jinja::parse(chat_template), variables);
  } catch (const Error& error) {
    fail(error.kind(), "chat template: {}", error.what());
  }
}

}  // namespace halfbyte
