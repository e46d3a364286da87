// Scale policies `percentile` and those that try scales (mse, four_over_six, modelopt_sweep, wmse):
// which rank the percentile is, which candidate scales a search tries, and the sum of squared
// errors by which it compares them, in the order of operations that gives every backend the same
// bits (docs/numerics/scales.md). Definitions only; backends do the search.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/scale/tile_scale.h"

namespace octavo {

// The 0-based rank, in ascending order of n magnitudes, that percentile p in (0, 100] stands for:
// nearest rank, ceil(p n / 100) counted from one, so p = 100 is the largest. p is the decimal that
// it was written as: 55 % of 100 values are 55, and 99.9 % of 41000 are 40959, though the doubles
// say a little more. Of at most half an ulp each in p, in the product and in the quotient a result
// is less than 2^-51 of itself above the exact one: so much is no part of another value.
OCTAVO_HD constexpr std::int64_t percentile_rank(std::int64_t n, double p) {
  const double exact = p * static_cast<double>(n) / 100.0;
  auto rank = static_cast<std::int64_t>(exact);
  if (exact - static_cast<double>(rank) > exact * 0x1p-51) ++rank;  // ceil
  return rank < 1 ? 0 : rank > n ? n - 1 : rank - 1;
}

// Radix selection of a rank, from the top bits of magnitudes: how many of a digit to tell apart at
// a time.
inline constexpr int kRankDigitBits = 11, kRankTopShift = 22;
inline constexpr int kRankDigits = 1 << kRankDigitBits;
struct RankDigit {
  std::uint32_t prefix = 0;  // the bits found so far, above the digit
  int shift = kRankTopShift;
};
OCTAVO_HD constexpr bool has_prefix(const RankDigit& digit, std::uint32_t bits) {
  return digit.shift == kRankTopShift ||
         bits >> (digit.shift + kRankDigitBits) == digit.prefix >> (digit.shift + kRankDigitBits);
}
OCTAVO_HD constexpr std::uint32_t digit_of(const RankDigit& digit, std::uint32_t bits) {
  return bits >> digit.shift & static_cast<std::uint32_t>(kRankDigits - 1);
}

// The digit that the value of a rank has, from counts of all digits; what is left of the rank is
// among the values with that digit.
OCTAVO_HD constexpr std::uint32_t digit_of_rank(const std::int64_t* counts, std::int64_t& rank) {
  std::uint32_t digit = 0;
  while (digit < static_cast<std::uint32_t>(kRankDigits) - 1 && rank >= counts[digit])
    rank -= counts[digit++];
  return digit;
}

// ---- The search is for a tile with a finite amax that is neither zero nor below min_amax;
// ModelOpt's takes zeros as it takes all values.
OCTAVO_HD constexpr bool is_searched(AmaxPolicy policy, const ScaleSpec& spec, float amax) {
  if (policy == AmaxPolicy::modelopt_sweep) return is_finite(amax);
  return is_finite(amax) && amax > 0.0F && amax >= spec.min_amax;
}

// Two levels: the code of the amax, then those from two below it to six above it. Powers of two:
// the largest at or below the amax, then the next where the amax saturates, whatever the rule.
// Quotients: of the amax itself, then of 6/16, 7/16 ... 27/16 of it.
inline constexpr int kFitCodesBelow = 2, kFitCodesAbove = 6;
inline constexpr int kFitLeastSixteenths = 6, kFitMostSixteenths = 27;
inline constexpr int kFitSixteenths = kFitMostSixteenths - kFitLeastSixteenths + 1;
// ModelOpt's sweep: all codes of e4m3 from 1 on.
inline constexpr int kSweptCodes = static_cast<int>(e4m3fn.max_field());
inline constexpr int kMaxFitCandidates = kSweptCodes;

OCTAVO_HD constexpr int fit_candidates(AmaxPolicy policy, const ScaleSpec& spec) {
  if (policy == AmaxPolicy::four_over_six) return 2;
  if (policy == AmaxPolicy::modelopt_sweep) return kSweptCodes;
  if (spec.format == ScaleFormat::e4m3_f32) return kFitCodesBelow + 1 + kFitCodesAbove;
  return is_power_of_two_rule(spec.rule) ? 2 : kFitSixteenths;
}

// Candidate i of a list from `least` to `most` that begins with `first`.
OCTAVO_HD constexpr int fit_step(int i, int least, int first) {
  if (i == 0) return first;
  const int step = least + i - 1;
  return step < first ? step : step + 1;
}

// Scales of one level: candidate i is the scale of another amax, by another rule in one case only:
// above 2^127 no power of two is left, and of the largest f32 every rule but floor makes 2^128.
struct FitAmax {
  ScaleSpec spec;
  float amax;
};

// Does the amax lie half a step or more above the largest value, under the power of two that is
// candidate 0? Elsewhere the next power is no candidate: its values up to the largest are all among
// those of candidate 0.
OCTAVO_HD constexpr std::uint32_t fit_next_power_from(const Format& element) {  // a mantissa
  const int kept = element.twos_complement ? element.magnitude_bits() - 1
                                           : static_cast<int>(element.mantissa_bits);
  return binade_of(static_cast<float>(max_value(element))).mantissa + (1u << (22 - kept));
}
OCTAVO_HD constexpr bool next_power_is_tried(const ScaleSpec& spec, const Format& element,
                                             float amax) {
  return spec.margin != 0 || binade_of(amax).mantissa >= fit_next_power_from(element);
}

OCTAVO_HD constexpr FitAmax fit_amax(const ScaleSpec& spec, const Format& element, float amax,
                                     int i) {
  if (is_power_of_two_rule(spec.rule)) {
    const int up = i > 0 && next_power_is_tried(spec, element, amax) ? 1 : 0;
    const int exponent = binade_of(amax).exponent + up;
    if (exponent <= 127) return {spec, f32_power_of_two(exponent)};
    FitAmax top{spec, kMaxFloat};
    if (spec.rule == ScaleRule::floor) top.spec.rule = ScaleRule::ceil;
    return top;
  }
  const int sixteenths = fit_step(i, kFitLeastSixteenths, 16);
  const float part = amax * (static_cast<float>(sixteenths) * 0x1p-4F);
  return {spec, part > kMaxFloat ? kMaxFloat : part > 0.0F ? part : amax};
}

// 4 of E2M1 times this amax's scale is `amax`.
OCTAVO_HD constexpr float amax_for_four(float amax) {
  const float larger = amax * 1.5F;
  return larger > kMaxFloat ? kMaxFloat : larger;
}

// The scale by which ModelOpt's sweep judges a code, from the tensor's amax; values are divided by
// it. It is not to the last bit that of the code, which the tile gets (fit_settled).
OCTAVO_HD constexpr TileScale swept_scale(std::uint32_t code, float tensor_amax) {
  const float part = static_cast<float>(decode<e4m3fn>(code)) / 448.0F;
  const float scale = part * tensor_amax / 6.0F;
  const float safe = scale == 0.0F ? 1.0F : scale;
  return {code, safe, safe};
}

OCTAVO_HD constexpr TileScale fit_candidate(AmaxPolicy policy, const ScaleSpec& spec,
                                            const Format& element, float amax, float tensor_scale,
                                            float tensor_amax, int i) {
  if (policy == AmaxPolicy::modelopt_sweep)
    return swept_scale(static_cast<std::uint32_t>(i + 1), tensor_amax);
  if (policy == AmaxPolicy::four_over_six)
    return tile_scale(spec, element, i == 0 ? amax : amax_for_four(amax), tensor_scale,
                      tensor_amax);
  if (spec.format != ScaleFormat::e4m3_f32) {
    const FitAmax other = fit_amax(spec, element, amax, i);
    return tile_scale(other.spec, element, other.amax);
  }
  const TileScale own = tile_scale(spec, element, amax, tensor_scale, tensor_amax);
  constexpr int most = static_cast<int>(e4m3fn.max_field());
  const int code = static_cast<int>(own.bits);
  if (code < 1 || code > most) return own;  // peers' zero and NaN
  const int other = code + fit_step(i, -kFitCodesBelow, 0);
  return scale_of_code(spec,
                       static_cast<std::uint32_t>(other < 1      ? 1
                                                  : other > most ? most
                                                                 : other),
                       tensor_scale);
}

// The scale of a tile, when a candidate was chosen.
OCTAVO_HD constexpr TileScale fit_settled(AmaxPolicy policy, const ScaleSpec& spec,
                                          const TileScale& chosen, float tensor_scale) {
  if (policy != AmaxPolicy::modelopt_sweep) return chosen;
  // Of a tensor of zeros ModelOpt makes 1 / 0, limited to 448.
  return scale_of_code(spec, tensor_scale == 0.0F ? e4m3fn.max_field() : chosen.bits, tensor_scale);
}

// The scale of a tile whose every error is infinite or NaN: the amax's own; ModelOpt keeps the
// first code.
OCTAVO_HD constexpr TileScale fit_fallback(AmaxPolicy policy, const ScaleSpec& spec,
                                           const TileScale& own, float tensor_scale) {
  if (policy != AmaxPolicy::modelopt_sweep) return own;
  return fit_settled(policy, spec, {.bits = 1}, tensor_scale);
}

// What is squared: in units of the scale, or as ModelOpt has it.
template <typename Real>
OCTAVO_HD constexpr Real fit_difference(AmaxPolicy policy, Real x, Real u, Real value,
                                        Real factor) {
  if (policy != AmaxPolicy::modelopt_sweep) return u - value;
  const Real back = value * factor;
  return x - back;
}

// Squares of e = u - value(code), in f32 (f64 where values are f64), by wmse times the weight of
// the column: a row of the tile is cut into runs of kFitRun, and those of a run are summed in
// kFitLanes sums, that of column c of the run in sum c % kFitLanes. Sums of runs are added in f64,
// in row-major order.
inline constexpr int kFitRun = 128, kFitLanes = 16;

// A column of weight zero has no error, also where the square is infinite or NaN.
template <typename Real>
OCTAVO_HD constexpr Real fit_weighted(Real square, float weight) {
  return weight == 0.0F ? Real{0} : square * static_cast<Real>(weight);
}

template <typename Real>
struct FitRun {
  Real lanes[kFitLanes] = {};

  OCTAVO_HD constexpr void add(std::int64_t col, Real e, float weight = 1.0F) {
    const Real square = e * e;
    lanes[col % kFitLanes] = lanes[col % kFitLanes] + fit_weighted(square, weight);
  }
  // The upper half is added to the lower one until four are left, and those by neighbours.
  [[nodiscard]] OCTAVO_HD constexpr double sum() const {
    Real left[kFitLanes / 2] = {};
    for (int i = 0; i < 8; ++i) left[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; ++i) left[i] = left[i] + left[i + 4];
    return static_cast<double>((left[0] + left[1]) + (left[2] + left[3]));
  }
};

// What is compared; the first of equals wins, and NaN never does.
OCTAVO_HD constexpr double fit_error(AmaxPolicy policy, double squares, float scale) {
  if (policy == AmaxPolicy::modelopt_sweep) return squares;
  const auto wide = static_cast<double>(scale);
  return squares * (wide * wide);
}

}  // namespace octavo
