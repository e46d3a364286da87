// Test helpers: expect an Error with a code and a message. Not templates: one instantiation per
// call takes minutes to compile under sanitizers.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octavo/base/error.h"

namespace octavo::error_testing {

// The message of the Error thrown by `call`; empty if it throws nothing.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Expects one Error with that code whose message begins with "[op]", contains `words` and has fewer
// than 400 characters.
inline void expect_refused(ErrorCode code, const std::string& words,
                           const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one about '" << words << "'";
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
