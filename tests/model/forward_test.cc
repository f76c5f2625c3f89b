// The forward pass against logits that transformers computed for tiny random models of every family, and for the real
// SmolLM2 where HALFBYTE_SMOLLM2 names its directory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModels = std::filesystem::path(HALFBYTE_GOLDEN) / "models";

std::vector<std::int32_t> ids_of(const TensorView& view) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < view.elements(); ++i) ids.push_back(load<std::int32_t>(view.data.data(), i));
  return ids;
}

// [ids, vocab] logits, the ids given in pieces of that many tokens (0: all at once).
Array<float> run(Model& model, const std::vector<std::int32_t>& ids, std::int64_t piece, ThreadPool& pool) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  KvCache cache(model.config(), rows);
  Array<float> hidden(rows * model.config().hidden), logits(rows * model.config().vocab);
  if (piece == 0) piece = rows;
  for (std::int64_t i = 0; i < rows; i += piece) {
    const std::int64_t now = std::min(piece, rows - i);
    model.forward(std::span(ids).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(now)), cache,
                  hidden.data() + i * model.config().hidden, pool);
  }
  model.logits(hidden.data(), rows, logits.data(), pool);
  return logits;
}

class TinyModel : public testing::TestWithParam<std::string> {};

TEST_P(TinyModel, GivesTheLogitsOfTransformers) {
  const auto dir = kModels / GetParam();
  ThreadPool pool(2);
  Model model = Model::load(dir, pool);
  const SafetensorsFile golden(dir / "golden.safetensors");
  const std::vector<std::int32_t> ids = ids_of(golden.at("input_ids"));
  const TensorView& expected = golden.at("logits");
  for (std::int64_t piece : {0, 1, 7}) {
    const Array<float> logits = run(model, ids, piece, pool);
    ASSERT_EQ(logits.size(), expected.elements());
    double worst = 0;
    for (std::int64_t i = 0; i < logits.size(); ++i)
      worst =
          std::max(worst, std::abs(static_cast<double>(logits[i]) - load<float>(expected.data.data(), i)));
    EXPECT_LT(worst, 2e-4) << "fed in pieces of "
                           << piece;  // the criterion is 2e-3; float32 noise here is 2e-5
  }
}

TEST_P(TinyModel, ReadsTheOldStyleOfConfigAlike) {
  const auto dir = kModels / GetParam();
  const ModelConfig now = load_model_config(dir);
  const auto old_file = dir / "config.transformers4.json";
  const ModelConfig old = parse_model_config(read_json_file(old_file), old_file.string());
  EXPECT_EQ(rope_inverse_frequencies(now.rope, now.head_dim),
            rope_inverse_frequencies(old.rope, old.head_dim));
  EXPECT_EQ(now.windows, old.windows);
  EXPECT_EQ(now.tied, old.tied);
  EXPECT_EQ(std::tuple(now.hidden, now.heads, now.kv_heads, now.head_dim, now.rms_eps, now.qkv_bias,
                       now.o_bias, now.qk_norm),
            std::tuple(old.hidden, old.heads, old.kv_heads, old.head_dim, old.rms_eps, old.qkv_bias,
                       old.o_bias, old.qk_norm));
}

INSTANTIATE_TEST_SUITE_P(Families, TinyModel,
                         testing::Values("llama3", "llama_tied", "llama_legacy", "llama_linear",
                                         "llama_sharded", "smollm2_like", "tied_with_head", "qwen2",
                                         "qwen2_unused_window", "qwen3", "mistral", "mistral_swa"));

TEST(Forward, WarnsWhereTheFilesHeadOverridesATie) {
  ThreadPool pool(1);
  const Model model = Model::load(kModels / "tied_with_head", pool);
  ASSERT_EQ(model.warnings().size(), 1u);
  EXPECT_NE(model.warnings()[0].find("lm_head"), std::string::npos);
  EXPECT_TRUE(Model::load(kModels / "smollm2_like", pool).warnings().empty());
}

TEST(Forward, RefusesIdsAndLengthsThatDoNotFit) {
  ThreadPool pool(1);
  Model model = Model::load(kModels / "qwen2", pool);
  KvCache cache(model.config(), 2);
  std::vector<float> hidden(static_cast<std::size_t>(3 * model.config().hidden));
  const std::vector<std::int32_t> outside{163}, negative{-1}, three{1, 2, 3};
  EXPECT_THROW(model.forward(outside, cache, hidden.data(), pool), Error);
  EXPECT_THROW(model.forward(negative, cache, hidden.data(), pool), Error);
  EXPECT_THROW(model.forward(three, cache, hidden.data(), pool), Error);
}

