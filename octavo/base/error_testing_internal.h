// For tests of what is refused, and in which words. Not templates: a copy for each call takes
// minutes to compile under sanitizers.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octavo/base/error.h"

namespace octavo::error_testing {

// The message of what is thrown; empty if nothing is.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Wants one Error of that code, whose message begins with "[op]", has `words` and is not long.
inline void expect_refused(ErrorCode code, const std::string& words,
                           const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; wanted one about '" << words << "'";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_EQ(message.front(), '[') << message;
    EXPECT_NE(message.find("] "), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos)
        << "'" << message << "' does not say '" << words << "'";
    EXPECT_LT(message.size(), 400u) << message;
  }
}

}  // namespace octavo::error_testing
