// Exit codes, and UsageError for command-line mistakes.
#pragma once

#include <stdexcept>
#include <string>

namespace octavo::cli {

enum ExitCode : int {
  kGood = 0,
  kFailed = 1,      // the work could not be done, or a check found something
  kUsage = 2,       // the command line itself is wrong
  kGateMissed = 3,  // a quality limit that the user set was missed
};

// A mistake on the command line: exit code 2. The message reads "[op] got, wanted, fix".
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace octavo::cli
