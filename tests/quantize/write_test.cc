// Quantizing a whole (tiny) model: the plan, the bytes, and what is refused.
#include "quantize/write.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/file.h"
#include "io/output.h"
#include "ops/quantize/op.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

// The names a model of three layers would give; the room does not know models.
std::vector<std::string> linears() {
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i)
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
      names.push_back("model.layers." + std::to_string(i) + "." + part);
  names.push_back("lm_head");
  return names;
}

std::string bytes_of_run(const QuantSpec& spec, int threads) {
  const test::Scratch dir;
  ThreadPool pool(threads);
  const Checkpoint checkpoint(kModel);
  write_quantized(checkpoint,
                  make_plan(checkpoint, linears(), {.weights = spec, .activations = {}, .keep = {"lm_head"}}),
                  dir.path(), pool);
  return read_text_file(dir.path() / "model.safetensors") + read_text_file(dir.path() / "config.json");
}

TEST(QuantizeRtn, SameBytesForAnyNumberOfThreadsAndEveryTime) {
  for (const Format format :
       {Format::nf4, Format::nvfp4, Format::mxfp4, Format::mxfp8_e4m3, Format::int4, Format::int8}) {
    const std::string once = bytes_of_run({.format = format}, 1);
    EXPECT_EQ(once, bytes_of_run({.format = format}, 1));
    EXPECT_EQ(once, bytes_of_run({.format = format}, 2));
    EXPECT_EQ(once, bytes_of_run({.format = format}, 5));
  }
}

TEST(QuantizeRtn, WritesEachLinearAsItsOpQuantizesItAndTheRestAsItWas) {
  const test::Scratch dir;
  ThreadPool pool(2);
  const Checkpoint before(kModel);
  const QuantSpec spec{.format = Format::nf4, .double_quant = true};
  const QuantizePlan plan = make_plan(
      before, linears(), {.weights = spec, .activations = {}, .keep = {"layers.1", "*.2.mlp.down_proj"}});
  const QuantizeSummary summary = write_quantized(before, plan, dir.path(), pool);
  const Checkpoint after(dir.path());
  EXPECT_EQ(after.names(), before.names());
  std::int64_t quantized = 0;
  for (const std::string& name : before.names()) {
    const TensorView& view = *before.plain(name);
    if (after.is_quantized(name)) {
      ++quantized;
      const QuantizedTensor expected = quantize(view, spec, pool), found = after.quantized(name);
      EXPECT_TRUE(std::ranges::equal(expected.codes.span(), found.codes.span())) << name;
      EXPECT_TRUE(std::ranges::equal(expected.scales8.span(), found.scales8.span())) << name;
      EXPECT_EQ(expected.offset, found.offset) << name;
    } else {
      EXPECT_TRUE(std::ranges::equal(view.data, after.plain(name)->data)) << name;
    }
  }
  EXPECT_EQ(quantized, 13);  // three layers of seven, less layer 1 and one down_proj
  EXPECT_EQ(summary.precisions.at(to_string(spec)).tensors, 13);
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "config.json"));
}

TEST(QuantizeRtn, RefusesDamageInWhatStaysAsItIs) {
  const test::Scratch dir;
  std::filesystem::copy(kModel, dir.path() / "model");
  std::filesystem::create_directory(dir.path() / "out");
  const std::string name = "model.norm.weight";
  std::string file = read_text_file(kModel / "model.safetensors");
  {
    const Checkpoint whole(kModel);
    const TensorView& norm = *whole.plain(name);
    const std::size_t at =
        file.find(std::string_view(reinterpret_cast<const char*>(norm.data.data()), norm.data.size()));
    ASSERT_NE(at, std::string::npos);
    file.replace(at + (norm.dtype == DType::f32 ? 2 : 0), 2,
                 "\xC0\x7F");  // the upper half of its first element
  }
  std::filesystem::remove(dir.path() / "model" / "model.safetensors");
  write_text_file(dir.path() / "model" / "model.safetensors", file);
  ThreadPool pool(1);
  const Checkpoint damaged(dir.path() / "model");
  try {
    write_quantized(
        damaged,
        make_plan(damaged, linears(), {.weights = {.format = Format::nf4}, .activations = {}, .keep = {}}),
        dir.path() / "out", pool);
    FAIL() << "a NaN in the final norm went through";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

TEST(QuantizePlanTest, SaysWhyATensorIsLeftAlone) {
  const Checkpoint checkpoint(kModel);
  const QuantizePlan plan = make_plan(
      checkpoint, linears(),
      {.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {"layers.0.self_attn.q_proj"}});
  ASSERT_EQ(plan.tensors.size(), checkpoint.names().size());
  for (const PlannedTensor& tensor : plan.tensors) {
    EXPECT_EQ(tensor.spec.has_value(), tensor.reason.empty()) << tensor.name;
    if (tensor.name.find("norm") != std::string::npos) {
      EXPECT_EQ(tensor.reason, "norm");
    } else if (tensor.name.find("embed") != std::string::npos) {
      EXPECT_EQ(tensor.reason, "embedding");
    } else {
      EXPECT_EQ(tensor.reason.find("--keep") != std::string::npos,
                tensor.name.find("layers.0.self_attn.q_proj") != std::string::npos);
    }
  }
}

TEST(QuantizePlanTest, RefusesWhatMakesNoSense) {
  const Checkpoint checkpoint(kModel);
  const auto plan = [&](const PlanOptions& options) { return make_plan(checkpoint, linears(), options); };
  EXPECT_THROW(plan({.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {"no_such_layer"}}),
               Error);
  EXPECT_THROW(plan({.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {"layers"}}),
               Error);  // nothing left
  EXPECT_THROW(plan({.weights = {.format = Format::nf4, .block_size = 48}, .activations = {}, .keep = {}}),
               Error);
  EXPECT_THROW(
      plan({.weights = {.format = Format::mxfp4, .double_quant = true}, .activations = {}, .keep = {}}),
      Error);
  EXPECT_NO_THROW(plan({.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {"lm_head"}}));

  const test::Scratch dir;
  ThreadPool pool(1);
  write_quantized(checkpoint, plan({.weights = {.format = Format::nvfp4}, .activations = {}, .keep = {}}),
                  dir.path(), pool);
  EXPECT_THROW(make_plan(Checkpoint(dir.path()), linears(),
                         {.weights = {.format = Format::nf4}, .activations = {}, .keep = {}}),
               Error);
}

}  // namespace
}  // namespace halfbyte
