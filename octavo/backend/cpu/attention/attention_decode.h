// Decode attention (the decode path): up to 16 query rows against many keys, as in token-by-token
// generation. Nothing is packed: keys and values are read once from memory, which bounds the speed.
// The keys are split (split-KV, as in Flash-Decoding): attention_decode_split.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Kernels for up to `queries` query rows and kDecodeKeys keys whose rows are `pitch` bytes apart.
// The result of a row does not depend on the others. Sizes are multiples of 16. They return false,
// and their results are discarded, where there is a NaN among the codes, or what they summed left
// the range of f32.
struct DecodeRows {
  const std::byte* rows;
  std::int64_t pitch, keys, size;
};
// The weights of a query row, in the packed type below, and the sums that weighted values are added
// to.
struct DecodeWeights {
  const std::byte* packed;
  float factor;
  float* sums;
};
struct DecodeKernels {
  // scores[r][i] = q[r] . row i. q is packed by `pack_query`. Where there are `row_squares`
  // (below), most_row_squares[i] is set to an upper bound for row i; elsewhere it may be null.
  bool (*dots)(const DecodeRows&, const std::byte* const* q, int count, float* const* scores,
               float* most_row_squares);
  // sums[e] += factor * sum_i packed[i] rows[i][e], for each row of weights.
  bool (*weigh)(const DecodeRows&, const DecodeWeights* rows, int count);
  void (*pack_query)(const float* q, std::int64_t size, std::byte* laid);
  // The packed type of q and of weights. f16: at most kMaxPackedDecode, and codes are 2^-8 of
  // themselves. bf16: q is exact there (attention_exact.h), weights are rounded and have no factor.
  PackedType packed_type = PackedType::f32;
  // Where dots are summed in f16, which is precise enough for scores below max_decode_norms only:
  // sums of squares of codes / kDecodeFactor, row by row. There is no NaN among them.
  void (*row_squares)(const DecodeRows&, float* row_squares) = nullptr;
  int queries = 4;  // rows that keys are read for at once, at most kMaxDecodeRows
  // How far the weights that `weigh` multiplies may be from those it is given, which are summed.
  double weights_off = 0.0;
  // What `weigh` loses of a weighted value of each key, relative to the largest scale of V.
  double flushed = 0.0;
};
inline constexpr std::int64_t kMaxDecodeRows = 16;  // query rows of a KV head
inline constexpr std::int64_t kDecodeKeys = 128;

// What is done to the scores of a row before and after its running maximum is known. n is a
// multiple of kDecodeLanes.
inline constexpr std::int64_t kDecodeLanes = 16;
struct DecodeSteps {
  // The largest score, NaN where there is one.
  float (*largest)(const float* scores, std::int64_t n);
  // Scores become 2^(score - from); returns the sum of their squares.
  float (*weights)(float* scores, std::int64_t n, float from);
};
inline constexpr float kMaxPackedDecode = 16.0F;
inline constexpr float kDecodeFactor = 256.0F;

// As most_norms (attention.h), with the same budgets, for sums of another shape: n = D / 16
// products in sequence in each of sixteen lanes, which are added up in three steps of f16. With a =
// softmax_scale |q| |k| a score is off by u / sqrt(3), u = 2^-11, times
//   a sqrt((n + 7) / (32 n)), where a key is independent of the query: partial sums are a random
//   walk, those of lanes to (n + 1) / (32 n) of a^2 in all, those of each step to 1 / (16 n);
//   a sqrt((n + 1) (2 n + 1) / (6 n) + 3) at most, where it is aligned with the query: where one
//   lane has all of it.
inline constexpr double kDecodeRounding = 0x1p-11 * 0.57735;
inline double decode_random_walk_sigma(double depth) {
  const double n = depth / 16.0;
  return kDecodeRounding * std::sqrt((n + 7.0) / (32.0 * n));
}
inline double decode_aligned_sigma(double depth) {
  const double n = depth / 16.0;
  return kDecodeRounding * std::sqrt((n + 1.0) * (2.0 * n + 1.0) / (6.0 * n) + 3.0);
}
inline double max_decode_norms(double depth) {
  return std::min(kAlignedBudget / decode_aligned_sigma(depth),
                  kScoreBudget / decode_random_walk_sigma(depth));
}

// The kernels for K or V; null where the operand is neither e4m3fn with a scale per row nor bf16.
using ChooseDecodeKernels = const DecodeKernels* (*)(const GemmOperand&);

bool is_decode(const AttentionMethod& method, const AttentionJob& job);
void attend_decode(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                   const AttentionJob& job);
std::int64_t decode_workspace(const AttentionJob& job);

}  // namespace octavo::cpu
