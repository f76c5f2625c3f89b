// Tokenizers against golden ids of the tokenizers package and SentencePiece, and files that must be refused.
#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "halfbyte/error.h"
#include "io/json.h"
#include "model/pretokenizer_regex.h"
#include "model/unicode.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = fs::path(HALFBYTE_GOLDEN) / "tokenizers";

std::vector<fs::path> golden_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(kFolder)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip_special) {
  TokenStream stream(tokenizer, skip_special);
  std::string text;
  for (std::int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_EQ(whole_characters(part), part.size());
    text += part;
  }
  return text + stream.finish();
}

TEST(Tokenizer, GoldenIds) {
  const auto folders = golden_folders();
  ASSERT_EQ(folders.size(), 11u);
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.filename().string());
    const Tokenizer tokenizer = Tokenizer::load(folder);
    const Json cases = read_json_file(folder / "cases.json");
    for (const Json& row : cases["encode"]) {
      const std::string text = row["text"];
      EXPECT_EQ(tokenizer.encode(text, true), row["ids"].get<std::vector<std::int32_t>>())
          << row["text"].dump();
      EXPECT_EQ(tokenizer.encode(text, false), row["plain"].get<std::vector<std::int32_t>>())
          << row["text"].dump();
    }
  }
}

TEST(Tokenizer, GoldenTextsWholeAndStreamed) {
  for (const fs::path& folder : golden_folders()) {
    SCOPED_TRACE(folder.filename().string());
    const Tokenizer tokenizer = Tokenizer::load(folder);
    const Json cases = read_json_file(folder / "cases.json");
    const bool exact = !tokenizer.id_of("<0x0A>");  // broken runs of byte tokens may differ when streamed
    for (const Json& row : cases.value("decode", Json::array())) {
      const std::vector<std::int32_t> ids = row["ids"];
      EXPECT_EQ(tokenizer.decode(ids, false), row["text"].get<std::string>()) << row["ids"].dump();
      EXPECT_EQ(tokenizer.decode(ids, true), row["plain"].get<std::string>()) << row["ids"].dump();
      if (exact) {
        EXPECT_EQ(streamed(tokenizer, ids, false), row["text"].get<std::string>()) << row["ids"].dump();
        EXPECT_EQ(streamed(tokenizer, ids, true), row["plain"].get<std::string>()) << row["ids"].dump();
      }
    }
    // What was encoded is sound text, so its tokens stream to what they decode to.
    for (const Json& row : cases["encode"]) {
      const std::vector<std::int32_t> ids = row["plain"];
      EXPECT_EQ(streamed(tokenizer, ids, false), tokenizer.decode(ids, false)) << row["text"].dump();
    }
  }
}

TEST(Tokenizer, StreamHoldsBackPartsOfACharacter) {
  const Tokenizer tokenizer = Tokenizer::load(kFolder / "gpt2");
  const auto ids = tokenizer.encode("\U0001F9E9", false);  // a rare character: one token a byte or two
  ASSERT_GT(ids.size(), 1u);
  TokenStream stream(tokenizer);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\U0001F9E9");
  EXPECT_EQ(stream.push(ids.front()), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = Tokenizer::load(kFolder / "sentencepiece");
  EXPECT_EQ(tokenizer.vocab_size(), 901);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.token_of(900), "<pad>");
  EXPECT_EQ(tokenizer.id_of("<pad>"), 900);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(300));
  EXPECT_EQ(tokenizer.encode("<pad>", false), std::vector<std::int32_t>{900});
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{1, 900, 2}, true), "");
  EXPECT_THROW(tokenizer.token_of(901), Error);
  EXPECT_THROW(tokenizer.token_of(-1), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<std::int32_t>{901}, false), Error);
  EXPECT_THROW(tokenizer.encode("\xC3", false), Error);
}

