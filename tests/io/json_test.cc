// JSON: what is read and refused, the member getters, and what is written.
#include "io/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "io/text.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

using test::message_of;

TEST(Json, ReadsAllKindsOfValues) {
  const Json value =
      parse_json(R"({"a": [1, -2, 3.5, true, null, "\u00e9\ud83d\ude00"], "b": {"c": {}}})", "x.json");
  EXPECT_EQ(value["a"][0].get<int>(), 1);
  EXPECT_EQ(value["a"][1].get<int>(), -2);
  EXPECT_EQ(value["a"][2].get<double>(), 3.5);
  EXPECT_TRUE(value["a"][3].get<bool>());
  EXPECT_TRUE(value["a"][4].is_null());
  EXPECT_EQ(value["a"][5].get<std::string>(), "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_TRUE(value["b"]["c"].empty());
}

TEST(Json, BuildsWhatTheLibraryBuilds) {
  const std::string text =
      R"([[[1,2],[3]],{"k":[{"a":1,"b":[]},{"a":2}],"j":{"x":[[],[{}]]}},"s",18446744073709551615])";
  EXPECT_EQ(parse_json(text, "x"), Json::parse(text));
}

TEST(Json, DepthIsCapped) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "x.json"));
  EXPECT_EQ(message_of([&] { parse_json(nested(65), "x.json"); }), "x.json: is nested deeper than 64 levels");
  EXPECT_EQ(message_of([&] { parse_json(std::string(1000000, '['), "x.json"); }),
            "x.json: is nested deeper than 64 levels");
}

TEST(Json, DuplicateKeysAreRefusedOnlyWithinOneObject) {
  EXPECT_NO_THROW(parse_json(R"({"a": {"a": 1}, "b": {"a": 2}})", "x.json"));
  EXPECT_EQ(message_of([] { parse_json(R"({"a": 1, "a": 1})", "x.json"); }),
            "x.json: the key \"a\" stands twice in one object");
}

TEST(Json, GettersNameFileKeyAndType) {
  const Json value =
      parse_json(R"({"s": "t", "i": 7, "d": 1.5, "b": true, "n": null, "u": 18446744073709551615})", "");
  EXPECT_EQ(json_string(value, "s", "f"), "t");
  EXPECT_EQ(json_int64(value, "i", "f"), 7);
  EXPECT_EQ(json_double(value, "d", "f"), 1.5);
  EXPECT_EQ(json_double(value, "i", "f"), 7.0);
  EXPECT_TRUE(json_bool(value, "b", "f"));
  EXPECT_EQ(json_optional_int64(value, "n", "f"), std::nullopt);
  EXPECT_EQ(json_optional_string(value, "absent", "f"), std::nullopt);
  EXPECT_EQ(json_optional_double(value, "d", "f"), 1.5);
  EXPECT_EQ(json_optional_bool(value, "b", "f"), true);
  EXPECT_EQ(message_of([&] { json_string(value, "x", "f"); }), "f: the key \"x\" is missing");
  EXPECT_EQ(message_of([&] { json_string(value, "i", "f"); }),
            "f: \"i\" must be a string, but it is the number 7");
  EXPECT_EQ(message_of([&] { json_int64(value, "d", "f"); }),
            "f: \"d\" must be a whole number, but it is the number 1.5");
  EXPECT_EQ(message_of([&] { json_int64(value, "u", "f"); }),
            "f: \"u\" must be a whole number below 2^63, but it is the number 18446744073709551615");
  EXPECT_EQ(message_of([&] { json_optional_bool(value, "s", "f"); }),
            "f: \"s\" must be true or false, but it is of type string");
  EXPECT_EQ(message_of([&] { json_object(value, "s", "f"); }),
            "f: \"s\" must be an object, but it is of type string");
}

TEST(Json, WritesSortedKeysAndRefusesWhatJsonCannotHold) {
  EXPECT_EQ(dump_json({{"b", 1}, {"a", {1, 2}}}), "{\n  \"a\": [1,2],\n  \"b\": 1\n}\n");
  EXPECT_THROW(dump_json({{"x", std::numeric_limits<double>::quiet_NaN()}}), Error);
  EXPECT_THROW(dump_json(Json::array({Json::array({std::numeric_limits<double>::infinity()})})), Error);
  EXPECT_THROW(dump_json({{"x", "\xFF"}}), Error);
}

TEST(Text, Utf8) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << quote(good);
  for (const char* bad : {"\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE1\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xC2"})
    EXPECT_FALSE(is_utf8(bad)) << quote(bad);
}

TEST(Text, QuotesStayOnOneLineAndShort) {
  EXPECT_EQ(quote("a\nb\x1B[0m\x7F\xFF\xC2\x9B\xC3\xA9"), "\"a\\x0Ab\\x1B[0m\\x7F\\xFF\\xC2\\x9B\xC3\xA9\"");
  EXPECT_LT(quote(std::string(5000, 'x')).size(), 130u);
}

}  // namespace
}  // namespace halfbyte
