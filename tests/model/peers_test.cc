// The forward pass of the small checkpoints that the peers wrote, against logits that the peers computed from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/export.h"
#include "model/model.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

// Logits of some 2 that differ in the order of float sums alone.
constexpr double kFloatError = 5e-6;

std::filesystem::path peer_dir(const std::string& name) {
  return std::filesystem::path(HALFBYTE_GOLDEN) / "peers" / name;
}

// Largest difference between our logits of `dir` and the tensor `golden` of the peer, of the same tokens.
double worst_difference(const std::filesystem::path& dir, const std::string& peer, const char* golden) {
  ThreadPool pool(1);
  Model model = Model::load(dir, pool);
  const SafetensorsFile expected(peer_dir(peer) / "expected.safetensors");
  const TensorView& input = expected.at("input_ids");
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < input.elements(); ++i) ids.push_back(load<std::int32_t>(input.data.data(), i));
  const auto rows = static_cast<std::int64_t>(ids.size());
  KvCache cache(model.config(), rows);
  Array<float> hidden(rows * model.config().hidden), logits(rows * model.config().vocab);
  model.forward(ids, cache, hidden.data(), pool);
  model.logits(hidden.data(), rows, logits.data(), pool);
  const TensorView& theirs = expected.at(golden);
  EXPECT_EQ(logits.size(), theirs.elements()) << peer;
  double worst = 0;
  for (std::int64_t i = 0; i < std::min(logits.size(), theirs.elements()); ++i) {
    const double difference = std::abs(static_cast<double>(logits[i]) - load<float>(theirs.data.data(), i));
    worst = difference <= worst ? worst : difference;  // NaN counts
  }
  return worst;
}

class PeerLogits : public testing::TestWithParam<std::string> {};

TEST_P(PeerLogits, OfTheirWeights) {
  const std::string name = GetParam();
  const test::Scratch dir;
  export_checkpoint(Checkpoint(peer_dir(name)), ExportFormat::halfbyte, dir.path(), {.weights_only = true});
  EXPECT_LT(worst_difference(dir.path(), name, "logits"), kFloatError);
}

INSTANTIATE_TEST_SUITE_P(All, PeerLogits,
                         testing::Values("bitsandbytes_nf4", "bitsandbytes_nf4_double", "bitsandbytes_fp4",
                                         "compressed_tensors_nvfp4", "compressed_tensors_nvfp4a16",
                                         "compressed_tensors_mxfp4", "compressed_tensors_mxfp4a16",
                                         "modelopt_nvfp4"));

// compressed-tensors' own forward rounds the inputs: NVFP4 under the static scale of the file, MXFP4 as they come. A single
// value rounded the other way would move logits by some 1e-2, leaving inputs as they are by 1.
TEST(PeerForward, OfTheirForwardWithRoundedInputs) {
  for (const std::string name : {"compressed_tensors_nvfp4", "compressed_tensors_mxfp4"}) {
    EXPECT_LT(worst_difference(peer_dir(name), name, "logits_rounded_inputs"), kFloatError) << name;
    EXPECT_GT(worst_difference(peer_dir(name), name, "logits"), 0.1) << name;
  }
}

}  // namespace
}  // namespace halfbyte
