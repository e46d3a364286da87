// Sums over values and dequantized values in f32 SIMD lanes: the inner loop of measure_row_block.
#pragma once

#include <cstdint>

namespace octavo {

struct LaneSums {
  double error2 = 0, value2 = 0, result2 = 0;
  float max_abs = 0, max_relative = 0;
  std::int64_t flushed = 0;
};

inline constexpr int kLaneBlock = 128;    // elements that are summed before f64 takes over
inline constexpr int kMostBlocks = 32;    // of a call
inline constexpr int kLeastLaneRun = 16;  // elements that share a scale: 16, 32 or 128

// A segment of a row: values as stored, decoded codes, and a scale for every `run` elements.
enum class LaneSource : std::uint8_t { f32, bf16 };
struct LaneRow {
  const void* x = nullptr;
  const float* decoded = nullptr;  // or null: from `codes`, by `mantissa_bits`
  const float* scales = nullptr;
  int blocks = 0;  // of 128 elements
  LaneSource source = LaneSource::f32;
  int run = kLaneBlock;
  // Error bound relative to the scale that only saturated values exceed.
  float most_error = 0;
  // Of the sign, exponent and mantissa that a code of a byte is made of: 3 (e4m3) or 2 (e5m2).
  // Moved to where f32 has them they are the value times 2^(bias - 127), subnormal numbers too;
  // `scales` are then larger by as much, and `most_error` smaller.
  int mantissa_bits = 0;
  // Codes of one byte, scanned for zeros: flushed values are then counted only in blocks that have
  // one. Null: every element is checked, because narrow formats flush many values.
  const std::uint8_t* codes = nullptr;
  // Some relative error of the tensor is known to be 1, which rounding to nearest never exceeds.
  bool knows_one = false;
};

// Adds a segment to the sums: all values are finite and have squares that f32 holds. Returns a bit
// for every block with an error beyond most_error, in which something may have saturated.
//
// Error bound of the sums: the difference of two f32 is rounded once (2^-24 of itself), its square
// doubles that and is rounded, 3 * 2^-24. Squares are not negative, so that a sum loses no more
// than its additions round: 16 in each of 8 lanes and 1 over two of them, before it goes on in f64.
// Where scales have two levels their product is rounded to f32 first, 2^-24 of a result and so
// 2^-24 |y| of an error; with |e| >= 2^-5 |y| on average that is 2^-18 of it at most, and by chance
// of either sign. Together less than 20 * 2^-24 = 1.2e-6 of a sum for one level.
std::uint32_t add_lanes(const LaneRow& row, LaneSums& sums);

}  // namespace octavo
