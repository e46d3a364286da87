// Clause 6.3: from values to a block.
#include <algorithm>
#include <cstdint>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/report/conform/conform_internal.h"

namespace octavo::conforming {
namespace {

constexpr std::size_t kSize = kMxBlockSize;

// Numbers from a counter, the same on every machine.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  // Evenly spread over [-1, 1), of 24 bits.
  double next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state_ >> 40) / (1 << 23) - 1;
  }

 private:
  std::uint64_t state_;
};

// Blocks whose largest magnitude is 2^exponent times 1, 1 + 1/16 ... up to the next power of two,
// the rest spread below it; many exponents.
std::vector<float> usual_blocks() {
  std::vector<float> out;
  Numbers numbers(1);
  for (const int exponent : {-100, -30, -8, -1, 0, 1, 5, 30, 100})
    for (int sixteenth = 0; sixteenth < 16; ++sixteenth) {
      const double most = std::ldexp(1 + sixteenth / 16.0, exponent);
      const std::size_t place = static_cast<std::size_t>(sixteenth * 5 + exponent + 200) % kSize;
      for (std::size_t i = 0; i < kSize; ++i)
        out.push_back(static_cast<float>(i == place ? most : most * numbers.next()));
      if (sixteenth % 2 == 1) out[out.size() - kSize + place] *= -1;
    }
  return out;
}

// Every midpoint between two neighbouring values, and the values, in blocks that begin with the
// largest power of two: the scale is one.
std::vector<float> ties(const Element& element) {
  std::vector<double> values;
  for (std::uint32_t code = 0; code <= element.format.code_mask(); ++code) {
    const double value = decode(element.format, code);
    if (std::isfinite(value) && value >= 0) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  std::vector<double> wanted;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    wanted.push_back(values[i]);
    wanted.push_back((values[i] + values[i + 1]) / 2);
  }
  std::vector<float> out;
  const double top = std::ldexp(1.0, element.top_exponent);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (out.size() % kSize == 0) out.push_back(static_cast<float>(top));
    // What lies above the power of two would still have it for a scale.
    out.push_back(static_cast<float>(i % 2 == 0 ? wanted[i] : -wanted[i]));
  }
  while (out.size() % kSize != 0) out.push_back(0);
  return out;
}

double amax_of(const float* block) {
  double most = 0;
  for (std::size_t i = 0; i < kSize; ++i)
    most = std::max(most, std::fabs(static_cast<double>(block[i])));
  return most;
}

int wanted_scale(const Element& element, const float* block) {
  int exponent = 0;
  (void)std::frexp(amax_of(block), &exponent);  // amax in [2^(exponent - 1), 2^exponent)
  return std::clamp(exponent - 1 - element.top_exponent + 127, 0, 254);
}

void judge_scales(const Element& element, const ConformRequest& request, const ConformReply& reply,
                  Check& check) {
  for (std::size_t b = 0; b < reply.scales.size(); ++b) {
    const int wanted = wanted_scale(element, &request.values[b * kSize]);
    check.expect(reply.scales[b] == wanted, [&] {
      return text("of a block whose largest is ", number_text(amax_of(&request.values[b * kSize])),
                  " it is 2^", int{reply.scales[b]} - 127, "; expected 2^", wanted - 127);
    });
  }
}

// Elements by the scale that the implementation chose, so that one deviation is not told twice.
// `what`: 0 those within the range, 1 those that are clamped.
void judge_elements(const Element& element, const ConformRequest& request,
                    const ConformReply& reply, bool clamped, Check& check) {
  const double most = max_value(element.format), lowest = lowest_value(element.format);
  for (std::size_t i = 0; i < request.values.size(); ++i) {
    const std::uint8_t scale = reply.scales[i / kSize];
    if (scale == 255) continue;
    const double u = static_cast<double>(request.values[i]) / scale_value(scale);
    const bool beyond = u > most || u < lowest;
    if (beyond != clamped) continue;
    const std::uint8_t code = reply.codes[i];
    const double got = decode(element.format, code);
    const double wanted = decode(element.format, nearest_code(element.format, u));
    // The lowest integer may be left unused (5.3.4).
    const bool unused = element.format.twos_complement && wanted == lowest && got == -most;
    const bool zero = wanted == 0 && got == 0;
    check.expect(got == wanted || unused || zero, [&] {
      return text(number_text(u), " becomes ", number_text(got), "; expected ",
                  number_text(wanted));
    });
  }
}

