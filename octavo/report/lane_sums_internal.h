// Sums over a short stretch of values and what came back of them, in f32 lanes.
#pragma once

#include <cstdint>

namespace octavo {

struct LaneSums {
  double error2 = 0, value2 = 0, result2 = 0;
  float max_abs = 0, max_relative = 0;
  std::int64_t flushed = 0;
};

// Adds those of x[0..count) and y[0..count), all of them finite and with squares that f32 holds.
//
// How far sums may be off: the difference of two f32 is rounded once (2^-24 of itself), its square
// doubles that and is rounded, 3 * 2^-24. Squares are not negative, so that no sum loses more than
// its additions round: 16 in a lane and 5 over the 16 lanes, before it goes on in f64. Together at
// most 24 * 2^-24 < 1.5e-6 of the sum.
void add_lane_sums(const float* x, const float* y, std::int64_t count, LaneSums& sums);

}  // namespace octavo
