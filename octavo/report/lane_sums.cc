#include <algorithm>
#include <cmath>

#include "octavo/report/lane_sums_internal.h"

namespace octavo {
namespace {

constexpr int kLanes = 16, kSteps = 16, kBlock = kLanes * kSteps;

std::uint32_t magnitude_bits(float x) { return __builtin_bit_cast(std::uint32_t, x) & 0x7FFFFFFFU; }

float sum_of(const float* lanes) {
  float halves[8], quarters[4];
  for (int i = 0; i < 8; ++i) halves[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) quarters[i] = halves[i] + halves[i + 4];
  return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

// One full block. Plain loops over lanes, which compilers turn into vectors.
void add_block(const float* x, const float* y, LaneSums& sums, std::uint32_t& most_error,
               std::uint32_t& worse) {
  float error2[kLanes] = {}, value2[kLanes] = {}, result2[kLanes] = {};
  std::uint32_t most[kLanes] = {}, over[kLanes] = {};
  // A value that was flushed has the relative error 1, and no other reaches it by rounding to
  // nearest: so one comparison finds both what to count and what to divide.
  const float limit = std::min(sums.max_relative, 0.999999F);
  for (int step = 0; step < kSteps; ++step)
    for (int lane = 0; lane < kLanes; ++lane) {
      const float a = x[step * kLanes + lane], b = y[step * kLanes + lane], e = a - b;
      error2[lane] += e * e;
      value2[lane] += a * a;
      result2[lane] += b * b;
      const std::uint32_t bits = magnitude_bits(e);
      most[lane] = bits > most[lane] ? bits : most[lane];
      over[lane] |= static_cast<std::uint32_t>(std::fabs(e) > limit * std::fabs(a));
    }
  sums.error2 += static_cast<double>(sum_of(error2));
  sums.value2 += static_cast<double>(sum_of(value2));
  sums.result2 += static_cast<double>(sum_of(result2));
  for (int lane = 0; lane < kLanes; ++lane) {
    most_error = std::max(most_error, most[lane]);
    worse |= over[lane];
  }
}

void look_closer(const float* x, const float* y, std::int64_t count, LaneSums& sums) {
  std::int64_t flushed = 0;
  for (std::int64_t i = 0; i < count; ++i)
    flushed += static_cast<int>(x[i] != 0.0F) & (y[i] == 0.0F);
  sums.flushed += flushed;
  for (std::int64_t i = 0; i < count; ++i) {
    const float error = std::fabs(x[i] - y[i]), magnitude = std::fabs(x[i]);
    if (error > sums.max_relative * magnitude && magnitude > 0)
      sums.max_relative = std::max(sums.max_relative, error / magnitude);
  }
}

}  // namespace

void add_lane_sums(const float* x, const float* y, std::int64_t count, LaneSums& sums) {
  std::uint32_t most_error = magnitude_bits(sums.max_abs);
  while (count > 0) {
    const std::int64_t size = std::min<std::int64_t>(count, kBlock);
    std::uint32_t worse = 0;
    if (size == kBlock) {
      add_block(x, y, sums, most_error, worse);
    } else {
      float padded_x[kBlock] = {}, padded_y[kBlock] = {};
      std::copy_n(x, size, padded_x);
      std::copy_n(y, size, padded_y);
      add_block(padded_x, padded_y, sums, most_error, worse);
    }
    if (worse != 0) look_closer(x, y, size, sums);
    x += size;
    y += size;
    count -= size;
  }
  sums.max_abs = __builtin_bit_cast(float, most_error);
}

}  // namespace octavo
