// Importing GGUF models: weights, config and tokenizer against the Hugging Face folders that the files were made of.
#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/ggml_blocks.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

using test::message_of;
using test::Scratch;

std::string golden(const std::string& name) { return std::string(HALFBYTE_GOLDEN) + "/" + name; }

void expect_same_weights(const std::filesystem::path& got_path, const std::string& want_path) {
  const SafetensorsModel got(got_path), want(want_path);
  EXPECT_EQ(got.names(), want.names());
  for (const std::string& name : want.names()) {
    const TensorView* tensor = got.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->dtype, DType::bf16) << name;
    EXPECT_EQ(tensor->shape, want.at(name).shape) << name;
    EXPECT_TRUE(std::ranges::equal(tensor->data, want.at(name).data)) << name;
  }
}

// The import lists added tokens in the model's vocabulary too, since their ids may lie anywhere in it.
void expect_same_tokenizer(const Json& got, Json want) {
  for (const Json& token : want["added_tokens"])
    want["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
  for (const auto& [key, value] : want.items()) {
    if (key == "model") continue;
    ASSERT_TRUE(got.contains(key)) << key;
    EXPECT_EQ(got[key], value) << key << ": " << got[key];
  }
  for (const auto& [key, value] : want["model"].items()) {
    ASSERT_TRUE(got["model"].contains(key)) << key;
    EXPECT_EQ(got["model"][key], value) << key;
  }
}

class GgufImportTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufImportTest, GivesBackTheFolderItWasMadeOf) {
  const std::string name = GetParam();
  const Scratch scratch;
  std::int64_t last = 0;
  const GgufImport result = import_gguf(golden("gguf/" + name + ".gguf"), scratch / "out", false,
                                        [&](std::int64_t done, std::int64_t total) {
                                          EXPECT_GT(done, last);
                                          EXPECT_LE(done, total);
                                          last = done;
                                        });
  EXPECT_EQ(static_cast<std::uintmax_t>(result.bytes_written),
            std::filesystem::file_size(scratch / "out/model.safetensors"));
  expect_same_weights(scratch / "out", golden("models/" + name));

  const Json got = read_json_file(scratch / "out/config.json");
  const Json want = read_json_file(golden("models/" + name + "/config.json"));
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size", "max_position_embeddings", "tie_word_embeddings", "head_dim", "attention_bias",
        "mlp_bias", "bos_token_id", "eos_token_id", "hidden_act"}) {
    if (want.contains(key) && got.contains(key)) {
      EXPECT_EQ(got[key], want[key]) << key;
    }
  }
  for (const char* key :
       {"hidden_size", "num_attention_heads", "vocab_size", "tie_word_embeddings", "eos_token_id"})
    EXPECT_TRUE(got.contains(key)) << key;
  EXPECT_EQ(got["model_type"], name == "mistral" ? "llama" : want["model_type"].get<std::string>());
  EXPECT_EQ(got["rms_norm_eps"].get<double>(), static_cast<double>(want["rms_norm_eps"].get<float>()));
  Json rope = got["rope_scaling"];
  if (rope.is_null()) rope = {{"rope_type", "default"}};
  rope["rope_theta"] = got["rope_theta"];
  EXPECT_EQ(rope, want["rope_parameters"]);

  expect_same_tokenizer(read_json_file(scratch / "out/tokenizer.json"),
                        read_json_file(golden("gguf/" + name + ".tokenizer.json")));
  const Json tokenizer = read_json_file(scratch / "out/tokenizer_config.json");
  EXPECT_EQ(tokenizer["chat_template"], "{{ messages }}");
  EXPECT_EQ(tokenizer["eos_token"], "<|end|>");
  EXPECT_EQ(read_json_file(scratch / "out/generation_config.json")["eos_token_id"], Json({2, 0}));
}

