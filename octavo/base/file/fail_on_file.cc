#include "octavo/base/file/fail_on_file.h"

namespace octavo {

void fail_on_file_with(int number, const std::string& file, std::string_view op,
                       std::initializer_list<TextPart> parts) {
  std::string message = text('[', op, "] ");
  for (const TextPart& part : parts) part.append_to(message);
  throw FileError(number, file, message);
}

void fail_again(const Error& error, std::string_view op, std::string_view reason) {
  const auto* const about = dynamic_cast<const FileError*>(&error);
  if (about != nullptr) fail_on_file(about->number(), about->file(), op, reason);
  fail(error.code(), op, reason);
}

}  // namespace octavo
