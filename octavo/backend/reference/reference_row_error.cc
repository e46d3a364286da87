// Error sums of a row in the order that row_error_job.h says.
#include <algorithm>
#include <cmath>

#include "octavo/backend/reference/reference_internal.h"
#include "octavo/backend/row_error_job.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"

namespace octavo::reference {
namespace {

// Sums of squares: kErrorLanes of a block in f32, of blocks in two f64.
class SquareSums {
 public:
  void add(int element, float x) {
    float& sum = lanes_[element % kErrorLanes];
    sum = kSquaresAreFused ? std::fma(x, x, sum) : sum + x * x;
  }
  void end_block() {
    float halves[kErrorLanes / 2];
    for (int i = 0; i < kErrorLanes / 2; ++i) halves[i] = lanes_[i] + lanes_[i + kErrorLanes / 2];
    for (int i = 0; i < 2; ++i)
      pairs_[i] += static_cast<double>(halves[i]) + static_cast<double>(halves[i + 2]);
    std::fill_n(lanes_, kErrorLanes, 0.0F);
  }
  [[nodiscard]] double sum() const { return pairs_[0] + pairs_[1]; }

 private:
  float lanes_[kErrorLanes] = {};
  double pairs_[2] = {};
};

float value_at(const RowErrorJob& job, int i) {
  if (!job.is_bf16) return static_cast<const float*>(job.x)[i];
  return __builtin_bit_cast(
      float, static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(job.x)[i]) << 16);
}

// Before its scale.
float result_at(const RowErrorJob& job, int i) {
  if (job.decoded != nullptr) return job.decoded[i];
  const std::uint32_t code = job.codes[i];
  return __builtin_bit_cast(float, (code & 0x80) << 24 | (code & 0x7F) << (23 - job.mantissa_bits));
}

// An error of 1 that was rounded up is 1.
float ratio(float error, float magnitude) {
  const float out = error / magnitude;
  return out > 1.0F && out < 1.000001F ? 1.0F : out;
}

}  // namespace

bool row_error_reads_codes(const Format& format) { return format == e4m3fn || format == e5m2; }

std::uint32_t row_error(const Exec&, const RowErrorJob& job, RowErrorSums& sums) {
  const FpEnvGuard guard;
  const bool relative = !job.knows_one && sums.max_relative < 1.0F;
  SquareSums error2, value2, result2;
  std::uint32_t beyond = 0;
  for (int block = 0; block < job.blocks; ++block) {
    for (int i = block * kErrorBlock; i < (block + 1) * kErrorBlock; ++i) {
      const float scale = job.scales[i / job.run], x = value_at(job, i),
                  y = result_at(job, i) * scale, error = std::fabs(x - y), magnitude = std::fabs(x);
      error2.add(i, error);
      value2.add(i, x);
      result2.add(i, y);
      sums.max_abs = std::max(sums.max_abs, error);
      if (relative && x != 0.0F && error > sums.max_relative * magnitude)
        sums.max_relative = std::max(sums.max_relative, ratio(error, magnitude));
      sums.flushed += x != 0.0F && y == 0.0F ? 1 : 0;
      if (error > job.most_error * scale) beyond |= std::uint32_t{1} << block;
    }
    error2.end_block();
    value2.end_block();
    result2.end_block();
  }
  sums.error2 += error2.sum();
  sums.value2 += value2.sum();
  sums.result2 += result2.sum();
  return beyond;
}

}  // namespace octavo::reference
