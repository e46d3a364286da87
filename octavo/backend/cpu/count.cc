// Counts come from a second rounding of the same elements under a policy that tells overflow apart:
// the field is rounded without a limit and compared with the largest one. It costs about as much as
// the portable encoder, and only callers who ask for counts pay it.
#include "octavo/backend/cpu/count.h"

#include <algorithm>

#include "octavo/backend/cpu/portable/portable_internal.h"
#include "octavo/backend/cpu/portable/portable_lanes.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

using portable::kPiece;
using portable::LanePlan;
using portable::LaneTraits;
using portable::mask_of;
using portable::select;
using portable::smaller;

template <typename Wide, Rounding kRounding>
Counts count_lanes(const Encoder& encoder, const Wide* values, std::int64_t n, std::uint64_t index) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kInf = ((Lane{1} << (Traits::kTop - Traits::kMantissa)) - 1) << Traits::kMantissa;
  const LanePlan<Wide> plan(encoder);
  const Format& format = encoder.format;
  const Lane limit[2] = {limit_field(format, false), limit_field(format, true)};
  // One step above the largest field already overflows: clamping there keeps huge values in range.
  Lane above[2];
  for (int s = 0; s < 2; ++s) above[s] = std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, limit_field(format, s) + 1)));
  Lane saturated = 0, flushed = 0, nan = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Lane random = 0;
    if constexpr (kRounding == Rounding::stochastic) {
      random = stochastic_draw(encoder.policy.seed, index + static_cast<std::uint64_t>(i), encoder.policy.stochastic_bits);
    }
    const Lane bits = std::bit_cast<Lane>(values[i]);
    const Lane magnitude = bits & (~Lane{0} >> 1);
    const Lane below_zero = mask_of<Lane>(bits != magnitude), negative = below_zero & plan.signed_mask;
    const Lane finite = smaller(magnitude, select(negative, above[1], above[0]));
    const Lane field = portable::round_field<Wide, kRounding>(plan, finite, negative, random);
    const Lane is_number = mask_of<Lane>(magnitude <= kInf), is_zero = mask_of<Lane>(magnitude == 0);
    const Lane outside = below_zero & ~is_zero & plan.negative_special;
    // Without zero a value below the smallest wraps around to a huge field: that is no overflow.
    const Lane wrapped = mask_of<Lane>(field > plan.code_mask + 1) & plan.zero_special;
    const Lane over = mask_of<Lane>(field > select(negative, limit[1], limit[0])) & ~wrapped;
    const Lane zeroed = mask_of<Lane>(field == 0) & ~is_zero & ~outside & ~plan.zero_special;
    saturated += 1 & is_number & (outside | over);
    flushed += 1 & is_number & zeroed;
    nan += 1 & ~is_number;
  }
  return {.saturated = static_cast<std::int64_t>(saturated),
          .flushed = static_cast<std::int64_t>(flushed),
          .nan = static_cast<std::int64_t>(nan)};
}

template <typename Wide>
Counts count_wide(const Encoder& encoder, const Wide* values, std::int64_t n, std::uint64_t index) {
  switch (encoder.policy.rounding) {
    case Rounding::nearest_even: return count_lanes<Wide, Rounding::nearest_even>(encoder, values, n, index);
    case Rounding::nearest_away: return count_lanes<Wide, Rounding::nearest_away>(encoder, values, n, index);
    case Rounding::toward_zero: return count_lanes<Wide, Rounding::toward_zero>(encoder, values, n, index);
    case Rounding::up: return count_lanes<Wide, Rounding::up>(encoder, values, n, index);
    case Rounding::down: return count_lanes<Wide, Rounding::down>(encoder, values, n, index);
    case Rounding::to_odd: return count_lanes<Wide, Rounding::to_odd>(encoder, values, n, index);
    case Rounding::stochastic: return count_lanes<Wide, Rounding::stochastic>(encoder, values, n, index);
  }
  return {};
}

}  // namespace

Counts count_span(const Encoder& encoder, const void* values, std::int64_t n, std::uint64_t index) {
  const bool narrow = fits_f32(encoder.format) && (encoder.source != DType::f64 || encoder.policy.via_f32);
  const int source_bytes = element_bytes(encoder.source);
  Counts counts;
  for (std::int64_t start = 0; start < n; start += kPiece) {
    const std::int64_t count = std::min(kPiece, n - start);
    const auto* from = static_cast<const std::byte*>(values) + start * source_bytes;
    const std::uint64_t at = index + static_cast<std::uint64_t>(start);
    if (narrow) {
      alignas(64) float wide[kPiece];
      portable::widen(from, encoder.source, wide, count);
      counts += count_wide(encoder, wide, count, at);
    } else {
      alignas(64) double wide[kPiece];
      portable::widen(from, encoder.source, wide, count);
      if (encoder.policy.via_f32) portable::round_to_f32(wide, count);
      counts += count_wide(encoder, wide, count, at);
    }
  }
  return counts;
}

namespace {

// Nearly always there is none, and the largest magnitude tells that faster than counting would.
template <typename Bits>
std::int64_t count_above(const void* values, std::int64_t n, Bits inf) {
  const auto* bits = static_cast<const Bits*>(values);
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = portable::larger(largest, static_cast<Bits>(bits[i] & kMagnitude));
  if (largest <= inf) return 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += static_cast<Bits>(bits[i] & kMagnitude) > inf;
  return count;
}

template <typename Code>
std::int64_t count_nan_codes(const Format& format, const void* values, std::int64_t n) {
  const auto* codes = static_cast<const Code*>(values);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += is_nan(format, codes[i] & format.code_mask());
  return count;
}

}  // namespace

std::int64_t count_nan_span(DType dtype, const Format& format, const void* values, std::int64_t n) {
  switch (dtype) {
    case DType::f64: return count_above<std::uint64_t>(values, n, 0x7FF0000000000000u);
    case DType::f32: return count_above<std::uint32_t>(values, n, 0x7F800000u);
    case DType::f16: return count_above<std::uint16_t>(values, n, 0x7C00u);
    case DType::bf16: return count_above<std::uint16_t>(values, n, 0x7F80u);
    case DType::code: break;
  }
  if (!format.has_nan()) return 0;
  return format.code_bytes() == 1 ? count_nan_codes<std::uint8_t>(format, values, n)
                                  : count_nan_codes<std::uint16_t>(format, values, n);
}

}  // namespace octavo::cpu
