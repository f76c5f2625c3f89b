// Interrupted runs: gone on with to the same bytes from any point, and only by the same run.
#include "quantize/unfinished.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "core/fail.h"
#include "io/file.h"
#include "quantize/write.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
const fs::path kModel = fs::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

class UnfinishedTest : public testing::Test {
 protected:
  UnfinishedTest() : checkpoint_(kModel), pool_(2) {
    std::vector<std::string> linears;
    for (const char* part : {"self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"})
      linears.push_back(std::string("model.layers.1.") + part);
    plan_ = make_plan(checkpoint_, linears,
                      {.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {}});
  }

  // Runs until `stop` tensors are done; -1: to the end.
  QuantizeSummary run(const fs::path& dir, std::int64_t stop, bool resumable = true) {
    fs::create_directories(dir);
    WriteOptions options{.record = &record_, .resumable = resumable};
    options.progress = [&](std::int64_t done, const std::string&) {
      if (done == stop) throw std::runtime_error("stopped");
    };
    return write_quantized(checkpoint_, plan_, dir, pool_, options);
  }

  static std::string bytes_of(const fs::path& dir) {
    std::string all;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    for (const std::string& name : names) all += name + "\n" + read_text_file(dir / name) + "\n";
    return all;
  }

  Checkpoint checkpoint_;
  ThreadPool pool_;
  QuantizePlan plan_;
  RunRecord record_{.tool = "test", .model = "m", .stats = "", .plan = "p", .options = {{"method", "rtn"}}};
  test::Scratch scratch_;
};

TEST_F(UnfinishedTest, EndsInTheSameBytesFromAnyPoint) {
  run(scratch_.path() / "whole", -1, false);
  const std::string expected = bytes_of(scratch_.path() / "whole");
  const auto tensors = static_cast<std::int64_t>(plan_.tensors.size());
  for (std::int64_t stop = 1; stop <= tensors; ++stop) {
    const fs::path dir = scratch_.path() / std::to_string(stop);
    EXPECT_THROW(run(dir, stop), std::runtime_error);
    EXPECT_EQ(run(dir, -1).taken_over, stop);
    EXPECT_EQ(bytes_of(dir), expected) << stop;
  }
}

TEST_F(UnfinishedTest, DoesNotTrustWhatItFinds) {
  run(scratch_.path() / "whole", -1, false);
  const std::string expected = bytes_of(scratch_.path() / "whole");
  const fs::path dir = scratch_.path() / "run";
  const auto again = [&](auto damage, std::int64_t taken_over) {
    fs::remove_all(dir);
    EXPECT_THROW(run(dir, 10), std::runtime_error);
    damage();
    EXPECT_EQ(run(dir, -1).taken_over, taken_over);
    EXPECT_EQ(bytes_of(dir), expected);
  };
  const fs::path list = dir / "finished.txt";
  // The list without its last line, with a cut last line, without all; another byte of a finished tensor; trash of a kill.
  again(
      [&] {
        std::string text = read_text_file(list);
        text.resize(text.rfind('\n', text.size() - 2) + 1);
        std::ofstream(list) << text;
      },
      9);
  again(
      [&] {
        const std::string text = read_text_file(list);
        std::ofstream(list) << text.substr(0, text.size() - 20);
      },
      9);
  again([&] { fs::remove(list); }, 0);
  again([&] { std::ofstream(dir / "run.json") << "{\"tool\""; }, 0);
  again([&] { fs::resize_file(dir / "model.safetensors.part", 60000); }, 4);  // those that lie before
  again([&] { std::ofstream(dir / "run.json.part") << "x"; }, 10);
  again([&] { fs::rename(dir / "model.safetensors.part", dir / "model.safetensors"); }, 10);
  again([&] { fs::remove(dir / "run.json"); }, 0);
  again(
      [&] {
        std::fstream file(dir / "model.safetensors.part", std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(0, std::ios::end);
        // The embedding of 163 x 72 in BF16 begins the data of two-byte tensors, behind the wider ones.
        std::string all = read_text_file(dir / "model.safetensors.part");
        const std::size_t middle = all.size() / 2;
        file.seekp(static_cast<std::streamoff>(middle));
        file.put(static_cast<char>(all[middle] ^ 1));
      },
      9);
}

TEST_F(UnfinishedTest, IsForOneProcessAtATime) {
  const fs::path dir = scratch_.path() / "run";
  EXPECT_THROW(run(dir, 3), std::runtime_error);
  const std::string before = bytes_of(dir);
  {
    const UnfinishedRun other(dir, record_);
    EXPECT_THROW(run(dir, -1), Error);
  }
  EXPECT_EQ(bytes_of(dir), before);
  EXPECT_EQ(run(dir, -1).taken_over, 3);
}

TEST_F(UnfinishedTest, RefusesAnotherRunNamingTheDifference) {
  const fs::path dir = scratch_.path() / "run";
  EXPECT_THROW(run(dir, 3), std::runtime_error);
  record_.options["method"] = "arc";
  try {
    run(dir, -1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("options.method lies there (\"rtn\", now \"arc\")"),
              std::string::npos)
        << error.what();
  }
  record_.options["method"] = "rtn";
  record_.model = "n";
  EXPECT_THROW(run(dir, -1), Error);
  record_.model = "m";
  EXPECT_EQ(run(dir, -1).taken_over, 3);
}

}  // namespace
}  // namespace halfbyte
