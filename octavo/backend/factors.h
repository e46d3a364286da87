// Factors: what a scaled conversion multiplies or divides by, as plain data for kernels. One
// number, a number for each row, column or element, or one that the kernel makes from an amax.
#pragma once

#include "octavo/scale/dynamic_factor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct Factors {
  double value = 1.0;  // where nothing below is given
  // f32 or f64 of the shape of the matrix; pitches of 0 repeat a factor.
  Matrix each{};
  // A dynamic factor: of the matrices that this is the amax of. It is written to `made`, in f64.
  const float* amax = nullptr;
  DynamicRule rule = DynamicRule::power_of_two;
  double* made = nullptr;
  bool divide = false;  // decode_scaled: divide by the factor

  [[nodiscard]] constexpr bool is_array() const { return each.data != nullptr; }
};

}  // namespace octavo
