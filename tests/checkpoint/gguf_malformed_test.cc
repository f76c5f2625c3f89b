// GGUF files that are sound as files but no model that can be imported; nothing is left behind.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <random>

#include "checkpoint/gguf.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/malformed.h"

namespace halfbyte {
namespace {

using test::expect_refusal;
using test::GgufBuilder;
using test::le;
using test::Scratch;

constexpr auto kBad = ErrorKind::bad_input;
constexpr auto kUnsupported = ErrorKind::unsupported;

// A llama of one layer (hidden 4, two heads of 2, ffn 4, six tokens) whose keys and tensors a case changes by name.
struct Model {
  using Put = std::function<void(GgufBuilder&, const std::string&)>;
  std::map<std::string, Put> keys, tensors;

  static Put u32(std::uint32_t value) {
    return [=](GgufBuilder& f, const std::string& name) { f.u32(name, value); };
  }
  static Put f32(float value) {
    return [=](GgufBuilder& f, const std::string& name) { f.f32(name, value); };
  }
  static Put text(const std::string& value) {
    return [=](GgufBuilder& f, const std::string& name) { f.text(name, value); };
  }
  static Put flag(bool value) {
    return
        [=](GgufBuilder& f, const std::string& name) { f.key(name, 7, std::string(1, value ? '\1' : '\0')); };
  }
  static Put texts(const std::vector<std::string>& values) {
    return [=](GgufBuilder& f, const std::string& name) { f.texts(name, values); };
  }
  static Put ints(const std::vector<std::int32_t>& values) {
    return [=](GgufBuilder& f, const std::string& name) {
      std::string bytes;
      for (const std::int32_t value : values) bytes += le(value);
      f.array(name, 5, values.size(), bytes);
    };
  }
  static Put floats(const std::vector<float>& values) {
    return [=](GgufBuilder& f, const std::string& name) {
      std::string bytes;
      for (const float value : values) bytes += le(value);
      f.array(name, 6, values.size(), bytes);
    };
  }
  static Put f32s(const std::vector<std::uint64_t>& dims, float value = 0.5f) {
    return [=](GgufBuilder& f, const std::string& name) {
      std::size_t count = 1;
      for (const std::uint64_t dim : dims) count *= dim;
      std::string bytes;
      for (std::size_t i = 0; i < count; ++i) bytes += le(value);
      f.tensor(name, dims, 0, bytes);
    };
  }

