// Which types hold all values of another exactly, so that a GEMM may run on other elements than its
// own.
#pragma once

#include "octavo/format/decode.h"
#include "octavo/format/format.h"

namespace octavo::cuda {

// A set of values: `significant` bits each, below 2^(top + 1), multiples of 2^step.
struct Reach {
  int significant = 0, top = 0, step = 0;

  // Products of values of two sets.
  constexpr Reach operator*(const Reach& other) const {
    return {significant + other.significant, top + other.top + 1, step + other.step};
  }
};

constexpr Reach reach_of(const Format& format) {
  const int step = format.min_step_exponent();
  if (format.twos_complement)  // the lowest has one significant bit, the others lack its place
    return {format.bits() - 1, step + format.bits() - 1, step};
  int top = step;
  while (octavo::power_of_two(top + 1) <= max_value(format)) ++top;
  return {format.mantissa_bits + 1, top, step};
}

constexpr bool holds(const Format& format, const Reach& numbers) {
  const Reach own = reach_of(format);
  const double largest = octavo::power_of_two(numbers.top + 1) -
                         octavo::power_of_two(numbers.top + 1 - numbers.significant);
  return numbers.significant <= own.significant && numbers.step >= own.step &&
         largest <= max_value(format);
}

}  // namespace octavo::cuda
