// How CPU backends attend. A strip of query rows goes through the keys tile by tile; what is worked
// on is turned, [keys][queries], so that the softmax goes down columns in vector lanes and its
// result is the panel that the second product wants, without a transpose. What differs between
// instruction sets is three innermost loops: scores, softmax, and the sum of weighted values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {

// Scores of a tile of keys become weights, down the columns of a strip.
struct SoftmaxJob {
  float* scores;       // [keys][strip], in units of log2; -inf where a row does not see a key. Or
                       // f16 (narrow_scores), in kNarrowUnit of those units
  std::byte* weights;  // [keys / step][strip][step] of the lanes that are multiplied, step being
                       // that of `weigh`; may be `scores`
  std::int64_t keys;   // a multiple of eight
  std::int64_t run;    // so many weights are summed in f16 one after the other, as values are
  // [strip] each, and updated: the largest score, NaN once there was one; what exponents are taken
  // from, which is that rounded up to an integer; and the sum of the weights as they are stored.
  float *top, *base, *sum;
  float* rescale;  // [strip]: what sums so far are to be multiplied by, a power of two
  // [strip], and updated, or null where nobody asks: the sum of squares of weights, or infinity
  // where it had no place on the way. For weights in f16 alone.
  float* weight_squares = nullptr;
};

// Do rows of Q and K have a unit each, and lanes of their own for it?
constexpr bool has_row_units(PackedType packed_type) {
  return packed_type == PackedType::i8 || packed_type == PackedType::bf16;
}

struct DecodeKernels;  // attention_decode.h
struct CodeKernels;    // attention_codes.h

struct AttentionMethod {
  const char* name = "";  // for people
  // Scores: A is eight keys, B is queries; the strip is a multiple of its columns. Lanes are f32
  // (sums are added to), or sums are written, times the units of each row in a_scale and b_scale:
  // bf16, which has all of a row (attention_exact.h), and two int8 limbs (attention_limbs.h), one
  // panel after the other; `runs` is 1 where all lower ones are zero. Or f16: then runs of
  // kScoreRun products are summed in f16, and up to kScoreGroup go, times *a_scale and *b_scale, to
  // f32.
  PackedType score_type = PackedType::f32;
  Microkernel score{};
  bool narrow_scores = false;  // scores are f16 as well, and then where weights are
  // Weighted values: A is channels of V, B the strip's weights, in lanes of weigh.step keys. Lanes
  // are f32, or what a tile gives goes, times *a_scale, to f32: bf16, which has all of V
  // (attention_exact.h), or f16, runs of kWeightRun products being summed in it.
  PackedType weigh_type = PackedType::f32;
  Microkernel weigh{};
  // Returns whether any factor of `rescale` is not 1.
  bool (*softmax)(const SoftmaxJob&) = nullptr;
  bool sums_weight_squares = false;  // it fills SoftmaxJob::weight_squares where that is asked for
  float weight_factor = 1.0F;        // of a weight of 1, a power of two
  std::int64_t tile_keys = 32;
  // Words of four bytes, as GemmMethod has it; null: the driver's.
  void (*interleave)(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) = nullptr;
  // f32 to f16 and back; where lanes are f16.
  void (*narrow)(const float* values, std::byte* packed, std::int64_t n) = nullptr;
  void (*widen)(const std::byte* packed, float* values, std::int64_t n) = nullptr;
  // [count][n] to [n][count], count a multiple of eight; where scores are of f16.
  void (*interleave_halves)(const std::uint16_t* const* rows, int count, std::int64_t n,
                            std::uint16_t* panel) = nullptr;
  // Operands in e4m3 on their way into panels; null: by way of f32.
  const CodeKernels* codes = nullptr;
  // Kernels for few query rows, of K or of V; null, or returning null, where there are none.
  const DecodeKernels* (*decode_kernels)(const GemmOperand&) = nullptr;
  // Sums in f16 are off by about 2^-11 of what they are, so scores must not be large: where the
  // largest norms of a row of Q and one of K, times the softmax scale, exceed most_norms, this one
  // takes the head. Where scores are limbs: so where those would be off by more than kScoreBudget.
  // Single rows whose weights show that sums in f16 did not do (attention_error_bound.h) go to the
  // last one of the line.
  const AttentionMethod* precise = nullptr;

  [[nodiscard]] constexpr int query_block() const { return weigh.cols; }
};

