// The seeds of the fuzz targets, and what the targets once stumbled over, as plain inputs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/gguf.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

// Opens every file of fuzz/seeds/FOLDER and counts those that are accepted; only Error may be thrown.
template <typename Open>
void run_seeds(const std::string& folder, int expected, Open open) {
  int accepted = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HALFBYTE_GOLDEN) + "/../../fuzz/seeds/" + folder)) {
    const auto refused = test::thrown_by([&] { open(entry.path()); });
    if (!refused) ++accepted;
    if (refused) {
      EXPECT_NE(refused->message.find(entry.path().filename().string()), std::string::npos)
          << refused->message;
    }
  }
  EXPECT_EQ(accepted, expected) << folder;
}

TEST(FuzzSeeds, Json) {
  run_seeds("json", 3, [](const auto& path) {
    const Json value = read_json_file(path);
    EXPECT_EQ(parse_json(dump_json(value), path.string()), value);
  });
}
TEST(FuzzSeeds, Safetensors) {
  run_seeds("safetensors", 3, [](const auto& path) { SafetensorsFile file(path); });
}
TEST(FuzzSeeds, Gguf) {
  run_seeds("gguf", 4, [](const auto& path) { GgufFile file(path); });
}

}  // namespace
}  // namespace halfbyte
