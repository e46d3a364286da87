// How a run ends, and the one error that is the user's own.
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

// The name of a file to write. Files are renamed into place when they are whole, so stdout is none.
inline const std::string& output_name(const std::string& op, const std::string& path) {
  if (path == "-") {
    throw UsageError("[" + op +
                     "] got '-' for the output, and files are not written to stdout; give a name, "
                     "or ./- if '-' is the name");
  }
  return path;
}

}  // namespace octavo::cli
