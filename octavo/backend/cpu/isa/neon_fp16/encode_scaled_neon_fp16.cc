// Scaled values to E4M3 (encode_scaled): the inner loop of quantizing with f32 scales.
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_lanes.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

template <DType kSource, bool kClamps>
void encode_e4m3_scaled(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                        const float* factors, const std::uint8_t* poisoned, std::int64_t width) {
  constexpr std::int64_t kBytes = element_bytes(kSource), kGroupsAtOnce = 4;
  constexpr std::int64_t kAhead = 1024;  // prefetch distance in bytes
  const FpEnvGuard guard;
  const E4m3Lanes k(encoder.format);
  const uint8x16_t poison = vdupq_n_u8(encoder.poison_code);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  for (std::int64_t start = 0; start < n; start += width) {
    TileLanes tile[kGroupsAtOnce];
    for (TileLanes& group : tile) group = TileLanes(factors, poisoned);
    ++factors;
    ++poisoned;
    const std::int64_t end = n - start < width ? n : start + width;
    std::int64_t at = start;
    for (; at + kGroupsAtOnce * kGroup <= end; at += kGroupsAtOnce * kGroup) {
      for (std::int64_t line = 0; line < kGroupsAtOnce * kGroup * kBytes; line += 64)
        __builtin_prefetch(from + at * kBytes + line + kAhead);
      encode_groups<kSource, kClamps, kGroupsAtOnce>(k, from + at * kBytes, tile, poison, to + at);
    }
    for (; at + kGroup <= end; at += kGroup)
      encode_groups<kSource, kClamps, 1>(k, from + at * kBytes, tile, poison, to + at);
    if (at < end) {
      alignas(16) std::byte staged[kGroup * kBytes] = {};
      alignas(16) std::uint8_t out[kGroup];
      std::memcpy(staged, from + at * kBytes, static_cast<std::size_t>((end - at) * kBytes));
      encode_groups<kSource, kClamps, 1>(k, staged, tile, poison, out);
      std::memcpy(to + at, out, static_cast<std::size_t>(end - at));
    }
  }
}

template <DType kSource>
ScaledSpan choose(bool clamps) {
  return clamps ? encode_e4m3_scaled<kSource, true> : encode_e4m3_scaled<kSource, false>;
}

}  // namespace

ScaledSpan neon_fp16_encode_scaled_e4m3(const Encoder& encoder) {
  const bool fits = encoder.only_finite && encoder.policy.rounding == Rounding::nearest_even &&
                    encoder.format.mantissa_bits == kMantissaBits &&
                    epilogue_of(encoder) == Epilogue::eight_bits && lanes_fit(encoder, 10, 15, 7) &&
                    field_base(encoder.format) < 112;
  if (!fits) return nullptr;
  switch (encoder.source) {
    case DType::f32:
      return choose<DType::f32>(!encoder.within_range);
    case DType::f16:
      return choose<DType::f16>(!encoder.within_range);
    case DType::bf16:
      return choose<DType::bf16>(!encoder.within_range);
    case DType::f64:
    case DType::code:
      break;
  }
  return nullptr;
}

}  // namespace octavo::cpu
