// conform(): does an implementation do what OCP Microscaling Formats (MX) 1.0 says, clause by
// clause? The implementation is any callable that answers requests: octavo itself, a program behind
// pipes (octavo conform --exec), a Python function. docs/numerics/mx-conformance.md has the
// clauses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"

namespace octavo {

inline constexpr std::int64_t kMxBlockSize = 32;

enum class ConformKind : std::uint8_t {
  convert,     // values of whole blocks to scales and codes (clause 6.3)
  dequantize,  // scales and codes to values (clause 5.1)
  dot,         // the product of two vectors of as many blocks (clauses 6.1 and 6.2)
};

// One question. Codes are a byte each, in their low bits; scales are E8M0.
struct ConformRequest {
  ConformKind kind = ConformKind::convert;
  Format format{};              // of the elements; of dot those of the first vector
  std::vector<float> values{};  // convert: blocks * 32
  std::vector<std::uint8_t> scales{}, codes{};
  Format other_format{};  // dot: the second vector
  std::vector<std::uint8_t> other_scales{}, other_codes{};

  [[nodiscard]] std::int64_t blocks() const {
    return kind == ConformKind::convert ? static_cast<std::int64_t>(values.size()) / kMxBlockSize
                                        : static_cast<std::int64_t>(scales.size());
  }
};

struct ConformReply {
  std::string not_offered{};  // why the implementation does not do this; "": it does
  std::vector<std::uint8_t> scales{}, codes{};  // of convert
  std::vector<float> values{};                  // of dequantize; of dot one
};

using ConformPeer = std::function<ConformReply(const ConformRequest&)>;

enum class ConformVerdict : std::uint8_t {
  conforms,
  deviates,  // from what the standard requires
  chooses,   // what the standard leaves to implementations: `what` says what this one does
  not_offered,
};
[[nodiscard]] OCTAVO_API std::string_view name_of(ConformVerdict verdict);

// One check of one clause, for one element format.
struct ConformFinding {
  std::string clause;  // "6.3"
  std::string check;   // "the scale of a block"
  std::string format;  // "e4m3fn"; of a product "e4m3fn x e2m1fn"
  ConformVerdict verdict = ConformVerdict::conforms;
  std::int64_t cases = 0, deviations = 0;
  std::string what{};  // the first deviation, or the choice
};

struct OCTAVO_API ConformReport {
  std::vector<ConformFinding> findings;
  [[nodiscard]] std::int64_t count(ConformVerdict verdict) const;
};
[[nodiscard]] OCTAVO_API std::string json_of(const ConformReport& report);
// A line for each clause, check and outcome, formats that are alike together.
[[nodiscard]] OCTAVO_API std::string text_of(const ConformReport& report);

// Runs every check. A reply of the wrong length throws Error(invalid_argument); what the peer
// throws goes through.
[[nodiscard]] OCTAVO_API ConformReport conform(const ConformPeer& peer);

// octavo's own quantizer (rule floor), dequantizer and product.
[[nodiscard]] OCTAVO_API ConformReply octavo_conforms(const ConformRequest& request);

// The protocol of programs, a line for each request and each reply (docs/numerics/
// mx-conformance.md). Both throw Error(invalid_argument) that quotes what is wrong.
[[nodiscard]] OCTAVO_API std::string request_line(const ConformRequest& request);
[[nodiscard]] OCTAVO_API ConformRequest parse_request(std::string_view line);
[[nodiscard]] OCTAVO_API std::string reply_line(const ConformReply& reply);
[[nodiscard]] OCTAVO_API ConformReply parse_reply(std::string_view line,
                                                  const ConformRequest& request);
inline constexpr std::string_view kConformGreeting = "octavo-conform 1";

}  // namespace octavo
