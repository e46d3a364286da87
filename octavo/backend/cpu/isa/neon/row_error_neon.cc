#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/portable/row_error_lanes.h"

namespace octavo::cpu {
namespace {

struct NeonSteps {
  // Numbers that are subnormal in f32 cost these processors nothing extra.
  static constexpr bool kReadsCodes = true;

  template <int kMantissa>
  static TwoHalves moved(Bytes codes) {
    constexpr int kShift = 7 - kMantissa;
    // The sign stays, what the shift makes of it beside the exponent goes.
    constexpr auto kKept = static_cast<std::uint16_t>(0x8000 | 0x7F << kShift);
    const auto bytes = reinterpret_cast<int8x16_t>(codes);
    return {reinterpret_cast<Halves>(vshll_n_s8(vget_low_s8(bytes), kShift)) & kKept,
            reinterpret_cast<Halves>(vshll_high_n_s8(bytes, kShift)) & kKept};
  }

  static Floats distance(Floats a, Floats b) { return vabdq_f32(a, b); }

  static Floats add_square(Floats sum, Floats x) { return vfmaq_f32(sum, x, x); }
};

}  // namespace

std::uint32_t neon_row_error(const RowErrorJob& job, RowErrorSums& sums) {
  return add_row_error<NeonSteps>(job, sums);
}

}  // namespace octavo::cpu
