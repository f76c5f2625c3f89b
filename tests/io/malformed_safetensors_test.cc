// Malformed safetensors files, sharded models and JSON: each is refused in one sentence.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "io/json.h"
#include "io/safetensors.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/malformed.h"

namespace halfbyte {
namespace {

using test::expect_refusal;
using test::le;
using test::Scratch;

constexpr auto kBad = ErrorKind::bad_input;
constexpr auto kUnsupported = ErrorKind::unsupported;
constexpr auto kIo = ErrorKind::io;

// A file of that header and so many zero bytes of data.
std::string file(const std::string& header, std::size_t data = 8) {
  return le<std::uint64_t>(header.size()) + header + std::string(data, '\0');
}
// A header of one tensor with these parts.
std::string one(const std::string& dtype = "\"F32\"", const std::string& shape = "[2]",
                const std::string& offsets = "[0,8]", const std::string& more = "") {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + more + "}}";
}
std::string two(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
         R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
}

struct Case {
  const char* name;
  std::string bytes;
  const char* says;
  ErrorKind kind = kBad;
};

TEST(MalformedSafetensors, SoundOnesAreAccepted) {
  const Scratch scratch;
  SafetensorsFile(scratch.write("m.safetensors", file(one())));
  SafetensorsFile(scratch.write("m.safetensors", file(one() + "   ")));
  SafetensorsFile(scratch.write("m.safetensors", file(two("[0,4]", "[4,8]"))));
  SafetensorsFile(scratch.write("m.safetensors", file(two("[4,8]", "[0,4]"))));
  SafetensorsFile(scratch.write("m.safetensors", file("{}", 0)));
}

TEST(MalformedSafetensors, Files) {
  const std::string deep(100000, '[');
  std::string rank33 = "[1";
  for (int i = 0; i < 32; ++i) rank33 += ",1";
  const Case cases[] = {
      {"empty", "", "holds 0 bytes"},
      {"seven bytes", std::string(7, '\0'), "holds 7 bytes"},
      {"header of no bytes", le<std::uint64_t>(0), "does not begin with '{'"},
      {"header longer than the file", le<std::uint64_t>(9) + "{}", "only 2 follow"},
      {"header of 2^63 bytes", le(std::uint64_t{1} << 63) + "{}", "more than the 100000000 allowed"},
      {"header of 100000001 bytes", le<std::uint64_t>(100000001) + "{}", "more than the 100000000 allowed"},
      {"header that is a list", file("[1]"), "does not begin with '{'"},
      {"header with a byte order mark", file("\xEF\xBB\xBF{}", 0), "does not begin with '{'"},
      {"header cut off", file(R"({"a":{"dtype":"F3)"), "not valid JSON"},
      {"text after the header", file(one() + "x"), "not valid JSON"},
      {"second object", file("{}{}", 0), "not valid JSON"},
      {"zero byte in the header", file(std::string("{}\0 ", 4), 0), "zero byte at byte 10"},
      {"name that is not UTF-8", file("{\"\xFF\":{}}"), "not valid JSON"},
      {"overlong UTF-8", file("{\"\xC0\x80\":{}}"), "not valid JSON"},
      {"lone surrogate", file(R"({"\ud800":{}})"), "not valid JSON"},
      {"control character", file("{\"\n\":{}}"), "not valid JSON"},
      {"one name twice",
       file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
       "\"a\" stands twice"},
      {"dtype twice", file(one("\"F32\"", "[2]", "[0,8]", R"(,"dtype":"F32")")), "\"dtype\" stands twice"},
      {"shape twice", file(one("\"F32\"", "[2]", "[0,8]", R"(,"shape":[2])")), "\"shape\" stands twice"},
      {"metadata key twice", file(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "\"k\" stands twice"},
      {"metadata twice", file(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "\"__metadata__\" stands twice"},
      {"metadata number", file(R"({"__metadata__":{"k":1}})", 0), "must hold strings only"},
      {"metadata object", file(R"({"__metadata__":{"k":{}}})", 0), "must hold strings only"},
      {"metadata list", file(R"({"__metadata__":["k"]})", 0), "must hold strings only"},
      {"unknown dtype", file(one("\"F33\"")), "none of the safetensors types"},
      {"foreign dtype", file(one("\"F4\"")), "halfbyte does not support", kUnsupported},
      {"dtype number", file(one("32")), "must be dtype, shape and data_offsets, but a number"},
      {"no dtype", file(R"({"a":{"shape":[2],"data_offsets":[0,8]}})"), "lacks its dtype"},
      {"no shape", file(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), "lacks its shape"},
      {"no offsets", file(R"({"a":{"dtype":"F32","shape":[2]}})"), "lacks its data_offsets"},
      {"unknown key", file(one("\"F32\"", "[2]", "[0,8]", R"(,"strides":[1])")), "unknown key \"strides\""},
      {"one offset", file(one("\"F32\"", "[2]", "[8]")), "has 1 data_offsets"},
      {"three offsets", file(one("\"F32\"", "[2]", "[0,8,8]")), "has 3 data_offsets"},
      {"offsets reversed", file(one("\"F32\"", "[2]", "[8,0]")), "has the data_offsets [8, 0]"},
      {"offset past the end", file(one("\"F32\"", "[3]", "[0,12]")), "the file holds 8 bytes of data"},
      {"offset of 2^64 - 1", file(one("\"F32\"", "[2]", "[0,18446744073709551615]")), "too large"},
      {"offset of 2^64", file(one("\"F32\"", "[2]", "[0,18446744073709551616]")),
       "a number that is not whole"},
      {"negative offset", file(one("\"F32\"", "[2]", "[-8,0]")), "a negative number"},
      {"fractional offset", file(one("\"F32\"", "[2]", "[0,8.0]")), "a number that is not whole"},
      {"infinite offset", file(one("\"F32\"", "[2]", "[0,1e999]")), "not valid JSON"},
      {"offsets string", file(one("\"F32\"", "[2]", "\"0,8\"")), "a string stands there"},
      {"overlap", file(two("[0,4]", "[2,6]"), 6), "\"b\" begins at data byte 2, expected 4"},
      {"same place", file(two("[0,4]", "[0,4]"), 4), "begins at data byte 0, expected 4"},
      {"gap", file(two("[0,4]", "[8,12]"), 12), "\"b\" begins at data byte 8, expected 4"},
      {"gap at the start", file(one("\"F32\"", "[1]", "[4,8]")), "begins at data byte 4, expected 0"},
      {"data nobody owns", file(one(), 9), "holds 9 bytes of data, but its tensors only 8"},
      {"data cut off", file(one(), 7), "the file holds 7 bytes of data"},
      {"bytes that do not match", file(one("\"F32\"", "[3]")), "holds 8 bytes, expected 12 for F32 [3]"},
      {"shape that overflows", file(one("\"F32\"", "[4611686018427387904,4]")), "too large"},
      {"bytes that overflow", file(one("\"F32\"", "[4611686018427387904]")), "too large"},
      {"negative shape", file(one("\"F32\"", "[-2]")), "a negative number"},
      {"shape number", file(one("\"F32\"", "2")), "a number stands there"},
      {"nested shape", file(one("\"F32\"", "[[2]]")), "an array stands there"},
      {"deep shape", file(one("\"F32\"", deep)), "an array stands there"},
      {"deep object", file("{\"a\":{\"b\":" + deep), "unknown key \"b\""},
      {"33 dimensions", file(one("\"U8\"", rank33 + "]", "[0,1]"), 1), "more than 32 dimensions"},
      {"entry null", file(R"({"a":null})", 0), "null stands there"},
      {"entry string", file(R"({"a":"F32"})", 0), "a string stands there"},
      {"entry list", file(R"({"a":[]})", 0), "an array stands there"},
      {"entry true", file(R"({"a":true})", 0), "true or false stands there"},
  };
  for (const Case& row : cases) {
    const Scratch scratch;
    const auto path = scratch.write("m.safetensors", row.bytes);
    expect_refusal(
        row.name, [&] { SafetensorsFile open(path); }, row.kind, path.string(), row.says);
  }
}

TEST(MalformedSafetensors, PathsThatAreNoFiles) {
  const Scratch scratch;
  expect_refusal(
      "folder", [&] { SafetensorsFile open(scratch.path()); }, kIo, scratch.path().string(),
      "it is a directory");
  expect_refusal(
      "missing", [&] { SafetensorsFile open(scratch / "none"); }, kIo, "none", "No such file");
  expect_refusal(
      "missing model", [&] { SafetensorsModel open(scratch / "none"); }, kIo, "none", "does not exist");
  expect_refusal(
      "empty folder", [&] { SafetensorsModel open(scratch.path()); }, kIo, scratch.path().string(),
      "has neither");
  scratch.write("pytorch_model.bin", "x");
  expect_refusal(
      "pickle", [&] { SafetensorsModel open(scratch.path()); }, kUnsupported, scratch.path().string(),
      "pickled");
}

// Folders with two shards, one.safetensors (tensor a) and two.safetensors (tensor b), and this index.
TEST(MalformedSafetensors, Indexes) {
  const auto map = [](const std::string& entries) { return R"({"weight_map":{)" + entries + "}}"; };
  const char* outside = "not the name of a .safetensors file";
  const Case cases[] = {
      {"not JSON", "weight_map", "not valid JSON"},
      {"empty index", "", "not valid JSON"},
      {"no weight_map", R"({"metadata":{}})", "\"weight_map\" is missing"},
      {"weight_map list", R"({"weight_map":["a"]})", "\"weight_map\" must be an object"},
      {"index list", "[]", "must be an object with the key \"weight_map\""},
      {"empty weight_map", map(""), "names no tensors"},
      {"shard number", map(R"("a":1)"), "must give a file name"},
      {"absolute path", map(R"("a":"/etc/one.safetensors")"), outside},
      {"parent folder", map(R"("a":"../one.safetensors")"), outside},
      {"sub folder", map(R"("a":"sub/one.safetensors")"), outside},
      {"backslash", map(R"("a":"..\\one.safetensors")"), outside},
      {"zero byte", map(R"("a":"one.safetensors\u0000.safetensors")"), outside},
      {"other ending", map(R"("a":"one.bin")"), outside},
      {"no name", map(R"("a":"")"), outside},
      {"two dots", map(R"("a":"..")"), outside},
      {"hidden file", map(R"("a":".safetensors")"), outside},
      {"missing shard", map(R"("a":"one.safetensors","b":"three.safetensors")"),
       "\"three.safetensors\", which is not there", kIo},
      {"shard that is a folder", map(R"("a":"folder.safetensors")"), "it is a directory", kIo},
      {"broken shard", map(R"("a":"broken.safetensors")"), "was it cut off?"},
      {"tensor missing in its shard", map(R"("a":"one.safetensors","c":"two.safetensors")"),
       "\"c\" should lie in"},
      {"tensor in the other shard", map(R"("a":"two.safetensors","b":"one.safetensors")"),
       "\"a\" should lie in"},
      {"tensor in two shards", map(R"("a":"one.safetensors","b":"copy.safetensors")"),
       "\"a\" lies in two shards"},
      {"one key twice", map(R"("a":"one.safetensors","a":"one.safetensors")"), "\"a\" stands twice"},
      {"deep index", R"({"weight_map":)" + std::string(1000, '['), "nested deeper than 64"},
      {"index that is not UTF-8", map("\"\xFF\":\"one.safetensors\""), "not valid JSON"},
  };
  for (const Case& row : cases) {
    const Scratch scratch;
    scratch.write("one.safetensors", file(one()));
    scratch.write("copy.safetensors", file(one()));
    scratch.write("two.safetensors", file(R"({"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"));
    scratch.write("broken.safetensors", "x");
    std::filesystem::create_directory(scratch / "folder.safetensors");
    scratch.write("model.safetensors.index.json", row.bytes);
    expect_refusal(
        row.name, [&] { SafetensorsModel open(scratch.path()); }, row.kind, scratch.path().string(),
        row.says);
  }
}

TEST(MalformedJson, Files) {
  std::string many = "[0";
  for (int i = 0; i < 600; ++i) many += ",0";
  const Case cases[] = {
      {"empty", "", "not valid JSON"},
      {"blank", " \n ", "not valid JSON"},
      {"cut off", R"({"a": 1)", "not valid JSON"},
      {"comma at the end", R"({"a": 1,})", "not valid JSON"},
      {"comment", "// x\n{}", "not valid JSON"},
      {"NaN", R"({"a": NaN})", "not valid JSON"},
      {"number too large", R"({"a": 1e999})", "too large"},
      {"leading zero", R"({"a": 01})", "not valid JSON"},
      {"one key twice", R"({"a": 1, "b": {}, "a": 2})", "\"a\" stands twice"},
      {"deep list", std::string(65, '[') + std::string(65, ']'), "nested deeper than 64"},
      {"deep object",
       [] {
         std::string text;
         for (int i = 0; i < 5000; ++i) text += R"({"a":)";
         return text;
       }(),
       "nested deeper than 64"},
      {"not UTF-8", "{\"a\": \"\xC3\"}", "not valid JSON"},
      {"UTF-16", std::string("{\0}\0", 4), "zero byte"},
      {"lone surrogate", R"(["\udc00"])", "not valid JSON"},
      {"newline in a string", "[\"\n\"]", "not valid JSON"},
      {"two values", "{} {}", "not valid JSON"},
      {"larger than allowed", many + "]", "more than the 1000 that"},
  };
  for (const Case& row : cases) {
    const Scratch scratch;
    const auto path = scratch.write("config.json", row.bytes);
    const std::int64_t limit = row.name == std::string("larger than allowed") ? 1000 : kMaxTextBytes;
    expect_refusal(
        row.name, [&] { read_json_file(path, limit); }, row.kind, path.string(), row.says);
  }
}

// Any change of a few bytes leads to an Error or to a file that is sound in itself.
TEST(MalformedSafetensors, ChangedBytesNeverCrash) {
  const Scratch scratch;
  const std::string sound =
      file(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
           R"("b":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]}})");
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed() != 0
                            ? static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed())
                            : 1u;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "{}[]\",:0123456789-.eE\\utruenlF";
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = sound;
    for (unsigned change = 0; change <= random() % 3; ++change)
      bytes[random() % bytes.size()] =
          random() % 2 ? alphabet[random() % alphabet.size()] : static_cast<char>(random() % 256);
    const auto path = scratch.write("m.safetensors", bytes);
    try {
      const SafetensorsFile opened(path);
      ++accepted;
      for (const NamedTensor& tensor : opened.tensors())
        EXPECT_EQ(static_cast<std::int64_t>(tensor.view.data.size()),
                  tensor.view.elements() * dtype_bytes(tensor.view.dtype));
    } catch (const Error& error) {
      EXPECT_TRUE(is_utf8(error.what()));
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 2900);
}

}  // namespace
}  // namespace halfbyte
