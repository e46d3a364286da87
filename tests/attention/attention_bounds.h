// Rows of attention beside their bounds: how many are above, and how far below the others are.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "tests/attention/attention_attack.h"

namespace octavo::testing {

inline constexpr std::array kBoundedRungs = {AttentionRung::f32,      AttentionRung::bf16,
                                             AttentionRung::f16,      AttentionRung::strict,
                                             AttentionRung::balanced, AttentionRung::fast};

struct BoundedRows {
  std::int64_t rows = 0, above = 0, above_probabilistic = 0, unknown = 0;
  double closest = 0.0;  // the largest share of a bound that an error is
  std::vector<double> ratios{}, probabilistic_ratios{};  // bound / error, where there is an error

  void add(const BoundedRows& other) {
    rows += other.rows;
    above += other.above;
    above_probabilistic += other.above_probabilistic;
    unknown += other.unknown;
    closest = std::max(closest, other.closest);
    ratios.insert(ratios.end(), other.ratios.begin(), other.ratios.end());
    probabilistic_ratios.insert(probabilistic_ratios.end(), other.probabilistic_ratios.begin(),
                                other.probabilistic_ratios.end());
  }
};

inline double median_of(std::vector<double> numbers) {
  if (numbers.empty()) return 0.0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// f64 attention of the inputs as they are given, in f64. `options` has what is not the rung's.
inline Tensor exact_of(const Operand& q, const Operand& k, const Operand& v,
                       AttentionOptions options) {
  options.rung = AttentionRung::exact;
  options.out = DType::f64;
  options.bound = options.probabilistic_bound = {};
  options.certified = false;
  options.backend = nullptr;
  return attention(q, k, v, options);
}

// What exact attention itself is off by, of an output of this size: f64, some thousand keys.
inline constexpr double kExactUnit = 1e-12;

// Rows of a result beside exact ones; those of `options.ranges`.
inline BoundedRows compare_bounds(const Tensor& out, const Tensor& exact, const Tensor& bound,
                                  const Tensor& probabilistic,
                                  std::span<const AttentionRange> ranges) {
  BoundedRows result;
  const std::int64_t heads = exact.shape()[1], rows = exact.shape()[2], width = exact.shape()[3];
  for (const AttentionRange& range : ranges)
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      const std::int64_t at = (range.batch * heads + range.head) * rows + row;
      double error = 0.0, size = 0.0;
      for (std::int64_t e = 0; e < width; ++e) {
        const auto i = static_cast<std::size_t>(at * width + e);
        const double truth = exact.span<double>()[i],
                     off = std::abs(static_cast<double>(out.span<float>()[i]) - truth);
        if (error == error && !(off <= error)) error = off;  // NaN stays
        size = std::max(size, std::abs(truth));
      }
      const auto certified = static_cast<double>(bound.span<float>()[static_cast<std::size_t>(at)]),
                 likely =
                     static_cast<double>(probabilistic.span<float>()[static_cast<std::size_t>(at)]);
      ++result.rows;
      result.unknown += !std::isfinite(certified);
      result.above += !(error <= certified + kExactUnit * size);
      result.above_probabilistic += !(error <= likely + kExactUnit * size);
      if (!(error > 0.0)) continue;
      result.closest = std::max(result.closest, error / certified);
      result.ratios.push_back(certified / error);
      result.probabilistic_ratios.push_back(likely / error);
    }
  return result;
}

// A call with bounds. `exact`: of the same rows.
inline BoundedRows bounded_rows(const Operand& q, const Operand& k, const Operand& v,
                                const Tensor& exact, AttentionOptions options) {
  const Shape numbers{exact.shape()[0], exact.shape()[1], exact.shape()[2]};
  const Tensor bound = Tensor::values(numbers, DType::f32),
               probabilistic = Tensor::values(numbers, DType::f32);
  std::ranges::fill(bound.span<float>(), -1.0F);  // no row may be left out
  std::ranges::fill(probabilistic.span<float>(), -1.0F);
  options.bound = bound.view();
  options.probabilistic_bound = probabilistic.view();
  options.out = DType::f32;
  const Tensor out = attention(q, k, v, options);
  std::vector<AttentionRange> all(options.ranges.begin(), options.ranges.end());
  if (all.empty())
    for (std::int64_t batch = 0; batch < exact.shape()[0]; ++batch)
      for (std::int64_t head = 0; head < exact.shape()[1]; ++head)
        all.push_back({batch, head, 0, exact.shape()[2]});
  return compare_bounds(out, exact, bound, probabilistic, all);
}

// Those of the CPU's own kernels; of the reference where they sum in f16, of which no bound is
// derived: they say so.
inline BoundedRows bounded_rows_of(const Made& made, const Tensor& exact,
                                   AttentionOptions options) {
  try {
    return bounded_rows(made.q, made.k, made.v, exact, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_NE(options.rung, AttentionRung::f32) << error.what();
  }
  options.backend = &reference_backend();
  return bounded_rows(made.q, made.k, made.v, exact, options);
}

// A family of inputs with at most `most` rows looked at, on all rungs.
inline BoundedRows bounded_attack(const Attack& attack, unsigned seed, std::int64_t most) {
  Attack few = attack;
  const AttentionMask& mask = attack.mask;
  const bool sees_all = mask.query_lengths.empty() && !mask.causal && mask.left < 0;
  if (sees_all) few.sizes.queries = std::min(attack.sizes.queries, most);
  const Made made = attacked(few, seed);
  const std::vector<AttentionRange> rows =
      spread_rows({.heads = few.sizes.heads, .queries = few.sizes.queries}, most / few.sizes.heads);
  const AttentionOptions options{
      .mask = mask, .softmax_scale = attack.softmax_scale, .ranges = rows};
  const Tensor exact = exact_of(made.q, made.k, made.v, options);
  BoundedRows all;
  for (const AttentionRung rung : kBoundedRungs) {
    AttentionOptions of_rung = options;
    of_rung.rung = rung;
    const BoundedRows found = bounded_rows_of(made, exact, of_rung);
    EXPECT_EQ(found.above, 0) << attack.name << " on " << octavo::name_of(rung) << ": of "
                              << found.rows << " rows, " << found.closest << " of the bound";
    EXPECT_EQ(found.unknown, 0) << attack.name << " on " << octavo::name_of(rung);
    all.add(found);
  }
  return all;
}

}  // namespace octavo::testing
