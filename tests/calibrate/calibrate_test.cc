// Calibration on tiny models: statistics against plain loops over what the observer shows, samples that are dropped,
// and the file.
#include "calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "calibrate/stats_file.h"
#include "core/fail.h"
#include "io/safetensors.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

// count ids below the vocabulary of 163 and more that all tiny models have, without id 0.
std::vector<std::int32_t> some_ids(std::size_t count) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(1 + (i * i * 7 + i * 3) % 97);
  return ids;
}

// The golden model with one row of the embedding set to a value; its weights are float32.
void write_model(const std::filesystem::path& dir, std::int64_t row, float value) {
  std::filesystem::copy_file(kModel / "config.json", dir / "config.json");
  const SafetensorsFile file(kModel / "model.safetensors");
  std::vector<TensorSpec> specs;
  for (const NamedTensor& t : file.tensors()) specs.push_back({t.name, t.view.dtype, t.view.shape});
  SafetensorsWriter writer(dir / "model.safetensors", specs, {});
  for (const NamedTensor& t : file.tensors()) {
    std::vector<std::byte> bytes(t.view.data.begin(), t.view.data.end());
    if (t.name == "model.embed_tokens.weight") {
      const std::int64_t width = t.view.shape[1];
      for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
        if (t.view.dtype == DType::f32) {
          std::memcpy(bytes.data() + 4 * i, &value, 4);
        } else {
          ASSERT_EQ(t.view.dtype, DType::bf16);
          std::uint32_t bits = 0;
          std::memcpy(&bits, &value, 4);
          const auto high = static_cast<std::uint16_t>(bits >> 16);
          std::memcpy(bytes.data() + 2 * i, &high, 2);
        }
      }
    }
    writer.append(t.name, bytes);
  }
  writer.finish();
}

TEST(Samples, AreWholeWindowsOfEachSourceShuffledBySeed) {
  const std::vector<std::int32_t> a = some_ids(35), b = some_ids(22);
  const SampleSet all({a, b}, {.samples = 100, .seq_len = 10, .seed = 1});
  EXPECT_EQ(all.size(), 5u);
  std::set<std::vector<std::int32_t>> expected, found;
  for (int i = 0; i < 3; ++i) expected.insert({a.begin() + 10 * i, a.begin() + 10 * i + 10});
  for (int i = 0; i < 2; ++i) expected.insert({b.begin() + 10 * i, b.begin() + 10 * i + 10});
  for (std::size_t i = 0; i < all.size(); ++i) found.insert({all[i].begin(), all[i].end()});
  EXPECT_EQ(found, expected);

  const auto order = [&](std::uint64_t seed, std::int64_t samples) {
    std::vector<std::int32_t> firsts;
    const SampleSet set({some_ids(4000)}, {.samples = samples, .seq_len = 10, .seed = seed});
    for (std::size_t i = 0; i < set.size(); ++i) firsts.insert(firsts.end(), set[i].begin(), set[i].end());
    return firsts;
  };
  EXPECT_EQ(order(7, 50), order(7, 50));
  EXPECT_NE(order(7, 50), order(8, 50));
  const std::vector<std::int32_t> few = order(7, 20), many = order(7, 50);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));  // fewer samples are the first of more
}

TEST(Samples, TakesAShortTextWholeAndRefusesNone) {
  const SampleSet one({some_ids(5), some_ids(4)}, {.samples = 8, .seq_len = 100});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].size(), 9u);
  EXPECT_THROW(SampleSet({some_ids(1)}, {.samples = 8, .seq_len = 100}), Error);
  EXPECT_THROW(SampleSet({some_ids(10)}, {.samples = 0, .seq_len = 100}), Error);
}

TEST(Sources, AreTextFilesAndMembersOfJsonLines) {
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(HALFBYTE_GOLDEN) / "tokenizers" / "gpt2");
  const test::Scratch dir;
  const auto file = [&](const char* name, std::string_view text) {
    std::ofstream(dir.path() / name, std::ios::binary) << text;
    return dir.path() / name;
  };
  EXPECT_EQ(tokens_of_text(file("a.txt", "one two"), tokenizer), tokenizer.encode("one two", false));
  EXPECT_THROW(tokens_of_text(file("latin1.txt", "caf\xe9"), tokenizer), Error);

  std::vector<std::int32_t> expected = tokenizer.encode("one", false);
  const std::vector<std::int32_t> second = tokenizer.encode("\n\ntwo", false);
  expected.insert(expected.end(), second.begin(), second.end());
  const char* const lines = "{\"text\": \"one\", \"id\": 1}\n\n  \r\n{\"text\": \"two\"}";
  EXPECT_EQ(tokens_of_jsonl(file("a.jsonl", lines), "text", tokenizer), expected);
  for (const char* bad :
       {"{\"text\": \"one\"}\n{\"body\": \"two\"}", "{\"text\": 1}", "[\"one\"]", "{\"text\": \"one\""}) {
    try {
      tokens_of_jsonl(file("bad.jsonl", bad), "text", tokenizer);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("bad.jsonl: line "), std::string::npos) << error.what();
    }
  }
}