TEST(Forward, RefusesWeightsThatAreNotFinite) {
  const test::Scratch dir;
  std::filesystem::copy_file(kModels / "qwen2" / "config.json", dir.path() / "config.json");
  {
    const SafetensorsFile source(kModels / "qwen2" / "model.safetensors");
    std::vector<TensorSpec> specs;
    for (const NamedTensor& tensor : source.tensors())
      specs.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
    SafetensorsWriter writer(dir.path() / "model.safetensors", specs, {});
    for (const NamedTensor& tensor : source.tensors()) {
      std::vector<std::byte> bytes(tensor.view.data.begin(), tensor.view.data.end());
      if (tensor.name == "model.norm.weight")
        bytes[0] = std::byte{0xC0}, bytes[1] = std::byte{0x7F};  // 0x7FC0, a BF16 NaN
      writer.append(tensor.name, bytes);
    }
    writer.finish();
  }
  ThreadPool pool(1);
  const std::string message = test::message_of([&] { Model::load(dir.path(), pool); });
  EXPECT_NE(message.find("model.norm.weight"), std::string::npos) << message;
}

TEST(Forward, TakesTheEndTokensOfTheGenerationConfigToo) {
  const test::Scratch dir;
  for (const auto& entry : std::filesystem::directory_iterator(kModels / "qwen2"))
    std::filesystem::copy_file(entry.path(), dir.path() / entry.path().filename());
  ThreadPool pool(1);
  std::vector<std::int32_t> expected = Model::load(dir.path(), pool).config().eos;
  std::filesystem::remove(dir.path() / "generation_config.json");
  dir.write("generation_config.json", R"({"eos_token_id": [160, 161]})");
  for (const std::int32_t id : {160, 161})
    if (std::find(expected.begin(), expected.end(), id) == expected.end()) expected.push_back(id);
  EXPECT_EQ(Model::load(dir.path(), pool).config().eos, expected);
  dir.write("generation_config.json", R"({"eos_token_id": [163]})");
  EXPECT_THROW(Model::load(dir.path(), pool), Error);
}

TEST(Forward, SameLogitsOnAnyThreadCount) {
  ThreadPool one(1), three(3);
  Model model = Model::load(kModels / "llama3", one);
  const std::vector<std::int32_t> ids =
      ids_of(SafetensorsFile(kModels / "llama3" / "golden.safetensors").at("input_ids"));
  const Array<float> a = run(model, ids, 0, one), b = run(model, ids, 0, three);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

TEST(Forward, SmolLm2GivesTheLogitsOfTransformers) {
  const char* dir = std::getenv("HALFBYTE_SMOLLM2");
  if (!dir) GTEST_SKIP() << "HALFBYTE_SMOLLM2 does not name the imported model";
  ThreadPool pool(available_cores());
  Model model = Model::load(dir, pool);
  const SafetensorsFile golden(kModels / "smollm2_logits.safetensors");
  const TensorView& columns = golden.at("columns");
  for (const std::string text : {"wikitext2", "lee"}) {
    const std::vector<std::int32_t> ids = ids_of(golden.at(text + ".ids"));
    const TensorView& expected = golden.at(text + ".logits");
    const Array<float> logits = run(model, ids, 0, pool);
    double worst = 0;
    const std::int64_t width = columns.elements(), vocab = model.config().vocab;
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const float* row = logits.data() + static_cast<std::int64_t>(r) * vocab;
      for (std::int64_t c = 0; c < width; ++c)
        worst = std::max(
            worst, std::abs(static_cast<double>(row[load<std::int32_t>(columns.data.data(), c)]) -
                            load<float>(expected.data.data(), static_cast<std::int64_t>(r) * width + c)));
      EXPECT_EQ(std::max_element(row, row + vocab) - row,
                load<std::int32_t>(golden.at(text + ".argmax").data.data(), static_cast<std::int64_t>(r)));
    }
    EXPECT_LT(worst, 2e-3) << text;
    RecordProperty(text + "_max_difference", std::to_string(worst));
    std::printf("%s: largest difference of a logit %.2e\n", text.c_str(), worst);
  }
}

}  // namespace
}  // namespace halfbyte
