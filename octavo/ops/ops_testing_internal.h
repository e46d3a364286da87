// What tests of operations share.
#pragma once

#include <functional>
#include <string>

#include "octavo/base/error.h"

namespace octavo::ops_testing {

// The message of what is thrown; empty if nothing is.
inline std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace octavo::ops_testing