TEST(Calibrate, SecondMomentsAreThoseOfPlainLoopsAndSurviveTheFile) {
  const SampleOptions options{.samples = 6, .seq_len = 16, .seed = 3};
  const SampleSet samples({some_ids(200)}, options);
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Model model = Model::load(kModel, pool);
    Calibration result = calibrate(model, samples, options, pool, {}, true);
    result.stats.sources = {std::string(64, 'a'), std::string(64, 'b')};
    const InputStats& input = result.stats.inputs.at("model.layers.1.mlp_product");
    const auto channels = input.absmax.size();
    ASSERT_EQ(input.second_moment.size(), channels * channels);
    found.push_back(input.second_moment);
    for (std::size_t k = 0; k < channels; ++k)
      EXPECT_NEAR(input.second_moment[k * channels + k], input.mean_square[k], 1e-4f * input.mean_square[k]);

    std::vector<double> expected(channels * channels);
    model.observe_inputs([&](LinearInput place, std::int64_t layer, const float* x, std::int64_t rows,
                             std::int64_t columns) {
      if (place != LinearInput::mlp_product || layer != 1) return;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < columns; ++j)
          for (std::int64_t k = 0; k < columns; ++k)
            expected[static_cast<std::size_t>(j * columns + k)] +=
                static_cast<double>(x[r * columns + j]) * static_cast<double>(x[r * columns + k]) / (6 * 16);
    });
    for (std::size_t i = 0; i < samples.size(); ++i) {
      KvCache cache(model.config(), 16);
      Array<float> hidden(16 * model.config().hidden);
      model.forward(samples[i], cache, hidden.data(), pool);
    }
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(static_cast<double>(input.second_moment[i]), expected[i], 1e-5 * largest) << i;

    const test::Scratch dir;
    write_stats(dir.path() / "s", result.stats);
    const CalibrationStats with = read_stats(dir.path() / "s", true), without = read_stats(dir.path() / "s");
    EXPECT_EQ(with.sources, result.stats.sources);
    for (const auto& [name, stats] : result.stats.inputs) {
      EXPECT_EQ(with.inputs.at(name).second_moment, stats.second_moment);
      EXPECT_TRUE(without.inputs.at(name).second_moment.empty());
      EXPECT_EQ(without.inputs.at(name).absmax, stats.absmax);
    }
    result.stats.inputs.at("head").second_moment[1] += 1;  // not symmetric
    write_stats(dir.path() / "bad", result.stats);
    EXPECT_THROW(read_stats(dir.path() / "bad", true), Error);
  }
  EXPECT_EQ(found[0], found[1]);
  ThreadPool pool(1);
  Model model = Model::load(kModel, pool);
  const test::Scratch dir;
  write_stats(dir.path() / "none", calibrate(model, samples, options, pool).stats);
  EXPECT_THROW(read_stats(dir.path() / "none", true), Error);
}

