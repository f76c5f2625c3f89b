// The result table: figures as eval wrote them, as text and Markdown; wrong files refused by key.
#include "report/evals.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/report.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const char* kEval =
    R"({"model": "out/m-nf4", "weights": "nf4", "activations": "float", "bits_per_weight": 4.5, "model_bytes": 116500000,
  "text": "t.txt", "perplexity": 30.34887, "stderr": 0.5, "nll_per_window": [3.4], "tokens": 2047, "windows": 1, "seq_len": 2048,
  "protocol": "windows", "kl_mean": 0.25, "top1_agreement": null, "seconds": 7.25})";

TEST(Evals, ShowWhatEvalWrote) {
  const EvalRow row = parse_eval(parse_json(kEval, "e.json"), "e.json");
  const std::string text = render_text(result_table({row}));
  const std::string markdown =
      render_markdown(make_report({.evals = {row}, .analyses = {}, .checkpoints = {}}));
  for (const std::string& table : {text, markdown})
    for (const char* part : {"m-nf4", "4.500", "116.5", "30.349 +- 0.500", "0.2500", "7.2"})
      EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  EXPECT_NE(markdown.find(" - |"), std::string::npos);
  EXPECT_NE(markdown.find("halfbyte eval out/m-nf4 --perplexity t.txt"), std::string::npos);
}

TEST(Evals, LineUpColumns) {
  Table table{.caption = "", .columns = {{"name", false}, {"n"}}, .rows = {{"é", "1"}, {"long|er", "23"}}};
  EXPECT_EQ(render_text(table), "name      n\né         1\nlong|er  23\n");
}

TEST(Evals, NameTheKeyThatIsMissingOrOfAnotherType) {
  const std::string text = kEval;
  for (const char* key : {"perplexity", "weights", "model_bytes", "windows", "text", "seconds"}) {
    std::string broken = text;
    broken.replace(broken.find(std::string("\"") + key), 2, "\"_");
    const Json json = parse_json(broken, "e.json");
    const std::string message = test::message_of([&] { parse_eval(json, "e.json"); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("e.json"), std::string::npos) << message;
  }
  Json wrong = parse_json(text, "e.json");
  wrong["kl_mean"] = "much";
  EXPECT_NE(test::message_of([&] { parse_eval(wrong, "e.json"); }).find("kl_mean"), std::string::npos);
  EXPECT_NE(test::message_of([&] { parse_eval(Json::array(), "e.json"); }).find("object"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
