// What is refused, and in which words.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octavo/base/error.h"

namespace octavo::quant_testing {

// Runs `call`, wants one Error of that code which says `words`.
inline void expect_refused(ErrorCode code, const std::string& words,
                           const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; wanted one about '" << words << "'";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_EQ(message.front(), '[') << message;
    EXPECT_NE(message.find(words), std::string::npos)
        << "'" << message << "' does not say '" << words << "'";
  }
}

}  // namespace octavo::quant_testing