INSTANTIATE_TEST_SUITE_P(Models, GgufImportTest,
                         ::testing::Values("llama3", "smollm2_like", "mistral", "llama_linear", "qwen2",
                                           "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

TEST(GgufImport, QuantizedTensorsAndSentencePiece) {
  const Scratch scratch;
  import_gguf(golden("gguf/spm.gguf"), scratch / "out", false, {});
  expect_same_weights(scratch / "out", golden("gguf/spm.safetensors"));
  EXPECT_EQ(read_json_file(scratch / "out/config.json")["attention_bias"], true);
  expect_same_tokenizer(read_json_file(scratch / "out/tokenizer.json"),
                        read_json_file(golden("gguf/spm.tokenizer.json")));
}

TEST(GgufImport, RefusesAnExistingFolderAndLeavesIt) {
  const Scratch scratch;
  scratch.write("out/config.json", "{}");
  EXPECT_THROW(import_gguf(golden("gguf/qwen3.gguf"), scratch / "out", false, {}), Error);
  EXPECT_EQ(scratch.entries(), 2u);
  import_gguf(golden("gguf/qwen3.gguf"), scratch / "out", true, {});
  EXPECT_EQ(scratch.entries(), 6u);
}

// Replaces one text by another of the same length in a golden file.
std::string edited(const std::string& file, const std::string& from, const std::string& to) {
  std::string bytes = test::read_all(golden(file));
  const auto at = bytes.find(from);
  EXPECT_NE(at, bytes.npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, from.size(), to);
}

struct Refusal {
  const char *file, *from, *to, *says;
  std::size_t size = 0;  // of from and to, where they hold zero bytes
};

TEST(GgufImport, WhatWouldMeanSomethingElseIsRefusedByName) {
  const Refusal refusals[] = {
      {"qwen3.gguf", "qwen2", "qwen9", "the pre-tokenizer \"qwen9\" is not supported"},
      {"qwen3.gguf", "gpt2", "bert", "the tokenizer model \"bert\" is not supported"},
      {"qwen3.gguf", "qwen3.block_count", "qwen3.block_cxxnt", "the key \"qwen3.block_count\" is missing"},
      {"qwen3.gguf", "blk.1.attn_q.weight", "blk.1.attn_x.weight", "has no tensor \"blk.1.attn_q.weight\""},
      {"qwen3.gguf", "blk.1.attn_q_norm.weight", "blk.7.attn_q_norm.weight",
       "has no tensor \"blk.1.attn_q_norm.weight\""},
      {"llama3.gguf", "rope_freqs.weight", "rope_freqz.weight", "tensor \"rope_freqz.weight\" has no place"},
      {"llama_linear.gguf", "linear", "spiral", "the rope scaling \"spiral\" is not supported"},
      {"llama_linear.gguf", "architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
       "architecture\x08\0\0\0\x05\0\0\0\0\0\0\0gamma", "the architecture \"gamma\" is not supported", 29},
      {"spm.gguf", "<0x41>", "<0xAG>", "has 256 byte tokens, expected none or all"},
      {"spm.gguf", "<0x41>", "<0x42>", "are both \"<0x42>\""},
      {"spm.gguf", "<0x41>", "<0x4\xFF>", "is not UTF-8"},
  };
  for (const Refusal& refusal : refusals) {
    const Scratch scratch;
    const auto text = [&](const char* from) {
      return refusal.size ? std::string(from, refusal.size) : std::string(from);
    };
    const auto path = scratch.write(
        "m.gguf", edited(std::string("gguf/") + refusal.file, text(refusal.from), text(refusal.to)));
    const std::string message = message_of([&] { import_gguf(path, scratch / "out", false, {}); });
    EXPECT_NE(message.find(refusal.says), std::string::npos) << message;
    EXPECT_NE(message.find("m.gguf"), std::string::npos) << message;
    EXPECT_EQ(scratch.entries(), 1u);
  }
}

TEST(GgufImport, DivisorsThatAreNotLlama3sAreRefused) {
  const Scratch scratch;
  const GgufFile file(golden("gguf/llama3.gguf"));
  const auto& tensor = file.tensor("rope_freqs.weight");
  std::string bytes = test::read_all(golden("gguf/llama3.gguf"));
  const float wrong = 3.0f;
  std::memcpy(bytes.data() + (tensor.data.data() - file.bytes().data()), &wrong, sizeof(wrong));
  EXPECT_NE(message_of([&] {
              import_gguf(scratch.write("m.gguf", bytes), scratch / "out", false, {});
            }).find("not those of Llama 3's rope scaling"),
            std::string::npos);
}

// The table of file layouts and the list of decoders are typed in two rooms.
TEST(GgufImport, DecodersAgreeWithTheFileLayout) {
  for (const GgmlDecoder& decoder : ggml_decoders()) {
    const auto* type = std::ranges::find(kGgmlTypes, decoder.id, &GgmlType::id);
    ASSERT_NE(type, kGgmlTypes.end()) << decoder.name;
    EXPECT_EQ(type->name, decoder.name);
    EXPECT_EQ(type->block_values, decoder.block_values);
    EXPECT_EQ(type->block_bytes, decoder.block_bytes);
  }
}

}  // namespace
}  // namespace halfbyte
