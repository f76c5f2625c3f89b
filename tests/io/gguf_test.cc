// GGUF: what the reader gives back, and malformed files.
#include "io/gguf.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/io/gguf_builder.h"
#include "tests/io/malformed.h"

namespace halfbyte {
namespace {

using test::expect_refusal;
using test::gguf_string;
using test::GgufBuilder;
using test::le;
using test::message_of;
using test::Scratch;

constexpr auto kBad = ErrorKind::bad_input;
constexpr auto kUnsupported = ErrorKind::unsupported;

// Keys of every type and two tensors.
GgufBuilder sound() {
  GgufBuilder file;
  file.key("u8", 0, le<std::uint8_t>(200))
      .key("i8", 1, le<std::int8_t>(-3))
      .key("u16", 2, le<std::uint16_t>(60000));
  file.key("i16", 3, le<std::int16_t>(-300))
      .u32("u32", 4000000000u)
      .key("i32", 5, le<std::int32_t>(-5))
      .f32("f32", 0.1f);
  file.key("yes", 7, "\x01")
      .text("text", "h\xC3\xA9")
      .key("u64", 10, le(std::numeric_limits<std::uint64_t>::max()));
  file.key("i64", 11, le<std::int64_t>(-7)).key("f64", 12, le(0.1));
  file.texts("texts", {"a", "", "bc"}).array("numbers", 5, 2, le<std::int32_t>(-1) + le<std::int32_t>(2));
  file.array("floats", 6, 1, le(1.5f)).array("flags", 7, 2, std::string("\0\x01", 2));
  file.array("nested", 9, 2,
             le<std::uint32_t>(4) + le<std::uint64_t>(1) + le<std::uint32_t>(9) + le<std::uint32_t>(8) +
                 le<std::uint64_t>(1) + gguf_string("in"));
  file.tensor("w", {32, 3}, 8, std::string(3 * 34, 'w')).tensor("b", {5}, 0, std::string(20, 'b'));
  return file;
}

TEST(Gguf, ReadsKeysOfEveryTypeAndTensors) {
  const Scratch scratch;
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder builder = sound();
    builder.version = version;
    const GgufFile file(scratch.write("m.gguf", builder.build()));
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.keys().size(), 17u);
    EXPECT_EQ(file.integer("u8"), 200);
    EXPECT_EQ(file.integer("i8"), -3);
    EXPECT_EQ(file.integer("u16"), 60000);
    EXPECT_EQ(file.integer("i16"), -300);
    EXPECT_EQ(file.integer("u32"), 4000000000);
    EXPECT_EQ(file.integer("i32"), -5);
    EXPECT_EQ(file.integer("i64"), -7);
    EXPECT_EQ(file.number("f32"), static_cast<double>(0.1f));
    EXPECT_EQ(file.number("f64"), 0.1);
    EXPECT_EQ(file.number("i8"), -3.0);
    EXPECT_TRUE(file.boolean("yes"));
    EXPECT_EQ(file.string("text"), "h\xC3\xA9");
    EXPECT_EQ(file.strings("texts"), (std::vector<std::string_view>{"a", "", "bc"}));
    EXPECT_EQ(file.integers("numbers"), (std::vector<std::int64_t>{-1, 2}));
    EXPECT_EQ(file.numbers("floats"), std::vector<double>{1.5});
    EXPECT_EQ(file.numbers("numbers"), (std::vector<double>{-1, 2}));
    EXPECT_EQ(file.array("nested").arrays[1].strings[0], "in");
    EXPECT_EQ(file.array("nested").arrays[0].count, 1);
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensor("w").shape, (Shape{3, 32}));
    EXPECT_EQ(file.tensor("w").type->name, "Q8_0");
    EXPECT_EQ(file.tensor("w").data.size(), 3u * 34);
    EXPECT_EQ(static_cast<char>(file.tensor("b").data[19]), 'b');
    EXPECT_EQ(file.find_tensor("c"), nullptr);
    file.drop(file.tensor("w"));
  }
}

