#include "octavo/base/error.h"

#include <array>
#include <charconv>

namespace octavo {

void TextPart::append_to(std::string& out) const {
  std::array<char, 32> digits{};
  char* const begin = digits.data();
  char* const end = begin + digits.size();
  char* last = begin;
  switch (kind_) {
    case Kind::text:
      out += text_;
      return;
    case Kind::character:
      out += character_;
      return;
    case Kind::integer:
      last = std::to_chars(begin, end, integer_).ptr;
      break;
    case Kind::natural:
      last = std::to_chars(begin, end, natural_).ptr;
      break;
    case Kind::real:
      last = std::to_chars(begin, end, real_, std::chars_format::general, 6).ptr;
      break;
    case Kind::address:
      out += "0x";
      last = std::to_chars(begin, end, reinterpret_cast<std::uintptr_t>(address_), 16).ptr;
  }
  out.append(begin, last);
}

std::string join_parts(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

void fail_with(ErrorCode code, std::string_view op, std::initializer_list<TextPart> parts) {
  std::string message = text('[', op, "] ");
  for (const TextPart& part : parts) part.append_to(message);
  throw Error(code, message);
}

}  // namespace octavo
