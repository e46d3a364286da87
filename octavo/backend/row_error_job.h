// Error sums of a stretch of a row, values beside what came back of them, as plain data that
// crosses the kernel interface: the inner loop of report's measure_row_block.
#pragma once

#include <cstdint>

namespace octavo {

struct RowErrorSums {
  double error2 = 0, value2 = 0, result2 = 0;
  float max_abs = 0, max_relative = 0;
  std::int64_t flushed = 0;
};

inline constexpr int kErrorBlock = 128;     // elements that are summed in f32 before f64 takes over
inline constexpr int kErrorLanes = 8;       // f32 sums of a block: element i is added to sum i % 8
inline constexpr int kMaxErrorBlocks = 32;  // of a job
inline constexpr int kLeastErrorRun = 16;   // elements that share a scale: 16, 32 or 128

// All values are finite and have squares that f32 holds.
//
// How far sums may be off: the difference of two f32 is rounded once (2^-24 of itself), its square
// doubles that and is rounded, 3 * 2^-24. Squares are not negative, so that a sum loses no more
// than its additions round: 16 in each of 8 lanes and 1 over two of them, before it goes on in f64.
// Where scales have two levels their product is rounded to f32 first, 2^-24 of a result and so
// 2^-24 |y| of an error; with |e| >= 2^-5 |y| on average that is 2^-18 of it at most, and by chance
// of either sign. Together less than 20 * 2^-24 = 1.2e-6 of a sum for one level.
struct RowErrorJob {
  const void* x = nullptr;  // values: f32, or bf16
  bool is_bf16 = false;
  const float* decoded = nullptr;  // or null: from `codes`, by `mantissa_bits`
  const float* scales = nullptr;   // one for every `run` elements
  int blocks = 0;                  // of kErrorBlock elements
  int run = kErrorBlock;
  // The error, times a scale, that only what has saturated exceeds.
  float most_error = 0;
  // Of the sign, exponent and mantissa that a code of a byte is made of: 3 (e4m3) or 2 (e5m2).
  // Moved to where f32 has them they are the value times 2^(bias - 127), subnormal numbers too;
  // `scales` are then larger by as much, and `most_error` smaller. Only where
  // Kernels::row_error_reads_codes says so.
  int mantissa_bits = 0;
  // Codes of a byte each: a result is zero where its code is, but for the sign. So what is flushed
  // need be counted only where there are any. Null: formats of few values flush many.
  const std::uint8_t* codes = nullptr;
  // Some relative error of the tensor is known to be 1, which rounding to nearest never exceeds:
  // `max_relative` is left alone.
  bool knows_one = false;
};

// Squares are added with one rounding on processors that all have fused multiply-add, with two on
// others: between those two kinds sums may differ by their last bits.
#if defined(__aarch64__)
inline constexpr bool kSquaresAreFused = true;
#else
inline constexpr bool kSquaresAreFused = false;
#endif

}  // namespace octavo
