// Inputs changed by a method: how they are described and stored, and what is refused.
#include "checkpoint/input_transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

// Four channels padded to six columns, two of them with residuals.
InputTransform some_transform() {
  return {.info = {.method = "arc",
                   .channels = 4,
                   .width = 8,
                   .residual = 2,
                   .shared_scale = true,
                   .hadamard = 2,
                   .scaled = true,
                   .gathered = true},
          .scale = {1, 2, 0.5f, 3},
          .columns = {2, 0, 3, 1, -1, -1, 3, 2}};
}

void write(const std::filesystem::path& dir, const InputTransform& transform) {
  SafetensorsWriter writer(dir / "model.safetensors", input_specs("in", transform.info), {});
  for_each_part("in", transform, [&](const std::string& name, std::span<const std::byte> bytes) {
    writer.append(name, bytes);
  });
  writer.finish();
}

TEST(InputTransformTest, ComesBackAsItWas) {
  const test::Scratch dir;
  const InputTransform before = some_transform();
  write(dir.path(), before);
  const InputInfo info = parse_input_info(to_json(before.info), "config.json");
  EXPECT_EQ(to_json(info), to_json(before.info));
  const InputTransform after = read_input(SafetensorsModel(dir.path()), "in", info);
  EXPECT_EQ(after.scale, before.scale);
  EXPECT_EQ(after.columns, before.columns);
  EXPECT_EQ(residual_positions(after), (std::vector<std::int32_t>{2, 0}));
}

TEST(InputTransformTest, RefusesImpossibleContents) {
  const auto refused = [](auto change) {
    const test::Scratch dir;
    InputTransform transform = some_transform();
    change(transform);
    write(dir.path(), transform);
    EXPECT_THROW(read_input(SafetensorsModel(dir.path()), "in", transform.info), Error);
  };
  refused([](InputTransform& t) { t.columns[0] = 0; });   // channel 0 twice, 2 never
  refused([](InputTransform& t) { t.columns[0] = -1; });  // channel 2 never
  refused([](InputTransform& t) { t.columns[0] = 4; });   // no such channel
  refused([](InputTransform& t) { t.columns[0] = -2; });
  refused([](InputTransform& t) { t.columns[4] = 1; });   // once more in place of padding
  refused([](InputTransform& t) { t.columns[6] = -1; });  // a residual of nothing
  refused([](InputTransform& t) { t.columns[6] = 2; });   // a residual twice
  refused([](InputTransform& t) { t.scale[1] = 0; });
  refused([](InputTransform& t) { t.scale[1] = -1; });
  refused([](InputTransform& t) { t.scale[1] = NAN; });
  refused([](InputTransform& t) { t.scale[1] = INFINITY; });

  const test::Scratch dir;
  write(dir.path(), some_transform());
  InputInfo wider = some_transform().info;
  wider.width = 9;
  EXPECT_THROW(read_input(SafetensorsModel(dir.path()), "in", wider), Error);
  EXPECT_THROW(read_input(SafetensorsModel(dir.path()), "other", some_transform().info), Error);
}

TEST(InputTransformTest, RefusesImpossibleDescriptions) {
  const Json good = to_json(some_transform().info);
  EXPECT_NO_THROW(parse_input_info(good, "config.json"));
  const std::vector<std::pair<std::string, Json>> bad{{"channels", 0},
                                                      {"channels", -4},
                                                      {"channels", "4"},
                                                      {"channels", 7},
                                                      {"width", 5},
                                                      {"width", 1e300},
                                                      {"residual", 5},
                                                      {"residual", -1},
                                                      {"residual_scale", "none"},
                                                      {"residual_scale", nullptr},
                                                      {"hadamard", 3},
                                                      {"hadamard", 8},
                                                      {"hadamard", -2},
                                                      {"method", nullptr},
                                                      {"gathered", false},
                                                      {"scaled", "yes"}};
  for (const auto& [key, value] : bad) {
    Json json = good;
    json[key] = value;
    EXPECT_THROW(parse_input_info(json, "config.json"), Error) << key << " " << value;
  }
}

}  // namespace
}  // namespace halfbyte
