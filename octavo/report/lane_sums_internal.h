// Sums over blocks of values and what came back of them, in f32 lanes: the inner loop of
// measure_band.
#pragma once

#include <cstdint>

namespace octavo {

struct LaneSums {
  double error2 = 0, value2 = 0, result2 = 0;
  float max_abs = 0, max_relative = 0;
  std::int64_t flushed = 0;
};

inline constexpr int kLaneBlock = 128;  // elements that are summed before f64 takes over

// What a block looks like: its values as they are stored, decoded codes, and a scale for every
// `run` of them (16, 32 or 128).
enum class LaneSource : std::uint8_t { f32, bf16 };
struct LaneBlock {
  const void* x = nullptr;
  const float* decoded = nullptr;
  const float* scales = nullptr;      // 128 / run of them
  const float* half_steps = nullptr;  // the largest error that rounding alone can make, of each
  LaneSource source = LaneSource::f32;
  int run = kLaneBlock;
  // Codes of a byte each, to look for zeros in: what is flushed is then counted where there are
  // any. Null: all elements are looked at, as formats of few values flush many.
  const std::uint8_t* codes = nullptr;
  // Some relative error of the tensor is known to be 1, which rounding to nearest never exceeds.
  bool knows_one = false;
};

// Adds a block to the sums: all values are finite and have squares that f32 holds. Returns a bit
// for every run with an error of its half step or more, in which something may have saturated.
//
// How far sums may be off: the difference of two f32 is rounded once (2^-24 of itself), its square
// doubles that and is rounded, 3 * 2^-24. Squares are not negative, so that a sum loses no more
// than its additions round: 16 in each of 8 lanes and 3 over the lanes, before it goes on in f64.
// Where scales have two levels their product is rounded to f32 first, 2^-24 of a result and so
// 2^-24 |y| of an error; with |e| >= 2^-5 |y| on average that is 2^-18 of it at most, and by chance
// of either sign. Together less than 22 * 2^-24 = 1.4e-6 of a sum for one level.
std::uint32_t add_lanes(const LaneBlock& block, LaneSums& sums);

}  // namespace octavo
