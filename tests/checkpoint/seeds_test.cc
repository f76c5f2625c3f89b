// The seeds of the ecosystem fuzz target, and what it once stumbled over, as plain inputs.
#include <gtest/gtest.h>

#include "fuzz/ecosystem_input.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

TEST(FuzzSeeds, Ecosystem) {
  int accepted = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HALFBYTE_GOLDEN) + "/../../fuzz/seeds/ecosystem")) {
    const std::string bytes = test::read_all(entry.path());
    const auto refused = test::thrown_by(
        [&] { fuzz::read_ecosystem(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()); });
    accepted += !refused;
    if (refused) {
      EXPECT_EQ(refused->message.find('\n'), std::string::npos) << refused->message;
    }
  }
  EXPECT_EQ(accepted, 9);
}

}  // namespace
}  // namespace halfbyte
