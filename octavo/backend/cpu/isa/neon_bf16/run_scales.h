// Scales of the tiles of twelve columns, run after run, from their codes (PackJob::scale_codes) or
// from values.
#pragma once

#include <arm_neon.h>

#include <array>
#include <bit>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"

namespace octavo::cpu {
namespace {

template <const Format& kFormat>
constexpr std::array<float, 256> scale_values() {
  std::array<float, 256> values{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t field = code & kFormat.magnitude_mask();
    const float magnitude = is_nan(kFormat, field) ? std::bit_cast<float>(std::uint32_t{0x7FC00000})
                                                   : static_cast<float>(decode(kFormat, field));
    values[code] = (code & kFormat.sign_mask()) != 0 ? -magnitude : magnitude;
  }
  return values;
}

class RunScales {
 public:
  explicit RunScales(const PackJob& job) : job_(job), runs_(job.n / job.run) {}

  [[gnu::always_inline]] float value(int col, std::int64_t run) const {
    static constexpr std::array<float, 256> kE8m0 = scale_values<e8m0fnu>(),
                                            kE4m3 = scale_values<e4m3fn>();
    if (job_.scale_codes == nullptr) return job_.scales[col * runs_ + run];
    return (job_.powers ? kE8m0 : kE4m3)[code(col, run)];
  }
  [[gnu::always_inline]] void values(std::int64_t run, float32x4_t (&to)[kPairCols]) const {
    for (int col = 0; col < kPairCols; ++col) to[col] = vdupq_n_f32(value(col, run));
  }
  // Powers of two as what is added to exponents of bf16, of two columns each; false where a scale
  // is no power of two, or NaN.
  [[gnu::always_inline]] bool powers(std::int64_t run, uint16x8_t (&to)[kPairCols / 2]) const {
    constexpr unsigned kNan = 255, kOne = 127;
    if (!job_.powers || job_.scale_codes == nullptr) return false;
    bool any_nan = false;
    uint16x4_t power[kPairCols];
#pragma GCC unroll 12
    for (int col = 0; col < kPairCols; ++col) {
      const unsigned found = code(col, run);
      any_nan = any_nan || found == kNan;
      power[col] = vdup_n_u16(static_cast<std::uint16_t>((found - kOne) << 7));
    }
#pragma GCC unroll 6
    for (int pair = 0; pair < kPairCols / 2; ++pair)
      to[pair] = vcombine_u16(power[2 * pair], power[2 * pair + 1]);
    return !any_nan;
  }

 private:
  [[gnu::always_inline]] std::uint8_t code(int col, std::int64_t run) const {
    return run < job_.scales_there ? job_.scale_codes[col][run] : std::uint8_t{0};
  }

  const PackJob& job_;
  std::int64_t runs_;
};

}  // namespace
}  // namespace octavo::cpu
