// Counts come from a second rounding of the same elements under a policy that tells overflow apart:
// the field is rounded without a limit and compared with the largest one. It costs about as much as
// the portable encoder, and is paid only by calls that ask for counts.
#pragma once

#include <algorithm>

#include "octavo/backend/cpu/isa/portable/portable_lanes.h"
#include "octavo/backend/cpu/isa/portable/wide_values.h"
#include "octavo/round/encode.h"

namespace octavo::cpu::portable {
namespace {

// At most kPiece values.
template <typename Wide, Rounding kRounding>
Counts count_lanes(const Encoder& encoder, const Wide* values, std::int64_t n,
                   [[maybe_unused]] std::uint64_t index) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kInf = ((Lane{1} << (Traits::kTop - Traits::kMantissa)) - 1) << Traits::kMantissa;
  const LanePlan<Wide> plan(encoder);
  const Format& format = encoder.format;
  const Lane limit[2] = {limit_field(format, false), limit_field(format, true)};
  // One step above the largest field already overflows: clamping there keeps huge values in range.
  Lane above[2];
  for (int s = 0; s < 2; ++s)
    above[s] =
        std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, limit_field(format, s) + 1)));
  Lane draws[kRounding == Rounding::stochastic ? kPiece : 1] = {};
  if constexpr (kRounding == Rounding::stochastic) {
    for (std::int64_t start = 0; start < n; start += kDraws)
      draw_lanes(encoder.policy.seed, index + static_cast<std::uint64_t>(start),
                 encoder.policy.stochastic_bits, std::min(kDraws, n - start), draws + start);
  }
  Lane saturated = 0, flushed = 0, nan = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Lane random = kRounding == Rounding::stochastic ? draws[i] : Lane{0};
    const Lane bits = std::bit_cast<Lane>(values[i]);
    const Lane magnitude = bits & (~Lane{0} >> 1);
    const Lane below_zero = mask_of<Lane>(bits != magnitude),
               negative = below_zero & plan.signed_mask;
    const Lane finite = smaller(magnitude, select(negative, above[1], above[0]));
    const Lane field = round_field<Wide, kRounding>(plan, finite, negative, random);
    const Lane is_number = mask_of<Lane>(magnitude <= kInf),
               is_zero = mask_of<Lane>(magnitude == 0);
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
    case Rounding::nearest_even:
      return count_lanes<Wide, Rounding::nearest_even>(encoder, values, n, index);
    case Rounding::nearest_away:
      return count_lanes<Wide, Rounding::nearest_away>(encoder, values, n, index);
    case Rounding::toward_zero:
      return count_lanes<Wide, Rounding::toward_zero>(encoder, values, n, index);
    case Rounding::up:
      return count_lanes<Wide, Rounding::up>(encoder, values, n, index);
    case Rounding::down:
      return count_lanes<Wide, Rounding::down>(encoder, values, n, index);
    case Rounding::to_odd:
      return count_lanes<Wide, Rounding::to_odd>(encoder, values, n, index);
    case Rounding::stochastic:
      return count_lanes<Wide, Rounding::stochastic>(encoder, values, n, index);
  }
  return {};
}

inline Counts count_any(const Encoder& encoder, const void* values, std::int64_t n,
                        std::uint64_t index) {
  const bool narrow =
      fits_f32(encoder.format) && (encoder.source != DType::f64 || encoder.policy.via_f32);
  const int source_bytes = element_bytes(encoder.source);
  Counts counts;
  for (std::int64_t start = 0; start < n; start += kPiece) {
    const std::int64_t count = std::min(kPiece, n - start);
    const auto* from = static_cast<const std::byte*>(values) + start * source_bytes;
    const std::uint64_t at = index + static_cast<std::uint64_t>(start);
    if (narrow) {
      alignas(64) float wide[kPiece];
      widen(from, encoder.source, wide, count);
      counts += count_wide(encoder, wide, count, at);
    } else {
      alignas(64) double wide[kPiece];
      widen(from, encoder.source, wide, count);
      if (encoder.policy.via_f32) round_to_f32(wide, count);
      counts += count_wide(encoder, wide, count, at);
    }
  }
  return counts;
}

}  // namespace
}  // namespace octavo::cpu::portable
