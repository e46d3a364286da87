#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "octavo/model/eval/token_sums_internal.h"

namespace octavo::eval {
namespace {

constexpr std::size_t kLanes = 8;  // several vectors' worth of sums that do not wait for each other

// All bits set where a > b, both below 2^63. By integers: of a comparison of f64 compilers make a
// branch or a boolean, and then no vectors of the loop around it.
inline std::uint64_t mask_above(std::uint64_t a, std::uint64_t b) { return 0 - ((b - a) >> 63); }

inline std::uint64_t magnitude_of(double x) {
  return std::bit_cast<std::uint64_t>(x) & (~std::uint64_t{0} >> 1);
}

inline double chosen(std::uint64_t mask, double a, double b) {
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(a) & mask) |
                               (std::bit_cast<std::uint64_t>(b) & ~mask));
}

// exp(x) of x <= 0; 0 below -700, which is nothing beside a sum of at least one.
// exp(x) = 2^k exp(r) with |r| <= ln(2) / 2. The series of degree 11 leaves out
// r^12 / 12! < 0.3466^12 / 4.8e8 = 6.3e-15. Additions and products alone: any CPU has the same
// bits, and the compiler vectorizes the loop around it.
inline double exp_of(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  // ln(2) in two parts; the first has zeros at its end, so that k times it is exact.
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRounder = 0x1.8p+52;  // adding it rounds to a whole number, in the low bits
  constexpr auto kMost = std::bit_cast<std::uint64_t>(700.0);
  constexpr auto kInf = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  const std::uint64_t magnitude = magnitude_of(x);
  // Not of NaN, which stays.
  const std::uint64_t is_nothing = mask_above(magnitude, kMost) & ~mask_above(magnitude, kInf);
  x = chosen(is_nothing, -700.0, x);
  const double shifted = x * kLog2E + kRounder, k = shifted - kRounder;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  const double r2 = r * r, r4 = r2 * r2;
  const double p0 = (1.0 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  const double p1 = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  const double p2 =
      (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800));
  const double p = p0 + r4 * (p1 + r4 * p2);
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) +
                                             (std::bit_cast<std::uint64_t>(shifted) << 52));
  return chosen(is_nothing, 0.0, power);
}

double total_of(const std::array<double, kLanes>& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// The largest, NaN left out; -inf where there is none.
float largest_of(const float* values, std::size_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l)
      lanes[l] = values[i + l] > lanes[l] ? values[i + l] : lanes[l];
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

using Terms = std::array<double, static_cast<std::size_t>(kLogitBlock)>;

// exp(value - largest) of each, and their sum.
double exps_of(const float* values, std::size_t count, double largest, Terms& terms) {
  if (largest == -std::numeric_limits<double>::infinity())
    largest = 0.0;  // all of them -inf, or NaN
  for (std::size_t i = 0; i < count; ++i)
    terms[i] = exp_of(static_cast<double>(values[i]) - largest);
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += terms[i + l];
  for (; i < count; ++i) lanes[0] += terms[i];
  return total_of(lanes);
}

// The sum of terms * (original - model).
double weighted_difference(const Terms& terms, const float* original, const float* model,
                           std::size_t count) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  const auto term = [&](std::size_t at) {
    const double product =
        terms[at] * (static_cast<double>(original[at]) - static_cast<double>(model[at]));
    // 0 also where both are -inf. NaN is above zero here.
    return chosen(mask_above(magnitude_of(terms[at]), 0), product, 0.0);
  };
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (; i < count; ++i) lanes[0] += term(i);
  return total_of(lanes);
}

// A new largest logit rescales what was summed before; the factor by which it does.
double take_largest(TokenSums& sums, const float* logits, std::size_t count,
                    std::int64_t first_id) {
  const float largest = largest_of(logits, count);
  if (!(static_cast<double>(largest) > sums.largest)) return 1.0;
  const double factor = sums.sum == 0.0 ? 0.0 : exp_of(sums.largest - static_cast<double>(largest));
  sums.largest = static_cast<double>(largest);
  sums.top =
      static_cast<std::int32_t>(first_id + (std::find(logits, logits + count, largest) - logits));
  sums.sum *= factor;
  return factor;
}

}  // namespace

void add_logits(std::span<const float* const> logits, std::span<TokenSums* const> sums,
                std::int64_t first_id, std::int64_t count, std::int32_t target,
                bool against_first) {
  Terms terms;
  for (std::int64_t at = 0; at < count; at += kLogitBlock) {
    const auto block = static_cast<std::size_t>(std::min(kLogitBlock, count - at));
    const std::int64_t id = first_id + at;
    const bool has_target = target >= id && target < id + static_cast<std::int64_t>(block);
    // Models from the last to the first: the terms that remain are the first model's.
    for (std::size_t model = logits.size(); model-- > 0;) {
      TokenSums& own = *sums[model];
      const float* const values = logits[model] + at;
      const double factor = take_largest(own, values, block, id);
      if (model == 0 && against_first)
        for (std::size_t other = 1; other < sums.size(); ++other) sums[other]->divergence *= factor;
      own.sum += exps_of(values, block, own.largest, terms);
      if (has_target) own.target = static_cast<double>(values[target - id]);
    }
    if (!against_first) continue;
    for (std::size_t other = 1; other < logits.size(); ++other)
      sums[other]->divergence +=
          weighted_difference(terms, logits[0] + at, logits[other] + at, block);
  }
}

double divergence_of(const TokenSums& original, const TokenSums& model) {
  const double kl =
      model.divergence / original.sum + (model.log_normalizer() - original.log_normalizer());
  return kl < 0.0 ? 0.0 : kl;
}

}  // namespace octavo::eval
