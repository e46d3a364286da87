// FileError: an Error(io) about one file, with the number that the system gave (errno). Python
// raises the OSError that fits the number: FileNotFoundError, PermissionError, IsADirectoryError.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "octavo/base/exception.h"
#include "octavo/base/macros.h"

namespace octavo {

class OCTAVO_API FileError : public Error {
 public:
  FileError(int number, std::string file, const std::string& message)
      : Error(ErrorCode::io, message),
        number_(number),
        file_(std::make_shared<const std::string>(std::move(file))) {}
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] const std::string& file() const noexcept { return *file_; }

 private:
  int number_;
  std::shared_ptr<const std::string> file_;  // shared: copying an exception must not throw
};

}  // namespace octavo