TEST(Gguf, GettersNameKeyAndType) {
  const Scratch scratch;
  const auto path = scratch.write("m.gguf", sound().build());
  const GgufFile file(path);
  const std::string name = path.string();
  EXPECT_EQ(message_of([&] { file.integer("absent"); }), name + ": the key \"absent\" is missing");
  EXPECT_EQ(message_of([&] { file.integer("text"); }),
            name + ": the key \"text\" is of type string, expected a whole number");
  EXPECT_EQ(message_of([&] { file.integer("u64"); }),
            name + ": the key \"u64\" is 18446744073709551615, which is too large");
  EXPECT_EQ(message_of([&] { file.string("u8"); }),
            name + ": the key \"u8\" is of type u8, expected a string");
  EXPECT_EQ(message_of([&] { file.boolean("u8"); }),
            name + ": the key \"u8\" is of type u8, expected a bool");
  EXPECT_EQ(message_of([&] { file.number("yes"); }),
            name + ": the key \"yes\" is of type bool, expected a number");
  EXPECT_EQ(message_of([&] { file.array("u8"); }),
            name + ": the key \"u8\" is of type u8, expected an array");
  EXPECT_EQ(message_of([&] { file.strings("floats"); }),
            name + ": the key \"floats\" is of type f32, expected an array of strings");
  EXPECT_EQ(message_of([&] { file.integers("floats"); }),
            name + ": the key \"floats\" is of type f32, expected an array of whole numbers");
  EXPECT_EQ(message_of([&] { file.numbers("texts"); }),
            name + ": the key \"texts\" is of type string, expected an array of numbers");
  EXPECT_EQ(message_of([&] { file.tensor("c"); }), name + ": has no tensor \"c\"");
}

struct Case {
  const char* name;
  std::string bytes;
  const char* says;
  ErrorKind kind = kBad;
};

