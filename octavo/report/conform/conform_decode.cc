// Clauses 5.1 to 5.4: what scales and codes mean.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/report/conform/conform_internal.h"

namespace octavo::conforming {
namespace {

using Bytes = std::vector<std::uint8_t>;

ConformRequest blocks_of(const Element& element, Bytes scales, Bytes codes) {
  codes.resize(scales.size() * kMxBlockSize, 0);
  return {.kind = ConformKind::dequantize,
          .format = element.format,
          .scales = std::move(scales),
          .codes = std::move(codes)};
}

std::string example(const ConformRequest& request, std::size_t i, double got, double wanted) {
  return text("scale ", int{request.scales[i / kMxBlockSize]}, ", code ", int{request.codes[i]},
              " gives ", number_text(got), "; expected ", number_text(wanted));
}

// All codes at a scale of one.
void check_codes(const ConformPeer& peer, const Element& element, ConformReport& report) {
  Check check(report, std::string(element.clause), "values of all codes",
              std::string(element.name));
  const std::size_t count = element.format.code_mask() + std::size_t{1};
  Bytes codes(count);
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(i);
  const ConformRequest request =
      blocks_of(element, Bytes((count + kMxBlockSize - 1) / kMxBlockSize, 127), std::move(codes));
  ConformReply reply;
  if (!ask(peer, request, reply, check)) return;
  for (std::size_t i = 0; i < count; ++i) {
    const double wanted = decode(element.format, static_cast<std::uint32_t>(i));
    const auto got = static_cast<double>(reply.values[i]);
    // A minus zero may be any zero: the standard speaks of values.
    const bool good = wanted == 0 ? got == 0 : same(got, wanted);
    check.expect(good, [&] { return example(request, i, got, wanted); });
  }
}

// All scales, at the code of one.
void check_scales(const ConformPeer& peer, const Element& element, ConformReport& report) {
  Check check(report, "5.4.1", "values of all scales", std::string(element.name));
  Bytes scales(255), codes(255 * kMxBlockSize, nearest_code(element.format, 1.0));
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i);
  const ConformRequest request = blocks_of(element, std::move(scales), std::move(codes));
  ConformReply reply;
  if (!ask(peer, request, reply, check)) return;
  for (std::size_t i = 0; i < request.codes.size(); i += kMxBlockSize) {
    const double wanted = scale_value(request.scales[i / kMxBlockSize]);
    const auto got = static_cast<double>(reply.values[i]);
    check.expect(got == wanted, [&] { return example(request, i, got, wanted); });
  }
}

// A value is the product of scale and element; a NaN scale makes all of a block NaN.
void check_blocks(const ConformPeer& peer, const Element& element, ConformReport& report) {
  ConformReply reply;
  {
    Check check(report, "5.1", "values are scale times element", std::string(element.name));
    Bytes scales{100, 119, 126, 127, 128, 140}, codes;
    for (std::size_t i = 0; i < scales.size() * kMxBlockSize; ++i)
      codes.push_back(static_cast<std::uint8_t>((i * 37 + i / 7) & element.format.code_mask()));
    const ConformRequest request = blocks_of(element, std::move(scales), std::move(codes));
    if (!ask(peer, request, reply, check)) return;
    for (std::size_t i = 0; i < request.codes.size(); ++i) {
      const double wanted =
          scale_value(request.scales[i / kMxBlockSize]) * decode(element.format, request.codes[i]);
      const auto got = static_cast<double>(reply.values[i]);
      check.expect(wanted == 0 ? got == 0 : same(got, wanted),
                   [&] { return example(request, i, got, wanted); });
    }
  }
  Check check(report, "5.1", "a NaN scale makes all of a block NaN", std::string(element.name));
  Bytes codes(kMxBlockSize);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i & element.format.code_mask());
  const ConformRequest request = blocks_of(element, {255}, std::move(codes));
  if (!ask(peer, request, reply, check)) return;
  for (std::size_t i = 0; i < request.codes.size(); ++i)
    check.expect(std::isnan(reply.values[i]), [&] {
      return example(request, i, static_cast<double>(reply.values[i]), std::nan(""));
    });
}

// Beyond f32 the result is left to implementations.
void check_overflow(const ConformPeer& peer, const Element& element, ConformReport& report) {
  Check check(report, "5.1", "a value beyond f32", std::string(element.name));
  const double most = max_value(element.format);
  if (most < 2) {
    check.choice("none is: the largest element is below two");
    return;
  }
  ConformReply reply;
  const ConformRequest request =
      blocks_of(element, {254}, Bytes(kMxBlockSize, nearest_code(element.format, most)));
  if (!ask(peer, request, reply, check)) return;
  check.choice("it becomes " + number_text(static_cast<double>(reply.values[0])));
}

}  // namespace

void check_decoding(const ConformPeer& peer, const Element& element, ConformReport& report) {
  check_codes(peer, element, report);
  check_scales(peer, element, report);
  check_blocks(peer, element, report);
  check_overflow(peer, element, report);
}

}  // namespace octavo::conforming
