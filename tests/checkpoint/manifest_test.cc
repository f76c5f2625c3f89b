// The manifest finds every change of a single byte, every file too many and every one that is gone.
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/fail.h"
#include "io/file.h"
#include "io/output.h"
#include "io/sha256.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;

// A folder of a tensor file with two tensors and two other files.
void write_folder(const fs::path& dir) {
  SafetensorsWriter writer(dir / "model.safetensors",
                           {{"a", DType::f32, {4}}, {"b", DType::u8, {5}}, {"empty", DType::u8, {0}}}, {});
  const std::vector<float> a{1, 2, 3, 4};
  const std::string b = "hello";
  writer.append("a", std::as_bytes(std::span(a)));
  writer.append("b", std::as_bytes(std::span(b)));
  writer.finish();
  write_text_file(dir / "config.json", "{\"x\": 1}\n");
  write_text_file(dir / "merges.txt", "a b\n");
  const auto sum = [](auto bytes) { return sha256(std::as_bytes(std::span(bytes))); };
  write_manifest(dir,
                 {.run = {.tool = "test", .model = "m", .stats = "", .plan = "p", .options = {{"k", "v"}}},
                  .files = {{"model.safetensors", {writer.file_bytes(), writer.header_sha256()}}},
                  .tensors = {{"a", sum(a)}, {"b", sum(b)}, {"empty", sha256(std::string_view())}}});
}

TEST(Manifest, AcceptsWhatWasWritten) {
  const test::Scratch dir;
  ThreadPool pool(2);
  write_folder(dir.path());
  EXPECT_EQ(check_manifest(dir.path(), pool), std::vector<std::string>{});
}

TEST(Manifest, FindsEveryChangedByteOfEveryFile) {
  const test::Scratch dir;
  ThreadPool pool(2);
  write_folder(dir.path());
  for (const char* name : {"model.safetensors", "config.json", "merges.txt", kManifestName}) {
    const std::string good = read_text_file(dir.path() / name);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      std::ofstream(dir.path() / name, std::ios::binary) << bad;
      bool found = false;
      try {
        found = !check_manifest(dir.path(), pool).empty();
      } catch (const Error&) {
        found = true;
      }
      ASSERT_TRUE(found) << name << " byte " << i;
    }
    std::ofstream(dir.path() / name, std::ios::binary) << good;
  }
  EXPECT_EQ(check_manifest(dir.path(), pool), std::vector<std::string>{});
}

TEST(Manifest, NamesWhatIsMissingExtraOrCutOff) {
  const test::Scratch dir;
  ThreadPool pool(1);
  const auto finding = [&](auto change) {
    fs::remove_all(dir.path() / "c");
    fs::create_directory(dir.path() / "c");
    write_folder(dir.path() / "c");
    change(dir.path() / "c");
    std::string all;
    for (const std::string& line : check_manifest(dir.path() / "c", pool)) all += line + "\n";
    return all;
  };
  EXPECT_NE(finding([](const fs::path& d) { fs::remove(d / "config.json"); }).find("config.json: is missing"),
            std::string::npos);
  EXPECT_NE(
      finding([](const fs::path& d) { std::ofstream(d / "x.safetensors") << "x"; }).find("is not part of"),
      std::string::npos);
  EXPECT_NE(
      finding([](const fs::path& d) { fs::resize_file(d / "model.safetensors", 100); }).find("100 bytes"),
      std::string::npos);
  fs::remove(dir.path() / "c" / kManifestName);
  EXPECT_THROW(check_manifest(dir.path() / "c", pool), Error);
}

}  // namespace
}  // namespace halfbyte