  Model() {
    keys = {{"general.architecture", text("llama")},
            {"llama.block_count", u32(1)},
            {"llama.embedding_length", u32(4)},
            {"llama.feed_forward_length", u32(4)},
            {"llama.attention.head_count", u32(2)},
            {"llama.attention.head_count_kv", u32(1)},
            {"llama.context_length", u32(16)},
            {"llama.attention.layer_norm_rms_epsilon", f32(1e-5f)},
            {"tokenizer.ggml.model", text("gpt2")},
            {"tokenizer.ggml.pre", text("gpt-2")},
            {"tokenizer.ggml.tokens", texts({"<e>", "a", "b", "c", "ab", "abc"})},
            {"tokenizer.ggml.token_type", ints({3, 1, 1, 1, 1, 1})},
            {"tokenizer.ggml.merges", texts({"a b", "ab c"})},
            {"tokenizer.ggml.eos_token_id", u32(0)}};
    tensors = {{"token_embd.weight", f32s({4, 6})},     {"output_norm.weight", f32s({4})},
               {"blk.0.attn_norm.weight", f32s({4})},   {"blk.0.ffn_norm.weight", f32s({4})},
               {"blk.0.attn_q.weight", f32s({4, 4})},   {"blk.0.attn_k.weight", f32s({4, 2})},
               {"blk.0.attn_v.weight", f32s({4, 2})},   {"blk.0.attn_output.weight", f32s({4, 4})},
               {"blk.0.ffn_gate.weight", f32s({4, 4})}, {"blk.0.ffn_up.weight", f32s({4, 4})},
               {"blk.0.ffn_down.weight", f32s({4, 4})}};
  }
  std::string build() const {
    GgufBuilder file;
    for (const auto& [name, put] : keys) put(file, name);
    for (const auto& [name, put] : tensors) put(file, name);
    return file.build();
  }
};

void sentencepiece(Model& m) {
  m.keys["tokenizer.ggml.model"] = Model::text("llama");
  m.keys["tokenizer.ggml.token_type"] = Model::ints({2, 1, 1, 1, 1, 1});
  m.keys["tokenizer.ggml.scores"] = Model::floats({0, -3, -4, -5, -1, -2});
  m.keys["tokenizer.ggml.bos_token_id"] = Model::u32(1);
}

struct Case {
  const char* name;
  std::function<void(Model&)> change;
  const char* says;
  ErrorKind kind = kBad;
};

#define CHANGE [](Model & m)
const Case kCases[] = {{"no architecture", CHANGE{m.keys.erase("general.architecture");
}  // namespace
, "\"general.architecture\" is missing"
}  // namespace halfbyte
, {"architecture number", CHANGE{m.keys["general.architecture"] = Model::u32(1);
}
, "expected a string"
}
, {"other architecture", CHANGE{m.keys["general.architecture"] = Model::text("bert");
}
, "\"bert\" is not supported", kUnsupported
}
, {"architecture with escapes", CHANGE{m.keys["general.architecture"] = Model::text("\x1B[31m\n");
}
, "\\x1B", kUnsupported
}
, {"no layers key", CHANGE{m.keys.erase("llama.block_count");
}
, "\"llama.block_count\" is missing"
}
, {"no layers", CHANGE{m.keys["llama.block_count"] = Model::u32(0);
}
, "is 0, expected 1"
}
, {"2^32 - 1 layers", CHANGE{m.keys["llama.block_count"] = Model::u32(0xFFFFFFFFu);
}
, "is 4294967295"
}
, {"2^31 - 1 layers", CHANGE{m.keys["llama.block_count"] = Model::u32(0x7FFFFFFFu);
}
, "declares 2147483647 layers"
}
, {"two layers", CHANGE{m.keys["llama.block_count"] = Model::u32(2);
}
, "declares 2 layers"
}
, {"layers text", CHANGE{m.keys["llama.block_count"] = Model::text("1");
}
, "expected a whole number"
}
, {"heads by layer", CHANGE{m.keys["llama.attention.head_count_kv"] = Model::ints({1});
}
, "only equal layers", kUnsupported
}
, {"experts", CHANGE{m.keys["llama.expert_count"] = Model::u32(8);
}
, "not supported", kUnsupported
}
, {"sliding window", CHANGE{m.keys["llama.attention.sliding_window"] = Model::u32(8);
}
, "not supported", kUnsupported
}
, {"heads that do not divide", CHANGE{m.keys["llama.attention.head_count_kv"] = Model::u32(3);
}
, "cannot share"
}
, {"odd heads", CHANGE{m.keys["llama.attention.key_length"] = Model::u32(3);
}
, "heads of 3 values"
}
, {"values of another length", CHANGE{m.keys["llama.attention.value_length"] = Model::u32(4);
}
, "not supported together", kUnsupported
}
, {"partial rope", CHANGE{m.keys["llama.rope.dimension_count"] = Model::u32(2),
                          m.keys["llama.attention.key_length"] = Model::u32(4);
}
, "not supported together", kUnsupported
}
, {"no epsilon", CHANGE{m.keys.erase("llama.attention.layer_norm_rms_epsilon");
}
, "epsilon\" is missing"
}
, {"epsilon NaN", CHANGE{m.keys["llama.attention.layer_norm_rms_epsilon"] =
                             Model::f32(std::numeric_limits<float>::quiet_NaN());
}
, "expected a positive number"
}
, {"epsilon 0", CHANGE{m.keys["llama.attention.layer_norm_rms_epsilon"] = Model::f32(0);
}
, "expected a positive number"
}
, {"theta infinite",
   CHANGE{m.keys["llama.rope.freq_base"] = Model::f32(std::numeric_limits<float>::infinity());
}
, "expected a positive number"
}
, {"yarn", CHANGE{m.keys["llama.rope.scaling.type"] = Model::text("yarn");
}
, "\"yarn\" is not supported", kUnsupported
}
, {"linear by -1", CHANGE{m.keys["llama.rope.scale_linear"] = Model::f32(-1);
}
, "scaling factor is -1"
}
, {"divisors of another length", CHANGE{m.tensors["rope_freqs.weight"] = Model::f32s({2});
}
, "expected F32 [1]"
}
, {"divisor 0", CHANGE{m.tensors["rope_freqs.weight"] = Model::f32s({1}, 0);
}
, "not those of Llama 3", kUnsupported
}
, {"divisor NaN",
   CHANGE{m.tensors["rope_freqs.weight"] = Model::f32s({1}, std::numeric_limits<float>::quiet_NaN());
}
, "not those of Llama 3", kUnsupported
}
, {"no embedding", CHANGE{m.tensors.erase("token_embd.weight");
}
, "has no tensor \"token_embd.weight\""
}
, {"embedding of one dimension", CHANGE{m.tensors["token_embd.weight"] = Model::f32s({24});
}
, "has the shape [24]"
}
, {"embedding of another width", CHANGE{m.tensors["token_embd.weight"] = Model::f32s({8, 6});
}
, "has the shape [6, 8], expected [6, 4]"
}
, {"missing tensor", CHANGE{m.tensors.erase("blk.0.ffn_up.weight"), m.tensors["x"] = Model::f32s({1});
}
, "has no tensor \"blk.0.ffn_up.weight\""
}
, {"transposed tensor", CHANGE{m.tensors["blk.0.attn_k.weight"] = Model::f32s({2, 4});
}
, "has the shape [4, 2], expected [2, 4]"
}
, {"tensor of three dimensions", CHANGE{m.tensors["blk.0.attn_q.weight"] = Model::f32s({4, 2, 2});
}
, "expected [4, 4]"
}
, {"unknown tensor", CHANGE{m.tensors["blk.0.attn_sinks.weight"] = Model::f32s({2});
}
, "has no place", kUnsupported
}
, {"tensor of a layer too many", CHANGE{m.tensors["blk.1.attn_norm.weight"] = Model::f32s({4});
}
, "has no place", kUnsupported
}
, {"bias on q only", CHANGE{m.tensors["blk.0.attn_q.bias"] = Model::f32s({4});
}
, "has no tensor \"blk.0.attn_k.bias\""
}
, {"integer tensor", CHANGE{m.tensors["output_norm.weight"] = [](GgufBuilder& f, const std::string& n) {
     f.tensor(n, {4}, 26, std::string(16, 'x'));
   };
}
, "the type I32, which halfbyte cannot decode", kUnsupported
}
, {"no tokens", CHANGE{m.keys.erase("tokenizer.ggml.tokens");
}
, "\"tokenizer.ggml.tokens\" is missing"
}
, {"tokens that are numbers", CHANGE{m.keys["tokenizer.ggml.tokens"] = Model::ints({1});
}
, "expected an array of strings"
}
, {"too few tokens", CHANGE{m.keys["tokenizer.ggml.tokens"] = Model::texts({"a"});
}
, "for an embedding of 6 rows"
}
, {"too few types", CHANGE{m.keys["tokenizer.ggml.token_type"] = Model::ints({1});
}
, "with 1 types"
}
, {"type 7", CHANGE{m.keys["tokenizer.ggml.token_type"] = Model::ints({3, 1, 1, 1, 1, 7});
}
, "token 5 has the type 7"
}
, {"type -1", CHANGE{m.keys["tokenizer.ggml.token_type"] = Model::ints({3, 1, 1, 1, 1, -1});
}
, "token 5 has the type -1"
}
, {"one token twice",
   CHANGE{m.keys["tokenizer.ggml.tokens"] = Model::texts({"<e>", "a", "a", "c", "ab", "abc"});
}
, "tokens 1 and 2 are both"
}
, {"token not UTF-8",
   CHANGE{m.keys["tokenizer.ggml.tokens"] = Model::texts({"<e>", "a", "b", "\xE2\x82", "ab", "abc"});
}
, "is not UTF-8"
}
, {"merge of one part", CHANGE{m.keys["tokenizer.ggml.merges"] = Model::texts({"ab"});
}
, "is not two tokens"
}
, {"merge of three parts", CHANGE{m.keys["tokenizer.ggml.merges"] = Model::texts({"a b c"});
}
, "is not two tokens"
}
, {"empty merge", CHANGE{m.keys["tokenizer.ggml.merges"] = Model::texts({""});
}
, "is not two tokens"
}
, {"merge of a text that is no token", CHANGE{m.keys["tokenizer.ggml.merges"] = Model::texts({"a x"});
}
, "that is no token"
}
, {"merge into no token", CHANGE{m.keys["tokenizer.ggml.merges"] = Model::texts({"b c"});
}
, "that is no token"
}
, {"end token out of range", CHANGE{m.keys["tokenizer.ggml.eos_token_id"] = Model::u32(6);
}
, "is 6, which is no token"
}
, {"end token unused", CHANGE{m.keys["tokenizer.ggml.token_type"] = Model::ints({5, 1, 1, 1, 1, 1});
}
, "is 0, which is no token"
}
, {"begins with no token", CHANGE{m.keys["tokenizer.ggml.add_bos_token"] = Model::flag(true);
}
, "at the start of each text, but names none"
}
, {"template not UTF-8", CHANGE{m.keys["tokenizer.chat_template"] = Model::text("\x80");
}
, "template is not UTF-8"
}
, {"other pre-tokenizer", CHANGE{m.keys["tokenizer.ggml.pre"] = Model::text("tekken");
}
, "\"tekken\" is not supported", kUnsupported
}
, {"other tokenizer", CHANGE{m.keys["tokenizer.ggml.model"] = Model::text("t5");
}
, "\"t5\" is not supported", kUnsupported
}
, {"no scores", CHANGE{sentencepiece(m), m.keys.erase("tokenizer.ggml.scores");
}
, "\"tokenizer.ggml.scores\" is missing"
}
, {"too few scores", CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.scores"] = Model::floats({0});
}
, "has 1 token scores"
}
, {"score NaN", CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.scores"] = Model::floats(
                                             {0, -3, -4, -5, -1, std::numeric_limits<float>::quiet_NaN()});
}
, "has the score"
}
, {"equal scores",
   CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.scores"] = Model::floats({0, -3, -4, -5, -1, -1});
}
, "the order of merging is not known", kUnsupported
}
, {"one byte token",
   CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.token_type"] = Model::ints({2, 1, 1, 1, 1, 6});
}
, "has 1 byte tokens"
}
, {"normalization rules",
   CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.precompiled_charsmap"] = Model::ints({1});
}
, "normalization rules", kUnsupported
}
, {"endless token", CHANGE{sentencepiece(m), m.keys["tokenizer.ggml.tokens"] = Model::texts(
                                                 {"<e>", "a", "b", "c", "ab", std::string(100000, 'a')});
}
, "100000 bytes long", kUnsupported
}
,
}
;
#undef CHANGE

