// The accumulator of Hopper's FP8 tensor cores, bit for bit: docs/numerics/gemm.md has it in words,
// and what of it was measured. One step (one wgmma of K = 32) sums 32 products and the accumulator:
//   - all of them are aligned to the largest exponent among them, and what is below 13 fraction
//     bits of that is cut off, toward zero;
//   - they are added without an error;
//   - the sum is cut to 13 fraction bits of its own.
// Everything fits in 32 bit integers, so rows are decoded once to significands and exponents, and
// steps are loops without branches.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "octavo/backend/reference/dequantized_internal.h"
#include "octavo/backend/reference/gemm_internal.h"

namespace octavo::reference {
namespace {

constexpr int kStep = 32;           // products that one instruction sums
constexpr int kFraction = 13;       // bits that are kept below the largest exponent
constexpr int kCodeFraction = 3;    // of a decoded significand: that of e4m3, enough for e5m2
constexpr int kZeroExponent = -64;  // below all others, sums of two included

// value = significand * 2^(exponent - kCodeFraction). A subnormal code has the exponent of the
// smallest normal one, and a significand below one.
struct Decoded {
  std::int16_t significand = 0;
  std::int16_t exponent = kZeroExponent;
};

Decoded decoded(const Format& format, std::uint32_t code) {
  const double value = decode(format, code);
  if (!(std::fabs(value) <= max_value(format)) || value == 0.0) return {};
  const int exponent = std::max(std::ilogb(value), format.min_exponent());
  return {static_cast<std::int16_t>(std::ldexp(value, kCodeFraction - exponent)),
          static_cast<std::int16_t>(exponent)};
}

std::array<Decoded, 256> decode_table(const Format& format) {
  std::array<Decoded, 256> table{};
  for (std::uint32_t code = 0; code < table.size(); ++code) table[code] = decoded(format, code);
  return table;
}

// Products [first, end) that are summed in the accumulator before promotion. Rows are zero-padded
// to a whole number of steps.
struct Run {
  std::int64_t first = 0, end = 0;
  std::size_t at = 0;  // of the padded row
  [[nodiscard]] std::size_t steps() const {
    return static_cast<std::size_t>((end - first + kStep - 1) / kStep);
  }
};

std::vector<Run> runs_of(const GemmJob& job) {
  const std::int64_t depth = job.a.cols();
  std::vector<Run> runs;
  std::size_t at = 0;
  for (std::int64_t first = 0; first < depth; first = runs.back().end) {
    const std::int64_t most = job.promote_every > 0 ? job.promote_every : depth;
    runs.push_back({first, run_end(job, first, most), at});
    at += runs.back().steps() * kStep;
  }
  return runs;
}

bool scales_change(const GemmOperand& operand) {
  return tile_extent(operand.quantized.tile.cols, operand.cols()) < operand.cols();
}

struct CodeRow {
  std::vector<std::int16_t> significands, exponents;  // padded
  std::vector<double> scales;                         // one for each run
  std::vector<double> values;                         // padded; only where not all are finite

