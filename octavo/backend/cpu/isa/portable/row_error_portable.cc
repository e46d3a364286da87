#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "octavo/backend/cpu/isa/portable/row_error_lanes.h"

namespace octavo::cpu::portable {
namespace {

struct PortableSteps {
  // Bits of codes moved to where f32 has them are often subnormal, which costs some processors
  // dearly: codes are decoded beforehand.
  static constexpr bool kReadsCodes = false;

  static Floats distance(Floats a, Floats b) {
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(a - b) & 0x7FFFFFFFU);
  }

  static Floats add_square(Floats sum, Floats x) {
    if constexpr (!kSquaresAreFused) return sum + x * x;
    for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(x[i], x[i], sum[i]);
    return sum;
  }
};

}  // namespace

std::uint32_t row_error(const RowErrorJob& job, RowErrorSums& sums) {
  return add_row_error<PortableSteps>(job, sums);
}

}  // namespace octavo::cpu::portable