TEST(MalformedModel, SoundOnesAreImported) {
  const Scratch scratch;
  Model model;
  import_gguf(scratch.write("m.gguf", model.build()), scratch / "bpe", false, {});
  sentencepiece(model);
  import_gguf(scratch.write("m.gguf", model.build()), scratch / "spm", false, {});
  EXPECT_EQ(scratch.entries(), 13u);
}

TEST(MalformedModel, FuzzSeeds) {
  int imported = 0, files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HALFBYTE_GOLDEN) + "/../../fuzz/seeds/gguf")) {
    const Scratch scratch;
    ++files;
    if (!test::thrown_by([&] { import_gguf(entry.path(), scratch / "out", false, {}); })) ++imported;
    EXPECT_LE(scratch.entries(), 6u);
  }
  EXPECT_GE(files, 4);
  EXPECT_EQ(imported, 3);
}

TEST(MalformedModel, AreRefusedAndLeaveNothing) {
  for (const Case& row : kCases) {
    const Scratch scratch;
    Model model;
    row.change(model);
    const auto path = scratch.write("m.gguf", model.build());
    expect_refusal(
        row.name, [&] { import_gguf(path, scratch / "out", false, {}); }, row.kind, path.string(), row.says);
    EXPECT_EQ(scratch.entries(), 1u) << row.name;
  }
}

TEST(MalformedModel, ChangedBytesNeverCrash) {
  const Scratch scratch;
  Model spm;
  sentencepiece(spm);
  const std::string sound[] = {Model().build(), spm.build()};
  std::mt19937 random(20240301);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = sound[round % 2];
    for (unsigned change = 0; change <= random() % 2; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 4 ? random() % 256 : random() % 14);
    const auto path = scratch.write("m.gguf", bytes);
    try {
      import_gguf(path, scratch / "out", false, {});
      ++accepted;
      std::filesystem::remove_all(scratch / "out");
    } catch (const Error& error) {
      EXPECT_TRUE(is_utf8(error.what()));
    }
    EXPECT_EQ(scratch.entries(), 1u);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 1900);
}

}  // namespace
}  // namespace halfbyte
