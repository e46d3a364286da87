#include "octavo/backend/cpu/attention/attention_norms.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "octavo/backend/cpu/attention/attention_codes.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/attention/attention_operand_rows.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/base/root_sum_square.h"

namespace octavo::cpu {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000;

// The largest sum of squares of rows [0, rows) of an operand; NaN and Inf are ignored here, because
// kernels handle such rows one by one.
double largest_row_squares(const Isa& isa, const AttentionMethod& method,
                           const GemmOperand& operand, DType values, std::int64_t rows,
                           int threads) {
  constexpr std::int64_t kRows = 64;
  std::atomic<double> largest{0.0};
  const AttentionRows all(isa, operand, values, FactoredScales::none);
  const CodedRows coded(isa, method, operand);
  parallel_units(blocks(rows, kRows), threads, [&](std::int64_t unit) {
    alignas(64) float row[kMaxHeadSize];
    double most = 0.0;
    const std::int64_t end = std::min(rows, (unit + 1) * kRows);
    if (coded.by_row()) most = coded.largest_row_squares(unit * kRows, end);
    for (std::int64_t r = coded.by_row() ? end : unit * kRows; r < end; ++r) {
      all.row(r, row);
      constexpr int kSums = 16;  // independent sums, which compilers vectorise
      float sums[kSums] = {};
      std::int64_t d = 0;
      for (; d + kSums <= all.cols(); d += kSums)
        for (int i = 0; i < kSums; ++i) sums[i] += row[d + i] * row[d + i];
      for (; d < all.cols(); ++d) sums[0] += row[d] * row[d];
      float sum = 0.0F;
      for (const float one : sums) sum += one;
      auto squares = static_cast<double>(sum);
      if (!std::isfinite(sum)) {  // overflows for finite numbers too, from 2^64 on
        squares = 0.0;
        for (d = 0; d < all.cols(); ++d)
          squares += static_cast<double>(row[d]) * static_cast<double>(row[d]);
      }
      if (std::isfinite(squares)) most = std::max(most, squares);
    }
    double before = largest.load(std::memory_order_relaxed);
    while (before < most &&
           !largest.compare_exchange_weak(before, most, std::memory_order_relaxed)) {
    }
  });
  return largest.load();
}

// The largest norms of rows of Q and of K of a KV head.
struct Norms {
  double q = 0.0, k = 0.0;
};
Norms norms_of(const Isa& isa, const AttentionMethod& method, const Exec& exec,
               const AttentionJob& job, std::int64_t head) {
  const std::int64_t batch = head / job.kv_heads, kv_head = head % job.kv_heads;
  const std::int64_t group = job.heads / job.kv_heads;
  const int threads = std::max(1, exec.threads);
  double q = 0.0;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    q = std::max(q, largest_row_squares(isa, method, job.q.at(batch, h), job.values,
                                        rows_in(job, batch), threads));
  const double k = largest_row_squares(isa, method, job.k.at(batch, kv_head), job.values,
                                       keys_in(job, batch), threads);
  return {std::sqrt(q), std::sqrt(k)};
}

// The largest magnitude of rows [0, rows) of an operand, non-finite rows ignored.
float largest_magnitude(const Isa& isa, const GemmOperand& operand, DType values,
                        std::int64_t rows) {
  alignas(64) float row[kMaxHeadSize];
  const AttentionRows all(isa, operand, values, FactoredScales::none);
  std::uint32_t most = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    all.row(r, row);
    const std::uint32_t amax = amax_bits(row, all.cols());
    if (amax < kInfinityBits) most = std::max(most, amax);
  }
  return std::bit_cast<float>(most);
}

// The standard deviation of score errors of limbs (attention_limbs.h) for this head. With A and B
// the largest magnitudes, units are at most A / 8128 and B / 8128. D products of two lower limbs
// are left out, each limb uniform over 128 units; and rows are rounded to units.
double limbs_deviation(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                       const AttentionJob& job, std::int64_t head) {
  if (is_integer_by_row(job.q.first) && is_integer_by_row(job.k.first)) return 0.0;  // exact
  const std::int64_t batch = head / job.kv_heads, kv_head = head % job.kv_heads;
  const std::int64_t group = job.heads / job.kv_heads;
  const Norms norms = norms_of(isa, method, exec, job, head);
  double a = 0.0;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    a = std::max(a, static_cast<double>(largest_magnitude(isa, job.q.at(batch, h), job.values,
                                                          rows_in(job, batch))));
  const auto b = static_cast<double>(
      largest_magnitude(isa, job.k.at(batch, kv_head), job.values, keys_in(job, batch)));
  constexpr double kUnit = 1.0 / 8128, kRounded = 0.288675 * kUnit, kLower = 128 * kRounded;
  const auto depth = static_cast<double>(job.q.first.cols());
  const double left_out = std::sqrt(depth) * kLower * a * kLower * b,
               rounded = kRounded * root_sum_square(a * norms.k, b * norms.q);
  return root_sum_square(left_out, rounded) * std::abs(job.softmax_scale);
}

}  // namespace

HeadMethod method_for(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                      const AttentionJob& job, std::int64_t kv) {
  const AttentionMethod* taken = &method;
  if (taken->score_type == PackedType::f16 && taken->precise != nullptr) {
    const Norms norms = norms_of(isa, method, exec, job, kv);
    const auto depth = static_cast<double>(job.q.first.cols());
    const double most = norms.q * norms.k * std::abs(job.softmax_scale);
    if (most <= most_norms(depth)) return {taken, kScoreSigma * most / std::sqrt(depth)};
    taken = taken->precise;
  }
  if (taken->score_type == PackedType::i8 && taken->precise != nullptr) {
    const double random_walk = limbs_deviation(isa, method, exec, job, kv);
    if (random_walk <= kScoreBudget) return {taken, random_walk};
    taken = taken->precise;
  }
  return {taken, 0.0};
}

}  // namespace octavo::cpu
