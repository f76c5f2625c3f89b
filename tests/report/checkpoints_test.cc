// What a report tells of checkpoint directories: bytes that add up, manifests in part, wrong ones refused by name.
#include "report/checkpoints.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

TEST(Checkpoints, BytesByPrecisionAddUp) {
  const CheckpointCard card = read_checkpoint_card(kModel);
  const Checkpoint checkpoint(kModel);
  std::int64_t tensors = 0, elements = 0, bytes = 0, stored = 0;
  for (const PrecisionRow& row : card.precisions)
    tensors += row.tensors, elements += row.elements, bytes += row.bytes;
  for (const std::string& name : checkpoint.names()) stored += checkpoint.stored_bytes(name);
  EXPECT_EQ(tensors, static_cast<std::int64_t>(checkpoint.names().size()));
  EXPECT_EQ(bytes, stored);
  EXPECT_GT(elements, 1000);
  EXPECT_TRUE(card.options.empty());
  EXPECT_THROW(read_checkpoint_card(kModel.parent_path()), Error);
}

TEST(Checkpoints, EveryMemberOfAManifestIsOptional) {
  const test::Scratch dir;
  std::filesystem::copy_file(kModel / "config.json", dir / "config.json");
  std::filesystem::copy_file(kModel / "model.safetensors", dir / "model.safetensors");
  const Json whole = {
      {"halfbyte_manifest", 1},
      {"run",
       {{"tool", "halfbyte 9"},
        {"model", "aa"},
        {"stats", nullptr},
        {"plan", "cc"},
        {"options", {{"format", "nvfp4"}, {"alpha", 0.5}}}}},
      {"files",
       {{"config.json", {{"bytes", 1}, {"sha256", "dd"}}}, {"m.safetensors", {{"header_sha256", "ee"}}}}}};
  const auto read = [&](const Json& manifest) {
    dir.write("halfbyte_manifest.json", manifest.dump());
    return read_checkpoint_card(dir.path());
  };
  const CheckpointCard card = read(whole);
  EXPECT_EQ(card.tool, "halfbyte 9");
  EXPECT_EQ(card.options,
            (std::vector<std::pair<std::string, std::string>>{{"alpha", "0.5"}, {"format", "nvfp4"}}));
  EXPECT_EQ(card.checksums,
            (std::vector<std::pair<std::string, std::string>>{{"model it was made of", "aa"},
                                                              {"plan it was made of", "cc"},
                                                              {"config.json", "dd"},
                                                              {"m.safetensors, header", "ee"}}));
  EXPECT_TRUE(read({{"halfbyte_manifest", 1}}).checksums.empty());
  for (const char* key : {"run", "files"}) {
    Json less = whole;
    less.erase(key);
    read(less);
    less[key] = 7;
    const std::string message = test::message_of([&] { read(less); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
  }
  Json other = whole;
  other["halfbyte_manifest"] = 2;
  EXPECT_NE(test::message_of([&] { read(other); }).find("expected 1"), std::string::npos);
  other = whole;
  other["run"]["options"] = "much";
  EXPECT_NE(test::message_of([&] { read(other); }).find("options"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
