// The result table: figures as eval wrote them, wrong files refused by key.
#include "report/table.h"

#include <gtest/gtest.h>

#include "core/fail.h"
#include "io/output.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const char* kEval =
    R"({"model": "out/m-nf4", "weights": "nf4", "activations": "float", "bits_per_weight": 4.5, "model_bytes": 116500000,
  "text": "t.txt", "perplexity": 30.34887, "stderr": 0.5, "nll_per_window": [3.4], "tokens": 2047, "windows": 1, "seq_len": 2048,
  "protocol": "windows", "kl_mean": 0.25, "top1_agreement": null, "seconds": 7.25})";

TEST(Report, ShowsWhatEvalWrote) {
  const test::Scratch dir;
  write_text_file(dir.path() / "e.json", kEval);
  const EvalRow row = read_eval(dir.path() / "e.json");
  for (const std::string& table : {text_table({row}), markdown_report({row})})
    for (const char* part : {"m-nf4", "4.500", "116.5", "30.349 +- 0.500", "0.2500", "7.2"})
      EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  EXPECT_NE(markdown_report({row}).find("| -"), std::string::npos);
}

TEST(Report, NamesTheKeyThatIsMissing) {
  const test::Scratch dir;
  const std::string text = kEval;
  for (const char* key : {"perplexity", "weights", "model_bytes", "windows"}) {
    std::string broken = text;
    broken.replace(broken.find(std::string("\"") + key), 2, "\"_");
    write_text_file(dir.path() / "e.json", broken);
    try {
      read_eval(dir.path() / "e.json");
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace halfbyte