TEST(Calibrate, GivesTheStatisticsOfPlainLoops) {
  ThreadPool pool(2);
  Model model = Model::load(kModel, pool);
  const SampleOptions options{.samples = 6, .seq_len = 16, .seed = 3};
  const SampleSet samples({some_ids(200)}, options);
  const Calibration found = calibrate(model, samples, options, pool);
  EXPECT_EQ(found.stats.samples, 6);
  EXPECT_EQ(found.stats.tokens, 96);
  EXPECT_EQ(found.stats.dropped, 0);
  EXPECT_TRUE(found.zero_inputs.empty());
  EXPECT_EQ(found.stats.inputs.size(), static_cast<std::size_t>(4 * model.config().layers + 1));
  for (const LinearInfo& linear : list_linears(model.config()))
    ASSERT_EQ(static_cast<std::int64_t>(
                  found.stats.inputs.at(input_name(linear.input, linear.layer)).absmax.size()),
              linear.in)
        << linear.name;

  std::map<std::string, std::vector<std::vector<float>>> seen;  // input -> tokens
  model.observe_inputs(
      [&](LinearInput input, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
        for (std::int64_t r = 0; r < rows; ++r)
          seen[input_name(input, layer)].emplace_back(x + r * columns, x + (r + 1) * columns);
      });
  KvCache cache(model.config(), 16);
  Array<float> hidden(16 * model.config().hidden);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    cache.clear();
    model.forward(samples[i], cache, hidden.data(), pool);
  }
  for (const auto& [name, stats] : found.stats.inputs) {
    const auto& tokens = seen.at(name);
    ASSERT_EQ(tokens.size(), 96u);
    float global = 0;
    std::array<std::int64_t, kTokenMaxBins> histogram{};
    for (const auto& token : tokens) {
      float largest = 0;
      for (float v : token) largest = std::max(largest, std::abs(v));
      ++histogram[static_cast<std::size_t>(token_max_bin(largest))];
      global = std::max(global, largest);
    }
    EXPECT_EQ(stats.global_absmax, global);
    EXPECT_EQ(stats.token_max_histogram, histogram);
    for (std::size_t k = 0; k < stats.absmax.size(); ++k) {
      float largest = 0;
      double square = 0, abs = 0;
      for (const auto& token : tokens) {
        largest = std::max(largest, std::abs(token[k]));
        square += static_cast<double>(token[k]) * token[k] / 96;
        abs += std::abs(static_cast<double>(token[k])) / 96;
      }
      EXPECT_EQ(stats.absmax[k], largest);
      EXPECT_NEAR(stats.mean_square[k], square, 1e-6 * square);
      EXPECT_NEAR(stats.mean_abs[k], abs, 1e-6 * abs);
    }
  }
}

TEST(Calibrate, SameForAnyNumberOfThreads) {
  const SampleOptions options{.samples = 4, .seq_len = 16, .seed = 3};
  const SampleSet samples({some_ids(100)}, options);
  const auto with = [&](int threads) {
    ThreadPool pool(threads);
    Model model = Model::load(kModel, pool);
    const test::Scratch dir;
    write_stats(dir.path() / "s", calibrate(model, samples, options, pool).stats);
    return read_text_file(dir.path() / "s");
  };
  EXPECT_EQ(with(1), with(3));
}

TEST(Calibrate, DropsASampleThatIsNotFiniteAndCountsTheOthers) {
  const test::Scratch dir;
  write_model(dir.path(), 0, INFINITY);
  ThreadPool pool(2);
  Model broken = Model::load(dir.path(), pool), whole = Model::load(kModel, pool);
  std::vector<std::int32_t> good = some_ids(2 * 200), bad = some_ids(2 * 200);
  good.erase(good.begin() + 20, good.begin() + 22);  // 199 samples of 2
  bad[20] = 0;                                       // sample 10 of 200
  const SampleOptions options{.samples = 1000, .seq_len = 2, .seed = 0};
  const Calibration found = calibrate(broken, SampleSet({bad}, options), options, pool);
  EXPECT_EQ(found.stats.dropped, 1);
  EXPECT_EQ(found.stats.samples, 199);
  ASSERT_EQ(found.dropped_at.size(), 1u);
  EXPECT_EQ(found.dropped_at.begin()->first, "model.layers.0.attention");
  const Calibration expected = calibrate(whole, SampleSet({good}, options), options, pool);
  for (const auto& [name, stats] : expected.stats.inputs) {
    EXPECT_EQ(found.stats.inputs.at(name).absmax, stats.absmax);
    EXPECT_EQ(found.stats.inputs.at(name).token_max_histogram, stats.token_max_histogram);
  }
}

TEST(Calibrate, StopsAboveOnePercent) {
  const test::Scratch dir;
  write_model(dir.path(), 0, INFINITY);
  ThreadPool pool(1);
  Model model = Model::load(dir.path(), pool);
  std::vector<std::int32_t> ids = some_ids(2 * 200);
  ids[20] = ids[60] = ids[100] = 0;
  const SampleOptions options{.samples = 1000, .seq_len = 2, .seed = 0};
  try {
    calibrate(model, SampleSet({ids}, options), options, pool);
    FAIL() << "three of 200 samples are more than 1 %";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.0.attention (3)"), std::string::npos)
        << error.what();
  }
}

