// octavo::Error, the one exception type of the library. A message reads
//   [op] what was got, what was wanted, how to fix it
#pragma once

#include <stdexcept>
#include <string>

#include "octavo/base/macros.h"

namespace octavo {

enum class ErrorCode {
  invalid_argument,  // a value, shape or size that cannot be right   -> Python ValueError
  wrong_type,        // a dtype or format the operation does not take -> Python TypeError
  io,                // a file could not be read or written           -> Python OSError
  unsupported,       // right in itself, but not available here       -> Python RuntimeError
  internal,          // our own mistake                               -> Python RuntimeError
  device,            // a device, or what drives it, failed           -> Python RuntimeError
};

class OCTAVO_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace octavo
