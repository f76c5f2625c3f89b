// Chat templates: a list of messages becomes the text that a model was trained to continue.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halfbyte {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;                // end with the opening of the assistant's answer
  std::string bos_token, eos_token;                 // as text; empty where the tokenizer has none
  std::vector<std::pair<std::string, bool>> flags;  // further variables, as enable_thinking of Qwen3
};

// Renders the Jinja template as transformers' apply_chat_template does (trim_blocks and lstrip_blocks set, tools and
// documents none). A template that halfbyte cannot run is refused, naming the construct and its line, as is one that
// raises an exception of its own.
std::string render_chat(std::string_view chat_template, const std::vector<Message>& messages,
                        const ChatOptions& options);

}  // namespace halfbyte