TEST(MalformedGguf, Files) {
  const auto with = [](auto change) {
    GgufBuilder file;
    change(file);
    return file.build();
  };
  const std::uint64_t huge = std::uint64_t{1} << 63;
  std::string nested = le<std::uint32_t>(0) + le<std::uint64_t>(0);
  for (int i = 0; i < 4; ++i) nested = le<std::uint32_t>(9) + le<std::uint64_t>(1) + nested;
  std::string bottomless;
  for (int i = 0; i < 100000; ++i) bottomless += le<std::uint32_t>(9) + le<std::uint64_t>(1);
  const Case cases[] = {
      {"empty", "", "was it cut off?"},
      {"three bytes", "GGU", "was it cut off?"},
      {"another magic", with([](auto& f) { f.magic = "GGML"; }), "does not begin with \"GGUF\""},
      {"magic only", "GGUF", "was it cut off?"},
      {"version 0", with([](auto& f) { f.version = 0; }), "version 0, expected 2 or 3", kUnsupported},
      {"version 1", with([](auto& f) { f.version = 1; }), "version 1, expected 2 or 3", kUnsupported},
      {"version 4", with([](auto& f) { f.version = 4; }), "version 4, expected 2 or 3", kUnsupported},
      {"big-endian", with([](auto& f) { f.version = 0x03000000; }), "big-endian", kUnsupported},
      {"2^60 tensors", with([](auto& f) { f.extra_tensors = std::uint64_t{1} << 60; }), "more than fit"},
      {"2^60 keys", with([](auto& f) { f.extra_keys = std::uint64_t{1} << 60; }), "more than fit"},
      {"a key too many", with([](auto& f) {
         f.text("k", std::string(20, 'v')).extra_keys = 1;
         f.padding = "\x01";
       }),
       "was it cut off?"},
      {"key of 2^63 bytes", with([&](auto& f) {
         f.extra_keys = 1;
         f.padding = le(huge) + std::string(40, 'k');
       }),
       "was it cut off?"},
      {"key without a name", with([](auto& f) { f.u32("", 1); }), "a key without a name"},
      {"key that is not UTF-8", with([](auto& f) { f.u32("\xFF", 1); }),
       "the key name \"\\xFF\" is not UTF-8"},
      {"key twice", with([](auto& f) { f.u32("k", 1).u32("k", 1); }), "the key \"k\" stands twice"},
      {"value type 13", with([](auto& f) { f.key("k", 13, le<std::uint64_t>(0)); }), "value type 13"},
      {"value type 2^32 - 1", with([](auto& f) { f.key("k", 0xFFFFFFFFu, le<std::uint64_t>(0)); }),
       "value type 4294967295"},
      {"bool of 2", with([](auto& f) { f.key("k", 7, "\x02"); }), "the bool 2"},
      {"array of bools of 3", with([](auto& f) { f.array("k", 7, 2, "\x01\x03"); }), "the bool 3"},
      {"text of 2^63 bytes", with([&](auto& f) { f.key("k", 8, le(huge)); }),
       "needs 9223372036854775808 more bytes"},
      {"text of 2^64 - 1 bytes", with([](auto& f) { f.key("k", 8, le(~std::uint64_t{0})); }),
       "was it cut off?"},
      {"array of 2^63", with([&](auto& f) { f.array("k", 0, huge, ""); }),
       "declares an array of 9223372036854775808"},
      {"array of 2^61 u64", with([](auto& f) { f.array("k", 10, std::uint64_t{1} << 61, ""); }),
       "declares an array"},
      {"array of 2^60 texts", with([](auto& f) { f.array("k", 8, std::uint64_t{1} << 60, ""); }),
       "declares an array"},
      {"array of 2^60 arrays", with([](auto& f) { f.array("k", 9, std::uint64_t{1} << 60, ""); }),
       "declares an array"},
      {"array of type 99", with([](auto& f) { f.array("k", 99, 1, "x"); }), "value type 99"},
      {"array nested five deep", with([&](auto& f) { f.key("k", 9, nested); }), "nested deeper than 4"},
      {"array nested without end", with([&](auto& f) { f.key("k", 9, bottomless); }), "nested deeper than 4"},
      {"alignment 0", with([](auto& f) { f.u32("general.alignment", 0); }), "general.alignment is 0"},
      {"alignment 3", with([](auto& f) { f.u32("general.alignment", 3); }), "general.alignment is 3"},
      {"alignment text", with([](auto& f) { f.text("general.alignment", "32"); }), "expected a whole number"},
      {"alignment 2^40", with([](auto& f) { f.key("general.alignment", 10, le(std::uint64_t{1} << 40)); }),
       "general.alignment is"},
      {"alignment 2^31 beyond the file",
       with([](auto& f) { f.u32("general.alignment", 1u << 31).tensor("t", {1}, 0, "xxxx"); }),
       "past the end of the file"},
      {"no dimensions", with([](auto& f) { f.entry("t", {}, 0, 0).data = std::string(40, 'x'); }),
       "has 0 dimensions"},
      {"five dimensions", with([](auto& f) {
         f.tensor("t", {1, 1, 1, 1, 1}, 0, "xxxx");
       }),
       "has 5 dimensions"},
      {"dimension of 0", with([](auto& f) {
         f.tensor("t", {4, 0}, 0, "xxxx");
       }),
       "a dimension of 0"},
      {"dimension of 2^63", with([&](auto& f) { f.tensor("t", {huge}, 0, "xxxx"); }),
       "a dimension of 9223372036854775808"},
      {"elements that overflow", with([](auto& f) {
         f.tensor("t", {1ull << 32, 1ull << 32}, 0, "xxxx");
       }),
       "too large"},
      {"elements that wrap to 1", with([](auto& f) {
         f.tensor("t", {1ull << 62, 4, 1}, 24, "x");
       }),
       "too large"},
      {"bytes that overflow", with([](auto& f) { f.tensor("t", {1ull << 62}, 28, "xxxx"); }), "too large"},
      {"row of half a block", with([](auto& f) {
         f.tensor("t", {16, 2}, 2, std::string(18, 'x'));
       }),
       "rows of 16 values"},
      {"type 99", with([](auto& f) { f.tensor("t", {1}, 99, "xxxx"); }), "ggml type number 99", kUnsupported},
      {"removed type 4", with([](auto& f) { f.tensor("t", {32}, 4, std::string(20, 'x')); }),
       "ggml type number 4", kUnsupported},
      {"offset not aligned", with([](auto& f) { f.entry("t", {1}, 0, 4).data = std::string(64, 'x'); }),
       "no multiple of the alignment 32"},
      {"offset past the end", with([](auto& f) { f.entry("t", {1}, 0, 64).data = std::string(64, 'x'); }),
       "past the end"},
      {"offset of 2^64 - 32",
       with([](auto& f) { f.entry("t", {1}, 0, ~std::uint64_t{31}).data = std::string(64, 'x'); }),
       "past the end"},
      {"tensor past the end", with([](auto& f) { f.entry("t", {17}, 0, 0).data = std::string(64, 'x'); }),
       "needs 68 bytes"},
      {"overlap",
       with([](auto& f) { f.entry("t", {9}, 0, 0).entry("u", {1}, 0, 32).data = std::string(64, 'x'); }),
       "\"t\" and \"u\" overlap"},
      {"same place",
       with([](auto& f) { f.entry("t", {1}, 0, 32).entry("u", {1}, 0, 32).data = std::string(64, 'x'); }),
       "overlap"},
      {"overlap out of order",
       with([](auto& f) { f.entry("t", {1}, 0, 32).entry("u", {16}, 0, 0).data = std::string(64, 'x'); }),
       "overlap"},
      {"tensor twice", with([](auto& f) { f.tensor("t", {1}, 0, "xxxx").tensor("t", {1}, 0, "xxxx"); }),
       "\"t\" stands twice"},
      {"tensor without a name", with([](auto& f) { f.tensor("", {1}, 0, "xxxx"); }),
       "a tensor without a name"},
      {"tensor name that is not UTF-8", with([](auto& f) { f.tensor("\xC3(", {1}, 0, "xxxx"); }),
       "is not UTF-8"},
      {"tensor name of 2^63 bytes", with([&](auto& f) {
         f.extra_tensors = 1;
         f.padding = le(huge) + std::string(60, 'k');
       }),
       "was it cut off?"},
  };
  for (const Case& row : cases) {
    const Scratch scratch;
    const auto path = scratch.write("m.gguf", row.bytes);
    expect_refusal(
        row.name, [&] { GgufFile open(path); }, row.kind, path.string(), row.says);
  }
}