// Who does rows again that came out doubtful (attention_error_bound.h): the last of the line.
constexpr const AttentionMethod& most_precise(const AttentionMethod& method) {
  return method.precise != nullptr ? most_precise(*method.precise) : method;
}

// The same, and who takes the heads that it is too coarse for.
constexpr AttentionMethod with_precise(AttentionMethod method, const AttentionMethod* precise) {
  method.precise = precise;
  return method;
}

// Where weights are bf16: `weigh` has so many rows, and so large a step.
inline constexpr int kBf16Channels = 8, kBf16Keys = 4;

inline constexpr int kMaxQueryBlock = 32;
inline constexpr std::int64_t kMostTileKeys = 128;
// A sum of a run is off by up to its length times 2^-12 of itself, and does so in rows that one
// large weight comes first in: what is added behind it is cut off there.
inline constexpr std::int64_t kWeightRun = 32;
// So many products are in f16 at most: runs of a tile are added there, one rounding for each.
inline constexpr std::int64_t kWeightGroup = 128;
// Lanes of V in f16 are at most this, weights at most kWeightFactor, and a run of their products is
// finite.
inline constexpr float kMaxPackedValue = 3.5F;
inline constexpr float kWeightFactor = 146.0F;
static_assert(kWeightGroup * kMaxPackedValue * kWeightFactor < 65504);
static_assert(kMostTileKeys <= kWeightGroup);

inline constexpr std::int64_t kScoreRun = 32, kScoreGroup = 128;
inline constexpr float kMaxPackedScore = 16.0F;
static_assert(kScoreGroup * kMaxPackedScore * kMaxPackedScore < 65504);
// With a = softmax_scale |q| |k| of the longest rows, a score summed in f16 is off by (standard
// deviation; docs/numerics/attention.md derives both)
//   a / sqrt(D) times kScoreSigma, where a key has nothing to do with the query: partial sums walk,
//   a times kAlignedSigma at most, where it lies along the query: partial sums grow.
// The budgets: half of the first times |v - out| is what a row of two keys gets, the worst. A score
// of 24 may be off by as much as the second: where it is the only one, its weight is 1 and its
// error nothing. Where keys share the weight each has an error of its own, and no bound of norms
// tells such rows from others: they are found when they are done (attention_error_bound.h).
inline constexpr double kScoreSigma = 0x1p-11 * 0.57735 * 4.0;    // sqrt(kScoreRun / 2)
inline constexpr double kAlignedSigma = 0x1p-11 * 5.65685 / 3.0;  // sqrt(kScoreRun) / 3
static_assert(kScoreRun == 32);
inline constexpr double kScoreBudget = 2.7e-3, kAlignedBudget = 2.2e-2;
inline double most_norms(double depth) {
  return std::min(kAlignedBudget / kAlignedSigma, kScoreBudget / kScoreSigma * std::sqrt(depth));
}

// Scores that stay in f16 are divided by this, which is exact (softmax_narrow.h has why). Those
// sums are then not added to in f32, so that there is one group at most.
inline constexpr float kNarrowUnit = 16.0F;
inline bool takes_narrow_scores(const AttentionJob& job) {
  return job.bias.first == nullptr && job.q.first.cols() <= kScoreGroup;
}

// Head sizes of Q and of V that are offered.
inline constexpr std::int64_t kMostHeadSize = 1024;

// Rows and keys that a batch has.
inline std::int64_t rows_in(const AttentionJob& job, std::int64_t batch) {
  return job.query_lengths != nullptr ? job.query_lengths[batch] : job.queries;
}
inline std::int64_t keys_in(const AttentionJob& job, std::int64_t batch) {
  return job.key_lengths != nullptr ? job.key_lengths[batch] : job.keys;
}

// What a fast kernel may do at all: not what only the definition does.
inline bool is_fast_attention(const AttentionJob& job) {
  return job.values != DType::f64 && job.p != AttentionP::f64 &&
         job.p != AttentionP::fp8_normalized && job.q.first.cols() <= kMostHeadSize &&
         job.v.first.cols() <= kMostHeadSize;
}
// P has ten bits or fewer after the first one: f16 keeps it.
inline bool is_short_p(const AttentionJob& job) {
  return job.p == AttentionP::bf16 || job.p == AttentionP::fp8 || job.p == AttentionP::fp8_split;
}

// Q and K are codes: they have few bits, and sums of their products need not have many.
inline bool is_coded(const AttentionJob& job) {
  return job.q.first.is_quantized() && job.k.first.is_quantized();
}

}  // namespace octavo::cpu