TEST(Calibrate, GivesAZeroInputAFiniteScale) {
  const test::Scratch dir;
  write_model(dir.path(), 5, 0.0f);
  ThreadPool pool(1);
  Model model = Model::load(dir.path(), pool);
  const SampleOptions options{.samples = 10, .seq_len = 4, .seed = 0};
  const Calibration found =
      calibrate(model, SampleSet({std::vector<std::int32_t>(8, 5)}, options), options, pool);
  EXPECT_FALSE(found.zero_inputs.empty());
  EXPECT_EQ(found.stats.inputs.at("model.layers.0.attention").global_absmax, kZeroInputAbsmax);
  EXPECT_EQ(found.stats.inputs.at("model.layers.0.attention").token_max_histogram[0], 8);
  write_stats(dir.path() / "s", found.stats);
  EXPECT_NO_THROW(read_stats(dir.path() / "s"));
}

TEST(TokenMaxBin, HasTwoBinsAnOctave) {
  EXPECT_EQ(token_max_bin(0.0f), 0);
  EXPECT_EQ(token_max_bin(1.0f), 64);
  EXPECT_EQ(token_max_bin(1.49f), 64);
  EXPECT_EQ(token_max_bin(1.5f), 65);
  EXPECT_EQ(token_max_bin(2.0f), 66);
  EXPECT_EQ(token_max_bin(0.5f), 62);
  EXPECT_EQ(token_max_bin(1e-30f), 0);
  EXPECT_EQ(token_max_bin(3e38f), kTokenMaxBins - 1);
}

CalibrationStats some_stats() {
  CalibrationStats stats{.inputs = {}, .tokens = 20, .samples = 2, .dropped = 1, .seq_len = 10, .seed = 9};
  InputStats input{
      .absmax = {1.0f, 3.0f}, .mean_square = {0.5f, 2.0f}, .mean_abs = {0.25f, 1.0f}, .global_absmax = 3.0f};
  input.token_max_histogram[64] = 12;
  input.token_max_histogram[67] = 8;
  stats.inputs.emplace("model.layers.0.mlp", input);
  return stats;
}

TEST(StatsFile, ComesBackAsItWas) {
  const test::Scratch dir;
  write_stats(dir.path() / "s.safetensors", some_stats());
  const CalibrationStats found = read_stats(dir.path() / "s.safetensors");
  EXPECT_EQ(std::tuple(found.tokens, found.samples, found.dropped, found.seq_len, found.seed),
            std::tuple(20, 2, 1, 10, std::uint64_t{9}));
  const CalibrationStats expected = some_stats();
  const InputStats &a = expected.inputs.begin()->second, &b = found.inputs.at("model.layers.0.mlp");
  EXPECT_EQ(std::tie(a.absmax, a.mean_square, a.mean_abs, a.token_max_histogram, a.global_absmax),
            std::tie(b.absmax, b.mean_square, b.mean_abs, b.token_max_histogram, b.global_absmax));
}

TEST(StatsFile, RefusesWhatCannotBe) {
  const test::Scratch dir;
  const auto path = dir.path() / "s.safetensors";
  const auto refused = [&](auto change) {
    CalibrationStats stats = some_stats();
    change(stats, stats.inputs.begin()->second);
    write_stats(path, stats);
    EXPECT_THROW(read_stats(path), Error);
  };
  refused([](CalibrationStats&, InputStats& i) { i.absmax[0] = NAN; });
  refused([](CalibrationStats&, InputStats& i) { i.mean_square[1] = -1; });
  refused([](CalibrationStats&, InputStats& i) { i.mean_abs[1] = INFINITY; });
  refused([](CalibrationStats&, InputStats& i) { i.global_absmax = 4; });
  refused([](CalibrationStats&, InputStats& i) { i.token_max_histogram[3] = 1; });
  refused([](CalibrationStats&, InputStats& i) { i.token_max_histogram[67] = 7; });
  refused([](CalibrationStats& s, InputStats&) { s.samples = 0; });
  refused([](CalibrationStats& s, InputStats&) { s.inputs.clear(); });
  EXPECT_THROW(read_stats(kModel / "model.safetensors"), Error);
  EXPECT_THROW(read_stats(dir.path() / "absent"), Error);

  write_stats(path, some_stats());
  const std::string whole = read_text_file(path);
  for (std::size_t cut : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, cut);
    EXPECT_THROW(read_stats(path), Error);
  }
}

}  // namespace
}  // namespace halfbyte
