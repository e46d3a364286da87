#include "octavo/model/tokenizer/token_decoder_internal.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/byte_characters_internal.h"
#include "octavo/model/tokenizer/pre_tokenizer_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::string_view kBad = "\uFFFD";

// How many bytes of a sequence that begins a character, and is cut short or wrong, are replaced
// together: the longest that could have been the beginning of one (Unicode 3.9, "maximal subpart").
std::size_t maximal_subpart(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t wanted = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 1;
  std::size_t have = 1;
  for (; have < wanted && have < text.size(); ++have) {
    unsigned char low = 0x80, high = 0xBF;
    if (have == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (byte(have) < low || byte(have) > high) break;
  }
  return have;
}

std::string with_bad_bytes_replaced(std::string_view bytes) {
  std::string out;
  for (;;) {
    const std::size_t bad = find_bad_utf8(bytes);
    if (bad == std::string_view::npos) return out += bytes;
    out += bytes.substr(0, bad);
    out += kBad;
    bytes.remove_prefix(bad);
    bytes.remove_prefix(maximal_subpart(bytes));
  }
}

// The byte of "<0x0A>".
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  // As Rust reads numbers, a sign may stand before a digit.
  for (std::size_t i = token[3] == '+' ? 4 : 3; i < 5; ++i) {
    const char c = token[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

}  // namespace

TokenDecoder::TokenDecoder(const Part& part) {
  each_of_sequence(part, "decoders", [&](const Part& one) { add(one); });
  check_steps(steps_.size(), "decoders");
}

void TokenDecoder::add(const Part& part) {
  const std::string_view type = part.type();
  if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Replace") {
    steps_.emplace_back(Replace{Pattern(part["pattern"]), std::string(part["content"].string())});
  } else if (type == "Strip") {
    constexpr std::int64_t kMost = 1 << 20;
    steps_.emplace_back(Strip{std::string(part["content"].string()),
                              static_cast<std::size_t>(part["start"].integer(kMost)),
                              static_cast<std::size_t>(part["stop"].integer(kMost))});
    if (std::get<Strip>(steps_.back()).character.empty()) part["content"].wrong("a character");
  } else if (type == "Metaspace") {
    steps_.emplace_back(
        Metaspace{metaspace_replacement(part), parse_prepend_scheme(part) != PrependScheme::never});
  } else {
    part.unknown("a decoder of the kind",
                 "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence");
  }
}

std::string TokenDecoder::decode(Tokens tokens, MatchMemory& memory) const {
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  const GrowthLimit limit(bytes);
  for (const Step& step : steps_)
    tokens = std::visit(
        [&](const auto& one) { return apply(one, std::move(tokens), memory, limit); }, step);
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (steps_.empty() && i > 0) out += ' ';
    out += tokens[i];
  }
  return out;
}

TokenDecoder::Tokens TokenDecoder::apply(const ByteLevel&, Tokens tokens, MatchMemory&,
                                         const GrowthLimit&) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += from_byte_characters(token).value_or(token);
  return {with_bad_bytes_replaced(bytes)};
}

// Bytes one after another are a text together, or each U+FFFD.
TokenDecoder::Tokens TokenDecoder::apply(const ByteFallback&, Tokens tokens, MatchMemory&,
                                         const GrowthLimit&) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (find_bad_utf8(bytes) == std::string_view::npos) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(kBad));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

TokenDecoder::Tokens TokenDecoder::apply(const Fuse&, Tokens tokens, MatchMemory&,
                                         const GrowthLimit&) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return {std::move(all)};
}

TokenDecoder::Tokens TokenDecoder::apply(const Replace& step, Tokens tokens, MatchMemory& memory,
                                         const GrowthLimit& limit) {
  std::size_t bytes = 0;  // of the tokens before
  for (std::string& token : tokens) {
    if (token.empty()) continue;  // where nothing is matched
    std::string out;
    std::size_t done = 0;
    step.pattern.each(token, memory, [&](std::size_t begin, std::size_t end) {
      out.append(token, done, begin - done);
      out += step.text;
      limit.check_bytes(bytes + out.size());
      done = end;
    });
    out.append(token, done);
    token = std::move(out);
    bytes += token.size();
  }
  return tokens;
}

TokenDecoder::Tokens TokenDecoder::apply(const Strip& step, Tokens tokens, MatchMemory&,
                                         const GrowthLimit&) {
  for (std::string& token : tokens) {
    std::string_view text = token;
    std::size_t taken = 0;
    for (; taken < step.begin && text.starts_with(step.character); ++taken)
      text.remove_prefix(step.character.size());
    for (std::size_t i = 0; i < step.end && text.ends_with(step.character); ++i)
      text.remove_suffix(step.character.size());
    token = std::string(text);
  }
  return tokens;
}

TokenDecoder::Tokens TokenDecoder::apply(const Metaspace& step, Tokens tokens, MatchMemory&,
                                         const GrowthLimit&) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view by = i == 0 && step.drops_first ? "" : " ";
    std::string out;
    std::size_t done = 0;
    for (std::size_t at; (at = tokens[i].find(step.replacement, done)) != std::string::npos;
         done = at + step.replacement.size()) {
      out.append(tokens[i], done, at - done);
      out += by;
    }
    out.append(tokens[i], done);
    tokens[i] = std::move(out);
  }
  return tokens;
}

}  // namespace octavo::tokenizer
