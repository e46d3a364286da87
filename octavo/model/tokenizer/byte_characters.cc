#include "octavo/model/tokenizer/byte_characters_internal.h"

#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::uint32_t kFirstOther = 0x100;

constexpr bool is_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr std::array<std::uint32_t, 256> kCharacters = [] {
  std::array<std::uint32_t, 256> out{};
  std::uint32_t others = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte)
    out[byte] = is_itself(byte) ? byte : kFirstOther + others++;
  return out;
}();

constexpr std::uint32_t kEnd = 0x144;  // behind the last character

constexpr std::array<std::int16_t, kEnd> kBytes = [] {
  std::array<std::int16_t, kEnd> out{};
  for (std::int16_t& one : out) one = -1;
  for (std::size_t byte = 0; byte < 256; ++byte)
    out[kCharacters[byte]] = static_cast<std::int16_t>(byte);
  return out;
}();

}  // namespace

const std::array<std::uint32_t, 256>& byte_characters() { return kCharacters; }

std::string to_byte_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) append_utf8(out, kCharacters[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t point = next_point(text, at);
    if (point >= kEnd || kBytes[point] < 0) return std::nullopt;
    out += static_cast<char>(kBytes[point]);
  }
  return out;
}

}  // namespace octavo::tokenizer
