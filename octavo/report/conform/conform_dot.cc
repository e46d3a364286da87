// Clauses 6.1 and 6.2: the product of two vectors of blocks.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/report/conform/conform_internal.h"

namespace octavo::conforming {
namespace {

constexpr std::size_t kSize = kMxBlockSize;
using Bytes = std::vector<std::uint8_t>;

struct Vector {
  Bytes scales, codes;
};

ConformRequest product_of(const Element& a, const Vector& x, const Element& b, const Vector& y) {
  return {.kind = ConformKind::dot,
          .format = a.format,
          .scales = x.scales,
          .codes = x.codes,
          .other_format = b.format,
          .other_scales = y.scales,
          .other_codes = y.codes};
}

// Codes of small integers (or halves), whose products and sums every order and precision of f32
// has exactly.
Vector small_integers(const Element& element, std::size_t blocks, std::uint32_t seed) {
  Vector out{.scales = Bytes(blocks), .codes = Bytes(blocks * kSize)};
  for (std::size_t b = 0; b < blocks; ++b)
    out.scales[b] = static_cast<std::uint8_t>(126 + (b + seed) % 3);
  const double largest = std::min(6.0, max_value(element.format));
  const double unit = largest < 2 ? 0.25 : 0.5;
  const int steps = static_cast<int>(largest / unit);
  for (std::size_t i = 0; i < out.codes.size(); ++i) {
    seed = seed * 1664525U + 1013904223U;
    const int step = static_cast<int>(seed >> 16) % (2 * steps + 1) - steps;
    out.codes[i] = nearest_code(element.format, step * unit);
  }
  return out;
}

struct Exact {
  double sum = 0, magnitudes = 0;
};
Exact exact_of(const ConformRequest& request) {
  Exact out;
  for (std::size_t i = 0; i < request.codes.size(); ++i) {
    const double product = scale_value(request.scales[i / kSize]) *
                           decode(request.format, request.codes[i]) *
                           scale_value(request.other_scales[i / kSize]) *
                           decode(request.other_format, request.other_codes[i]);
    out.sum += product;
    out.magnitudes += std::fabs(product);
  }
  return out;
}

void check_exact(const ConformPeer& peer, const Element& a, const Element& b, std::size_t blocks,
                 ConformReport& report) {
  const bool one = blocks == 1;
  Check check(report, one ? "6.1" : "6.2",
              one ? "Dot of exact sums" : "DotGeneral of exact sums, four blocks",
              text(a.name, " x ", b.name));
  for (std::uint32_t seed = 1; seed <= 16; ++seed) {
    const ConformRequest request =
        product_of(a, small_integers(a, blocks, seed), b, small_integers(b, blocks, seed + 100));
    ConformReply reply;
    if (!ask(peer, request, reply, check)) return;
    const double wanted = exact_of(request).sum;
    check.expect(static_cast<double>(reply.values[0]) == wanted, [&] {
      return text("it is ", number_text(static_cast<double>(reply.values[0])), "; expected ",
                  number_text(wanted));
    });
  }
}

void check_nan(const ConformPeer& peer, const Element& a, const Element& b, ConformReport& report) {
  Check check(report, "6.1", "a NaN scale makes the product NaN", text(a.name, " x ", b.name));
  for (const bool first : {true, false}) {
    Vector x = small_integers(a, 2, 1), y = small_integers(b, 2, 2);
    (first ? x : y).scales[1] = 255;
    ConformReply reply;
    if (!ask(peer, product_of(a, x, b, y), reply, check)) return;
    check.expect(std::isnan(reply.values[0]), [&] {
      return text("with one in the ", first ? "first" : "second", " vector it is ",
                  number_text(static_cast<double>(reply.values[0])));
    });
  }
}

// The precision of sums is left to implementations: how far it is from the exact sum, in units of
// 2^-24 of the sum of magnitudes.
void check_precision(const ConformPeer& peer, const Element& a, const Element& b,
                     ConformReport& report) {
  Check check(report, "6.2", "precision of sums", text(a.name, " x ", b.name));
  double worst = 0;
  for (std::uint32_t seed = 1; seed <= 16; ++seed) {
    constexpr std::size_t kBlocks = 8;
    Vector x{.scales = Bytes(kBlocks), .codes = Bytes(kBlocks * kSize)}, y = x;
    std::uint32_t state = seed;
    for (const auto& [element, vector] : {std::pair{&a, &x}, std::pair{&b, &y}}) {
      for (std::uint8_t& scale : vector->scales) {
        state = state * 1664525U + 1013904223U;
        scale = static_cast<std::uint8_t>(117 + (state >> 20) % 20);
      }
      for (std::uint8_t& code : vector->codes) {
        do {
          state = state * 1664525U + 1013904223U;
          code = static_cast<std::uint8_t>(state >> 16 & element->format.code_mask());
        } while (!std::isfinite(decode(element->format, code)));
      }
    }
    const ConformRequest request = product_of(a, x, b, y);
    ConformReply reply;
    if (!ask(peer, request, reply, check)) return;
    const Exact exact = exact_of(request);
    const auto got = static_cast<double>(reply.values[0]);
    if (!std::isfinite(got))
      check.expect(false, [&] {
        return text("it is ", number_text(got), "; expected about ", number_text(exact.sum));
      });
    worst = std::max(worst, std::fabs(got - exact.sum) / (exact.magnitudes * 0x1p-24));
  }
  check.choice(worst <= 1     ? "as good as f32 sums, rounded once"
               : worst <= 256 ? "that of f32 sums"
                              : text("up to ", number_text(std::round(worst)),
                                     " times 2^-24 of the sum of magnitudes"));
}

}  // namespace

void check_products(const ConformPeer& peer, ConformReport& report) {
  const std::vector<Element>& all = elements();
  std::vector<std::pair<const Element*, const Element*>> pairs;
  for (const Element& element : all) pairs.emplace_back(&element, &element);
  pairs.emplace_back(&all[0], &all[1]);  // e4m3fn x e5m2
  pairs.emplace_back(&all[0], &all[4]);  // e4m3fn x e2m1fn
  for (const auto& [a, b] : pairs) {
    check_exact(peer, *a, *b, 1, report);
    check_exact(peer, *a, *b, 4, report);
    check_nan(peer, *a, *b, report);
    check_precision(peer, *a, *b, report);
  }
}

}  // namespace octavo::conforming
