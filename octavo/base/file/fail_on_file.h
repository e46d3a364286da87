// Throws FileError: fail() for errors about a file.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/file_error.h"

namespace octavo {

[[noreturn]] void fail_on_file_with(int number, const std::string& file, std::string_view op,
                                    std::initializer_list<TextPart> parts);

// `number` is an errno; where the system gave none, the one that fits best. `file` is the whole
// name, however little of it the message shows.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail_on_file(int number, const std::string& file,
                                                          std::string_view op,
                                                          const Parts&... parts) {
  fail_on_file_with(number, file, op, {TextPart(parts)...});
}

// Throws the same error with another op and reason; one about a file stays one.
[[noreturn]] void fail_again(const Error& error, std::string_view op, std::string_view reason);

}  // namespace octavo