void check_usual(const ConformPeer& peer, const Element& element, ConformReport& report) {
  const ConformRequest request{
      .kind = ConformKind::convert, .format = element.format, .values = usual_blocks()};
  ConformReply reply;
  const std::string name(element.name);
  {
    Check check(report, "6.3", "the scale of a block", name);
    if (!ask(peer, request, reply, check)) return;
    judge_scales(element, request, reply, check);
  }
  Check rounded(report, "6.3", "elements are rounded to nearest", name);
  judge_elements(element, request, reply, false, rounded);
  Check clamped(report, "6.3", "elements beyond the largest are clamped", name);
  judge_elements(element, request, reply, true, clamped);
}

void check_ties(const ConformPeer& peer, const Element& element, ConformReport& report) {
  const ConformRequest request{
      .kind = ConformKind::convert, .format = element.format, .values = ties(element)};
  Check check(report, "6.3", "ties go to even, subnormal elements are kept",
              std::string(element.name));
  ConformReply reply;
  if (!ask(peer, request, reply, check)) return;
  judge_elements(element, request, reply, false, check);
}

// Integers: a block that reaches beyond both ends of what is symmetric. The clause leaves it to
// implementations whether the lowest number, which has no positive one beside it, is used.
void check_lowest(const ConformPeer& peer, const Element& element, ConformReport& report) {
  const double lowest = lowest_value(element.format), most = max_value(element.format);
  if (lowest >= -most) return;
  constexpr float kNearlyTwo = 0x1.FFFFFEp0F;
  ConformRequest request{.kind = ConformKind::convert,
                         .format = element.format,
                         .values = std::vector<float>(kSize, 0.5F)};
  request.values[0] = -kNearlyTwo;
  request.values[1] = kNearlyTwo;
  Check check(report, std::string(element.clause), "the ends of the range",
              std::string(element.name));
  ConformReply reply;
  if (!ask(peer, request, reply, check)) return;
  judge_elements(element, request, reply, false, check);
  judge_elements(element, request, reply, true, check);
  const double got = decode(element.format, reply.codes[0]);
  check.choice(got == lowest  ? text(number_text(lowest), " is used")
               : got == -most ? text(number_text(lowest), " is not used: the range is symmetric")
                              : "the scale leaves the ends unused");
}

std::string described(const Element& element, const ConformReply& reply, std::size_t at) {
  if (reply.scales[0] == 255) return "the scale is NaN";
  const double value = scale_value(reply.scales[0]) * decode(element.format, reply.codes[at]);
  return text("scale 2^", int{reply.scales[0]} - 127, ", value ", number_text(value));
}

// What the standard leaves open: one block of each.
void check_choices(const ConformPeer& peer, const Element& element, ConformReport& report) {
  struct Open {
    std::string_view what;
    float first, rest;
  };
  for (const Open& one :
       {Open{"a block of zeros", 0, 0}, Open{"a block with a NaN", std::nanf(""), 1},
        Open{"a block with an Inf", INFINITY, 1}, Open{"a block of subnormal f32", 0x1p-130F, 0},
        Open{"a block of the smallest f32", 0x1p-149F, 0}}) {
    Check check(report, "6.3", std::string(one.what), std::string(element.name));
    ConformRequest request{.kind = ConformKind::convert,
                           .format = element.format,
                           .values = std::vector<float>(kSize, one.rest)};
    request.values[0] = one.first;
    ConformReply reply;
    if (!ask(peer, request, reply, check)) return;
    check.choice(described(element, reply, 0));
  }
}

}  // namespace

void check_conversion(const ConformPeer& peer, const Element& element, ConformReport& report) {
  check_usual(peer, element, report);
  check_ties(peer, element, report);
  check_lowest(peer, element, report);
  check_choices(peer, element, report);
}

}  // namespace octavo::conforming
