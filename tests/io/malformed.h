// What every refusal of a malformed file must look like.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "halfbyte/error.h"
#include "io/text.h"
#include "tests/support/scratch.h"

namespace halfbyte::test {

// The call throws Error of that kind, in one sentence on one line that names the file and holds `says`.
inline void expect_refusal(const std::string& name, const std::function<void()>& call, ErrorKind kind,
                           const std::string& file, const std::string& says) {
  const auto thrown = thrown_by(call);
  ASSERT_TRUE(thrown.has_value()) << name << ": was accepted";
  const std::string& message = thrown->message;
  EXPECT_EQ(static_cast<int>(thrown->kind), static_cast<int>(kind)) << name << ": " << message;
  EXPECT_NE(message.find(file), std::string::npos) << name << ": " << message;
  EXPECT_NE(message.find(says), std::string::npos) << name << ": " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << name << ": " << message;
  EXPECT_FALSE(message.ends_with('.')) << name << ": " << message;
  EXPECT_EQ(message.find(". "), std::string::npos) << name << ": " << message;
  EXPECT_LT(message.size(), 700u) << name << ": " << message;
  EXPECT_TRUE(is_utf8(message)) << name << ": " << message;
}

}  // namespace halfbyte::test