TEST(MalformedGguf, EveryTruncationIsRefused) {
  const Scratch scratch;
  const std::string bytes = sound().build();
  GgufFile whole(scratch.write("m.gguf", bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto path = scratch.write("m.gguf", bytes.substr(0, size));
    expect_refusal(
        "cut to " + std::to_string(size), [&] { GgufFile open(path); }, kBad, path.string(),
        "was it cut off?");
  }
}

TEST(MalformedGguf, ChangedBytesNeverCrash) {
  const Scratch scratch;
  const std::string bytes = sound().build();
  std::mt19937 random(20240229);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string changed = bytes;
    for (unsigned change = 0; change <= random() % 3; ++change)
      changed[random() % changed.size()] = static_cast<char>(random() % 4 ? random() % 256 : random() % 14);
    try {
      const GgufFile opened(scratch.write("m.gguf", changed));
      ++accepted;
      for (const GgufTensor& tensor : opened.tensors()) {
        EXPECT_GE(tensor.data.data(), opened.bytes().data());
        EXPECT_LE(tensor.data.data() + tensor.data.size(), opened.bytes().data() + opened.bytes().size());
      }
    } catch (const Error& error) {
      EXPECT_TRUE(is_utf8(error.what()));
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 4900);
}

}  // namespace
}  // namespace halfbyte