TEST(Tokenizer, LongWordsTakeLittleTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* name : {"gpt2", "smollm", "llama3", "qwen2", "llama2", "mistral"}) {
    const Tokenizer tokenizer = Tokenizer::load(kFolder / name);
    for (const std::string unit : {"a", " ", "\n", "the", "1", "e\u0301\u0323", " \n"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      EXPECT_GT(tokenizer.encode(text, false).size(), 0u);
    }
  }
  // Quadratic merging would take minutes; this takes about a second, more under sanitizers.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Unicode, LossyTextFollowsTheStandardsMaximalParts) {
  EXPECT_EQ(utf8_lossy("a\xC3\xA9z"), "a\u00e9z");
  EXPECT_EQ(utf8_lossy("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(utf8_lossy("\xF0\x9F\x41"), "\uFFFD\x41");
  EXPECT_EQ(utf8_lossy("\xC0\x80\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(utf8_lossy("\xF4\x90\xFF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(whole_characters("ab\xF0\x9F\x98"), 2u);
  EXPECT_EQ(whole_characters("ab\xF0\x9F\x98\x80"), 6u);
  EXPECT_EQ(whole_characters("\x80\x80"), 2u);  // broken for good, not waiting
}

TEST(Unicode, NormalFormsStayAtUnicode9) {
  EXPECT_EQ(normalize("e\u0323\u0301", NormalForm::nfc), "\u1EB9\u0301");
  EXPECT_EQ(normalize("\uAC00\u11A8", NormalForm::nfc), "\uAC01");
  EXPECT_EQ(normalize("\uFB01", NormalForm::nfkc), "fi");
  EXPECT_EQ(normalize("\u00e9", NormalForm::nfd), "e\u0301");
  // U+1ABF (of Unicode 13, class 220) neither moves nor lets a mark pass.
  EXPECT_EQ(normalize("a\u0301\u1ABF\u0323", NormalForm::nfc), "\u00e1\u1ABF\u0323");
  EXPECT_EQ(normalize("\U00011935\U00011930", NormalForm::nfc), "\U00011935\U00011930");
}

TEST(PatternTranslation, RefusesWhatPcre2WouldReadDifferently) {
  for (const char* bad :
       {"\\bword", "(a)\\1", "[a-z&&[^b]]", "[[:alpha:]]", "\\p{Han}",   "(?m:a)",    "a(?i)b",
        "\\h",     "a{2}+",  "[^\\P{L}]",   "\\K",         "(?<name>a)", "(*ACCEPT)", "[",
        "(",       "a{2}?",  "\\",          "\\p{",        "[]a]",       "\\x{}"})
    EXPECT_THROW(Pattern::regex(bad, "test"), Error) << bad;
  EXPECT_EQ(translate_pattern("a{,3}\\{{x}", "test"), "a{0,3}\\{\\{x}");
}

// Malformed files: a change to a sound tokenizer.json and a part of the message that names it.
struct Malformed {
  const char* pointer;
  const char* value;
  const char* message;
};

constexpr Malformed kMalformed[] = {
    {"", "[]", "must be a JSON object"},
    {"/model", "null", "model"},
    {"/model", "\"BPE\"", "model"},
    {"/model/type", "\"Unigram\"", "\"Unigram\""},
    {"/model/type", "7", "type"},
    {"/model/vocab", "{}", "0 tokens"},
    {"/model/vocab", "[\"a\"]", "vocab"},
    {"/model/vocab/a", "\"x\"", "not a whole number"},
    {"/model/vocab/a", "1.5", "not a whole number"},
    {"/model/vocab/a", "1", "same id 1"},
    {"/model/vocab/a", "-1", "without gaps"},
    {"/model/vocab/a", "99", "without gaps"},
    {"/model/vocab/a", "4294967296", "without gaps"},
    {"/model/vocab/a", "18446744073709551615", "without gaps"},
    {"/model/merges", "null", "merges"},
    {"/model/merges", "[\"ab\"]", "one space"},
    {"/model/merges", "[\"a b c\"]", "one space"},
    {"/model/merges", "[[\"a\"]]", "merge 0"},
    {"/model/merges", "[[\"a\", 1]]", "merge 0"},
    {"/model/merges", "[[\"a\", \"x\"]]", "\"x\""},
    {"/model/merges", "[[\"b\", \"a\"]]", "\"ba\""},
    {"/model/merges", "[[[[[\"a\"]]]]]", "merge 0"},
    {"/model/dropout", "0.1", "dropout"},
    {"/model/unk_token", "\"<unk>\"", "unk_token"},
    {"/model/continuing_subword_prefix", "\"##\"", "prefix"},
    {"/model/byte_fallback", "\"yes\"", "byte_fallback"},
    {"/added_tokens", "{}", "added_tokens"},
    {"/added_tokens", "[{\"id\": 3}]", "content"},
    {"/added_tokens", "[{\"id\": 3, \"content\": \"\"}]", "empty"},
    {"/added_tokens", "[{\"id\": 3, \"content\": 3}]", "content"},
    {"/added_tokens", "[{\"content\": \"<s>\"}]", "id"},
    {"/added_tokens", "[{\"id\": 4, \"content\": \"<s>\"}]", "expected 3"},
    {"/added_tokens", "[{\"id\": 3, \"content\": \"a\"}]", "expected 0"},
    {"/added_tokens", "[{\"id\": 4000000000, \"content\": \"<s>\"}]", "expected 3"},
    {"/added_tokens", "[{\"id\": 3, \"content\": \"<s>\"}, {\"id\": 4, \"content\": \"<s>\"}]", "twice"},
    {"/added_tokens", "[{\"id\": 3, \"content\": \"<s>\", \"lstrip\": 1}]", "lstrip"},
    {"/normalizer", "{\"type\": \"Lowercase\"}", "\"Lowercase\""},
    {"/normalizer", "{\"type\": \"Sequence\", \"normalizers\": 1}", "normalizers"},
    {"/normalizer", "{}", "type"},
    {"/normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}",
     "empty pattern"},
    {"/pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}", "\"BertPreTokenizer\""},
    {"/pre_tokenizer", "{\"type\": \"Split\", \"behavior\": \"Isolated\"}", "pattern"},
    {"/pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}",
     "(a"},
    {"/pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Other\"}",
     "Other"},
    {"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}",
     "last"},
    {"/pre_tokenizer", "{\"type\": \"Digits\", \"individual_digits\": 1}", "individual_digits"},
    {"/post_processor", "{\"type\": \"RobertaProcessing\"}", "\"RobertaProcessing\""},
    {"/post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [], \"special_tokens\": {}}",
     "sequence A"},
    {"/post_processor",
     "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
     "\"special_tokens\": {}}",
     "\"x\""},
    {"/post_processor",
     "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
     "\"special_tokens\": {\"x\": {\"ids\": [9]}}}",
     "outside the vocabulary"},
    {"/post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}",
     "sequence A"},
    {"/decoder", "{\"type\": \"WordPiece\"}", "\"WordPiece\""},
    {"/decoder", "{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 1, \"stop\": 0}", "one character"},
    {"/decoder", "{\"type\": \"Sequence\", \"decoders\": [{\"type\": 1}]}", "type"},
};

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "halfbyte-tokenizer-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const char* name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::string error() const {
    try {
      Tokenizer::load(dir_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  const Json sound_ =
      Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  fs::path dir_;
};

TEST_F(TokenizerFiles, SoundOneLoads) {
  write("tokenizer.json", sound_.dump());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(Tokenizer::load(dir_).encode("abba", false), (std::vector<std::int32_t>{2, 1, 0}));
}

TEST_F(TokenizerFiles, MalformedOnesAreRefusedByName) {
  for (const Malformed& row : kMalformed) {
    Json json = sound_;
    json[Json::json_pointer(row.pointer)] = Json::parse(row.value);
    write("tokenizer.json", json.dump());
    const std::string message = error();
    EXPECT_NE(message.find(row.message), message.npos)
        << row.pointer << " = " << row.value << ": " << message;
    EXPECT_NE(message.find("tokenizer.json"), message.npos) << message;
  }
}

TEST_F(TokenizerFiles, BrokenTextIsRefused) {
  std::string deep = "{\"normalizer\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"type\":\"Sequence\",\"normalizers\":[";
  const std::string whole = sound_.dump();
  for (const std::string& text :
       {std::string(), std::string("{"), deep, whole.substr(0, whole.size() / 2), whole + "x",
        std::string("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"), std::string("\xff\xfe")}) {
    write("tokenizer.json", text);
    EXPECT_NE(error(), "") << text.substr(0, 60);
  }
}

TEST_F(TokenizerFiles, NoTokenizerAtAll) { EXPECT_NE(error().find("neither"), std::string::npos); }

TEST_F(TokenizerFiles, ConfigIsReadInAllItsForms) {
  write("tokenizer.json", sound_.dump());
  write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "a", "special": true}, "eos_token": "b", "pad_token": null, "add_bos_token": true,
            "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  const Tokenizer tokenizer = Tokenizer::load(dir_);
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_EQ(tokenizer.encode("b", true), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(tokenizer.encode("b", false), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(tokenizer.chat_template(), "D");
  EXPECT_EQ(tokenizer.chat_template("tool_use"), "T");
  EXPECT_EQ(tokenizer.chat_template("other"), std::nullopt);
  write("chat_template.jinja", "J");
  EXPECT_EQ(Tokenizer::load(dir_).chat_template(), "J");
}

TEST_F(TokenizerFiles, BadConfigsAreRefused) {
  write("tokenizer.json", sound_.dump());
  for (const char* bad :
       {"[]", R"({"bos_token": 1})", R"({"bos_token": {"id": 1}})", R"({"eos_token": "zz"})",
        R"({"chat_template": 1})", R"({"chat_template": [1]})", R"({"add_bos_token": "yes"})",
        R"({"added_tokens_decoder": {"x": {"content": "a"}}})", R"({"added_tokens_decoder": []})"}) {
    write("tokenizer_config.json", bad);
    EXPECT_NE(error().find("tokenizer_config.json"), std::string::npos) << bad << ": " << error();
  }
}

TEST_F(TokenizerFiles, BrokenSentencePieceModelsAreRefused) {
  std::ifstream file(kFolder / "sentencepiece" / "tokenizer.model", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(whole.size(), 1000u);
  for (const std::string& text : {std::string(), std::string("x"), whole.substr(0, 500), whole.substr(1)}) {
    write("tokenizer.model", text);
    EXPECT_NE(error().find("tokenizer.model"), std::string::npos) << error();
  }
  write("tokenizer.model", whole);
  EXPECT_EQ(error(), "");
  write("added_tokens.json", R"({"<pad>": 902})");
  EXPECT_NE(error().find("expected 900"), std::string::npos) << error();
}

}  // namespace
}  // namespace halfbyte