  [[nodiscard]] double value(std::size_t i) const {
    return values.empty() ? std::ldexp(significands[i], exponents[i] - kCodeFraction) : values[i];
  }
};

CodeRow row_of(const GemmOperand& operand, std::int64_t row, const std::vector<Run>& runs,
               const std::array<Decoded, 256>& table) {
  const Matrix& codes = operand.quantized.codes;
  const std::size_t size = runs.back().at + runs.back().steps() * kStep;
  CodeRow to;
  to.significands.assign(size, 0);
  to.exponents.assign(size, kZeroExponent);
  bool finite = true;
  for (const Run& run : runs) {
    to.scales.push_back(scale_at(operand.quantized, row, run.first));
    for (std::int64_t k = run.first; k < run.end; ++k) {
      const std::uint32_t code = load_code(codes, row, k);
      const std::size_t i = run.at + static_cast<std::size_t>(k - run.first);
      to.significands[i] = table[code].significand;
      to.exponents[i] = table[code].exponent;
      finite = finite && !is_nan(codes.format, code) && !is_inf(codes.format, code);
    }
  }
  if (finite) return to;
  to.values.assign(size, 0.0);
  for (const Run& run : runs)
    for (std::int64_t k = run.first; k < run.end; ++k)
      to.values[run.at + static_cast<std::size_t>(k - run.first)] = load_value(codes, row, k);
  return to;
}

// value = significand * 2^(exponent - kFraction).
struct Held {
  std::int32_t significand = 0;  // of kFraction + 1 bits and a sign, or 0
  std::int32_t exponent = 2 * kZeroExponent;
};

std::int32_t cut(std::int32_t significand, std::int32_t places) {
  const std::int32_t magnitude = std::abs(significand) >> std::min(places, 31);
  return significand < 0 ? -magnitude : magnitude;
}

Held held(std::int32_t sum, std::int32_t exponent) {
  if (sum == 0) return {};
  const int extra =
      static_cast<int>(std::bit_width(static_cast<std::uint32_t>(std::abs(sum)))) - kFraction - 1;
  return {extra > 0 ? cut(sum, extra) : sum * (1 << -extra), exponent + extra};
}

Held step(const CodeRow& a, const CodeRow& b, std::size_t at, const Held& before) {
  const std::int16_t *a_significand = a.significands.data() + at,
                     *a_exponent = a.exponents.data() + at,
                     *b_significand = b.significands.data() + at,
                     *b_exponent = b.exponents.data() + at;
  std::array<std::int32_t, kStep> products, exponents;
  std::int32_t largest = before.exponent;
  for (std::size_t i = 0; i < kStep; ++i) {
    products[i] = a_significand[i] * b_significand[i] * (1 << (kFraction - 2 * kCodeFraction));
    exponents[i] = a_exponent[i] + b_exponent[i];
    largest = std::max(largest, exponents[i]);
  }
  std::int32_t sum = cut(before.significand, largest - before.exponent);
  for (std::size_t i = 0; i < kStep; ++i) sum += cut(products[i], largest - exponents[i]);
  return held(sum, largest);
}

float sum_of(const CodeRow& a, const CodeRow& b, const Run& run) {
  if (!a.values.empty() || !b.values.empty()) {
    double sum = 0.0;
    for (std::size_t i = run.at; i < run.at + run.steps() * kStep; ++i)
      sum += a.value(i) * b.value(i);
    if (!std::isfinite(sum)) return static_cast<float>(sum);
  }
  Held sum;
  for (std::size_t i = 0; i < run.steps(); ++i) sum = step(a, b, run.at + i * kStep, sum);
  return std::ldexp(static_cast<float>(sum.significand), sum.exponent - kFraction);
}

// Promotes runs to an f32 sum: unscaled where one scale serves all of them, else times their
// scales.
float sum_of(const CodeRow& a, const CodeRow& b, const std::vector<Run>& runs, bool scaled_runs) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const float run = sum_of(a, b, runs[i]);
    sum = scaled_runs ? std::fmaf(run, static_cast<float>(a.scales[i] * b.scales[i]), sum)
                      : sum + run;
  }
  return scaled_runs ? sum : sum * static_cast<float>(a.scales[0] * b.scales[0]);
}

}  // namespace

void gemm_hopper(const GemmJob& job) {
  const std::int64_t rows = job.out.rows, cols = job.out.cols;
  const std::vector<Run> runs = runs_of(job);
  if (runs.empty()) {  // K is 0
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < cols; ++n) epilogue(job, m, n, 0.0);
    return;
  }
  const auto a_table = decode_table(job.a.quantized.codes.format),
             b_table = decode_table(job.b.quantized.codes.format);
  const bool scaled_runs = scales_change(job.a) || scales_change(job.b);
  constexpr std::int64_t kRowsAtOnce = 64;  // so that a row of B is decoded once for many sums
  std::vector<CodeRow> a;
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t end = std::min(rows, first + kRowsAtOnce);
    a.clear();
    for (std::int64_t m = first; m < end; ++m) a.push_back(row_of(job.a, m, runs, a_table));
    for (std::int64_t n = 0; n < cols; ++n) {
      const CodeRow b = row_of(job.b, n, runs, b_table);
      for (std::int64_t m = first; m < end; ++m)
        epilogue(job, m, n, sum_of(a[static_cast<std::size_t>(m - first)], b, runs, scaled_runs));
    }
  }
}

}  // namespace octavo::reference
