// The lines of octavo conform --exec: hexadecimal, a request and a reply each.
#include <array>
#include <bit>
#include <charconv>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/report/conform/conform.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "conform";
constexpr std::array<std::string_view, 3> kKinds{"convert", "dequantize", "dot"};

std::string hex(const std::vector<std::uint8_t>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string hex(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
  }
  return hex(bytes);
}

std::vector<std::uint8_t> bytes_of(std::string_view digits) {
  const auto wrong = [&] {
    fail(ErrorCode::invalid_argument, kOp, "got '", shown(digits, 60),
         "'; expected hexadecimal digits, two for a byte");
  };
  if (digits.size() % 2 != 0) wrong();
  std::vector<std::uint8_t> out(digits.size() / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const char* const at = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(at, at + 2, out[i], 16);
    if (error != std::errc{} || end != at + 2) wrong();
  }
  return out;
}

std::vector<float> floats_of(std::string_view digits) {
  const std::vector<std::uint8_t> bytes = bytes_of(digits);
  check(bytes.size() % 4 == 0, ErrorCode::invalid_argument, kOp, "got ", digits.size(),
        " digits; expected eight for each f32");
  std::vector<float> out;
  for (std::size_t i = 0; i < bytes.size(); i += 4)
    out.push_back(std::bit_cast<float>(std::uint32_t{bytes[i]} << 24 |
                                       std::uint32_t{bytes[i + 1]} << 16 |
                                       std::uint32_t{bytes[i + 2]} << 8 | bytes[i + 3]));
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

void check_count(std::size_t got, std::size_t wanted, std::string_view line) {
  check(got == wanted, ErrorCode::invalid_argument, kOp, "got '", shown(line, 60), "', ", got,
        " words; expected ", wanted);
}

void check_blocks(const std::vector<std::uint8_t>& scales, const std::vector<std::uint8_t>& codes) {
  check(!scales.empty() && codes.size() == scales.size() * kMxBlockSize,
        ErrorCode::invalid_argument, kOp, "got ", scales.size(), " scales and ", codes.size(),
        " codes; expected 32 codes for each scale");
}

}  // namespace

std::string request_line(const ConformRequest& request) {
  std::string out =
      text(kKinds[static_cast<std::size_t>(request.kind)], " ", format_name(request.format));
  if (request.kind == ConformKind::convert) return text(out, " ", hex(request.values));
  out += text(" ", hex(request.scales), " ", hex(request.codes));
  if (request.kind == ConformKind::dot)
    out += text(" ", format_name(request.other_format), " ", hex(request.other_scales), " ",
                hex(request.other_codes));
  return out;
}

ConformRequest parse_request(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  check(!words.empty(), ErrorCode::invalid_argument, kOp,
        "got an empty line; expected convert, dequantize or dot");
  ConformRequest out;
  if (words[0] == kKinds[0]) {
    check_count(words.size(), 3, line);
    out = {.kind = ConformKind::convert,
           .format = parse_format(words[1]),
           .values = floats_of(words[2])};
    check(!out.values.empty() && out.values.size() % kMxBlockSize == 0, ErrorCode::invalid_argument,
          kOp, "got ", out.values.size(), " values; expected blocks of 32");
  } else if (words[0] == kKinds[1] || words[0] == kKinds[2]) {
    const bool dot = words[0] == kKinds[2];
    check_count(words.size(), dot ? 7 : 4, line);
    out = {.kind = dot ? ConformKind::dot : ConformKind::dequantize,
           .format = parse_format(words[1]),
           .scales = bytes_of(words[2]),
           .codes = bytes_of(words[3])};
    check_blocks(out.scales, out.codes);
    if (dot) {
      out.other_format = parse_format(words[4]);
      out.other_scales = bytes_of(words[5]);
      out.other_codes = bytes_of(words[6]);
      check_blocks(out.other_scales, out.other_codes);
      check(out.other_scales.size() == out.scales.size(), ErrorCode::invalid_argument, kOp,
            "got vectors of ", out.scales.size(), " and ", out.other_scales.size(),
            " blocks; expected as many");
    }
  } else {
    fail(ErrorCode::invalid_argument, kOp, "got '", shown(words[0], 40),
         "'; expected convert, dequantize or dot");
  }
  return out;
}

std::string reply_line(const ConformReply& reply) {
  if (!reply.not_offered.empty()) return "skip " + reply.not_offered;
  if (!reply.values.empty()) return "ok " + hex(reply.values);
  return text("ok ", hex(reply.scales), " ", hex(reply.codes));
}

ConformReply parse_reply(std::string_view line, const ConformRequest& request) {
  const std::vector<std::string_view> words = words_of(line);
  ConformReply out;
  if (!words.empty() && words[0] == "skip") {
    const std::size_t begin = std::min(line.find("skip") + 5, line.size());
    out.not_offered = shown(line.substr(begin), 100);
    if (out.not_offered.empty()) out.not_offered = "it says no reason";
    return out;
  }
  check(!words.empty() && words[0] == "ok", ErrorCode::invalid_argument, kOp, "got the reply '",
        shown(line, 60), "'; expected 'ok' and hexadecimal numbers, or 'skip' and a reason");
  const bool converts = request.kind == ConformKind::convert;
  check_count(words.size(), converts ? 3 : 2, line);
  if (converts) {
    out.scales = bytes_of(words[1]);
    out.codes = bytes_of(words[2]);
  } else {
    out.values = floats_of(words[1]);
  }
  return out;
}

}  // namespace octavo
