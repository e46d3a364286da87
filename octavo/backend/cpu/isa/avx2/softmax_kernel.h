// The online softmax of a query block over lanes, one column a lane: its running maximum
// (update_running_max of attention_softmax.h), and weights in f32.
//
// For a vector of scores: one maximum, and 13 operations for its weights (subtraction, comparison,
// two to split off the integer, one for the fraction, five of the polynomial, a shift and a sum for
// the exponent, one of the sum). Q K^T and P V are 2 D multiply-adds beside that.
#pragma once

#include <cstdint>
#include <limits>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {
namespace {

// The largest score of each column, of a number of keys that is even. Where a score is NaN, those
// before it may be lost: its weight is NaN as well, and so is the sum (mark_nan).
template <typename L, int kVectors>
[[gnu::always_inline]] inline void largest_scores(const SoftmaxJob& job,
                                                  typename L::Floats (&largest)[kVectors]) {
  constexpr int kBoth = 2 * kVectors;  // two keys a step: independent chains
  typename L::Floats most[kBoth];
#pragma GCC unroll 8
  for (int i = 0; i < kBoth; ++i) most[i] = L::fload(job.scores + i * L::kLanes);
  const float* score = job.scores + kBoth * L::kLanes;
  for (std::int64_t key = 2; key < job.keys; key += 2, score += kBoth * L::kLanes)
#pragma GCC unroll 8
    for (int i = 0; i < kBoth; ++i) most[i] = L::fmax(most[i], L::fload(score + i * L::kLanes));
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) largest[v] = L::fmax(most[v], most[kVectors + v]);
}

// Updates the running maximum `top` and its integer `base` by the largest scores; `origin` becomes
// what is subtracted from scores, 0 where a column has seen no key yet. Returns whether a factor is
// not 1.
template <typename L, int kVectors>
[[gnu::always_inline]] inline bool raise_top(const SoftmaxJob& job,
                                             const typename L::Floats (&largest)[kVectors],
                                             typename L::Floats (&origin)[kVectors]) {
  using Floats = typename L::Floats;
  const Floats nothing = L::fsplat(-std::numeric_limits<float>::infinity());
  bool any = false;
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t at = v * L::kLanes;
    const Floats before = L::fload(job.base + at), old = L::fload(job.top + at);
    const Floats top = L::fselect(L::is_nan(old), old, L::fmax(old, largest[v]));
    const Floats base = L::fmax(L::fceil(top), before);  // `before` where the top is NaN
    L::fstore(job.top + at, top);
    L::fstore(job.base + at, base);
    const auto stays = L::either(L::fsame(before, base), L::fsame(before, nothing));
    // An integer, and 0 for what is below -126.
    const auto fall = L::to_int(L::fmax(L::fminus(before, base), L::fsplat(-127.0F)));
    const Floats power = L::as_floats(L::shift_left(L::add(fall, L::splat(127)), 23));
    L::fstore(job.rescale + at, L::fselect(stays, L::fsplat(1.0F), power));
    any |= !L::all(stays);
    origin[v] = L::fselect(L::fexceeds(base, nothing), base, L::fsplat(0.0F));
  }
  return any;
}

// Marks the columns whose weights have a NaN: a score is NaN or infinite, and the row is poisoned.
// Rare.
template <typename L, int kVectors>
[[gnu::always_inline]] inline void mark_nan(const SoftmaxJob& job,
                                            const typename L::Floats (&sum)[kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    float* const top = job.top + v * L::kLanes;
    const auto nan = L::is_nan(sum[v]);
    if (L::any(nan)) L::fstore(top, L::fselect(nan, sum[v], L::fload(top)));
  }
}

// 2^x for x <= 0, 0 up to -126, NaN for NaN. The polynomial of exp2_of (attention_softmax.h).
template <typename L>
[[gnu::always_inline]] inline typename L::Floats exp2_lanes(typename L::Floats x) {
  using Floats = typename L::Floats;
  const Floats rounder = L::fsplat(0x1.8p+23F);
  const auto above = L::fexceeds(x, L::fsplat(-126.0F));
  const Floats shifted = L::fplus(x, rounder);
  const Floats f = L::fminus(x, L::fminus(shifted, rounder));
  Floats p = L::fma(L::fsplat(0x1.5c08e5p-10F), f, L::fsplat(0x1.3d0c53p-7F));
  p = L::fma(p, f, L::fsplat(0x1.c6b6e5p-5F));
  p = L::fma(p, f, L::fsplat(0x1.ebf917p-3F));
  p = L::fma(p, f, L::fsplat(0x1.62e429p-1F));
  p = L::fma(p, f, L::fsplat(0x1.000001p+0F));
  return L::as_floats(L::keep_sum(above, L::as_bits(p), L::shift_left(L::as_bits(shifted), 23)));
}

// With kSquares one multiply-add more for each vector.
template <typename L, int kVectors, bool kSquares>
[[gnu::always_inline]] inline bool softmax_of(const SoftmaxJob& job) {
  using Floats = typename L::Floats;
  Floats largest[kVectors], origin[kVectors], sum[kVectors], squares[kVectors];
  largest_scores<L, kVectors>(job, largest);
  const bool any = raise_top<L, kVectors>(job, largest, origin);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sum[v] = squares[v] = L::fsplat(0.0F);
  const float* score = job.scores;
  auto* weight = reinterpret_cast<float*>(job.weights);
  for (std::int64_t key = 0; key < job.keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Floats p = exp2_lanes<L>(L::fminus(L::fload(score + v * L::kLanes), origin[v]));
      L::fstore(weight + v * L::kLanes, p);
      sum[v] = L::fplus(sum[v], p);
      if constexpr (kSquares) squares[v] = L::fma(p, p, squares[v]);
    }
    score += kVectors * L::kLanes;
    weight += kVectors * L::kLanes;
  }
  mark_nan<L, kVectors>(job, sum);
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t at = v * L::kLanes;
    const Floats rescale = L::fload(job.rescale + at);
    L::fstore(job.sum + at, L::fma(L::fload(job.sum + at), rescale, sum[v]));
    if constexpr (kSquares)
      L::fstore(job.weight_squares + at,
                L::fma(L::fload(job.weight_squares + at), L::ftimes(rescale, rescale), squares[v]));
  }
  return any;
}

template <typename L, int kVectors>
bool softmax_lanes(const SoftmaxJob& job) {
  return job.weight_squares != nullptr ? softmax_of<L, kVectors, true>(job)
                                       : softmax_of<L, kVectors, false>(job);
}

// Sums of a query block times the factors of its columns.
template <typename L, int kVectors>
void rescale_lanes(float* sums, std::int64_t rows, const float* factors) {
  typename L::Floats factor[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) factor[v] = L::fload(factors + v * L::kLanes);
  for (std::int64_t row = 0; row < rows; ++row, sums += kVectors * L::kLanes)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* at = sums + v * L::kLanes;
      L::fstore(at, L::ftimes(L::fload(at), factor[v]));
    }
}

}  // namespace
}  // namespace octavo::cpu
