// Reference GEMM, by definition: for each element of the result one sum, from the first product to
// the last. docs/numerics/gemm.md has the same in words.
#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/backend/reference/dequantized_internal.h"
#include "octavo/backend/reference/gemm_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

// Rows of an operand that are decoded at a time, so that each is decoded once for many sums.
constexpr std::int64_t kRowsAtOnce = 32;

double to_f16(double value) {
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee};
  return decode(f16_format, encode_value(f16_format, value, kRoundOnce).code);
}

// A decoded row of an operand for an accumulator. Scales are applied already, except for f16, whose
// runs are multiplied by them.
struct OperandRow {
  std::vector<double> numbers, scales;
};

double number_of(Accumulator accumulator, double unscaled, double scale, double factor) {
  if (accumulator == Accumulator::f16) return to_f16(unscaled * factor);
  const double value = scale * unscaled;
  return accumulator == Accumulator::f64 ? value : static_cast<double>(static_cast<float>(value));
}

std::vector<OperandRow> rows_of(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                                Accumulator accumulator) {
  const double factor = f16_factor(operand);
  std::vector<OperandRow> rows(static_cast<std::size_t>(count));
  for (std::int64_t row = first; row < first + count; ++row) {
    OperandRow& to = rows[static_cast<std::size_t>(row - first)];
    for (std::int64_t k = 0; k < operand.cols(); ++k) {
      const double scale = operand.is_quantized() ? scale_at(operand.quantized, row, k) : 1.0;
      to.numbers.push_back(
          number_of(accumulator, load_value(operand.elements(), row, k), scale, factor));
      to.scales.push_back(scale);
    }
  }
  return rows;
}

double sum_f64(const OperandRow& a, const OperandRow& b) {
  double sum = 0.0;
  for (std::size_t k = 0; k < a.numbers.size(); ++k) sum += a.numbers[k] * b.numbers[k];
  return sum;
}

double sum_f32(const OperandRow& a, const OperandRow& b) {
  float sum = 0.0F;
  for (std::size_t k = 0; k < a.numbers.size(); ++k)
    sum = std::fmaf(static_cast<float>(a.numbers[k]), static_cast<float>(b.numbers[k]), sum);
  return static_cast<double>(sum);
}

// Codes are scaled down so that no run overflows (f16_factor).
double sum_f16(const OperandRow& a, const OperandRow& b, const GemmJob& job) {
  const double unit = 1.0 / (f16_factor(job.a) * f16_factor(job.b));
  float sum = 0.0F;
  for (std::int64_t first = 0; first < job.a.cols();) {
    const std::int64_t end = run_end(job, first, kF16Run);
    double run = 0.0;
    for (auto k = static_cast<std::size_t>(first); k < static_cast<std::size_t>(end); ++k)
      run = to_f16(a.numbers[k] * b.numbers[k] + run);
    const auto at = static_cast<std::size_t>(first);
    const double scale = a.scales[at] * b.scales[at] * unit;
    // In f64, where the product of two scales cannot overflow.
    sum = static_cast<float>(std::fma(run, scale, static_cast<double>(sum)));
    first = end;
  }
  return static_cast<double>(sum);
}

double sum_of(const OperandRow& a, const OperandRow& b, const GemmJob& job) {
  switch (job.accumulator) {
    case Accumulator::f64:
      return sum_f64(a, b);
    case Accumulator::f16:
      return sum_f16(a, b, job);
    default:
      return sum_f32(a, b);
  }
}

}  // namespace

void gemm(const Exec&, const GemmJob& job) {
  const FpEnvGuard guard;
  if (job.accumulator == Accumulator::hopper_fp8) return gemm_hopper(job);
  if (job.accumulator == Accumulator::amx_bf16) return gemm_amx(job);
  const std::int64_t rows = job.out.rows, cols = job.out.cols;
  for (std::int64_t m = 0; m < rows; m += kRowsAtOnce) {
    const std::int64_t a_count = std::min(kRowsAtOnce, rows - m);
    const std::vector<OperandRow> a = rows_of(job.a, m, a_count, job.accumulator);
    for (std::int64_t n = 0; n < cols; n += kRowsAtOnce) {
      const std::int64_t b_count = std::min(kRowsAtOnce, cols - n);
      const std::vector<OperandRow> b = rows_of(job.b, n, b_count, job.accumulator);
      for (std::int64_t i = 0; i < a_count; ++i)
        for (std::int64_t j = 0; j < b_count; ++j)
          epilogue(job, m + i, n + j,
                   sum_of(a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(j)], job));
    }
  }
}

}  // namespace octavo::reference
