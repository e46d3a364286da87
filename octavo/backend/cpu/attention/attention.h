// CPU attention: the interface between the driver and the kernels of an instruction set.
// FlashAttention-style tiles with an online softmax: a query block goes through tiles of keys and
// values, and the running maximum of each row rescales its sums when it grows. Scores are kept
// transposed, [keys][queries], so that the softmax goes down columns in vector lanes and its result
// is the packed panel of P that the second product wants, without a transpose. An instruction set
// gives three innermost loops: scores (Q K^T), softmax, and weighted values (P V).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {

// Arguments of the online softmax: scores of a tile of keys become weights (P), down the columns of
// a query block.
struct SoftmaxJob {
  float* scores;  // [keys][query block], in units of log2; -inf where a row does not see a key. Or
                  // f16 (narrow_scores), in kNarrowUnit of those units
  std::byte* weights;  // packed panel, [keys / step][query block][step], with the step of `weigh`;
                       // may be `scores`
  std::int64_t keys;   // a multiple of eight
  std::int64_t run;    // weights per run that are summed in f16 in sequence, as weighted values are
  // [query block] each, and updated. top: the running maximum of scores, NaN once there was one;
  // base: the running maximum rounded up to an integer, from which exponents are taken; sum: of the
  // weights as stored.
  float *top, *base, *sum;
  float* rescale;  // [query block]: the factor for sums so far, a power of two
  // [query block], and updated, or null where not needed: the sum of squares of weights, or
  // infinity where it overflowed. Only where AttentionMethod::sums_weight_squares.
  float* weight_squares = nullptr;
  // [keys] each, or both null (AttentionMethod::takes_key_factors): weights are multiplied by the
  // first before they are rounded, and by the second, its inverse, before they are summed.
  const float *key_factors = nullptr, *key_inverses = nullptr;
};

// Do packed rows of Q and K have a power-of-two unit (and a scale) each?
constexpr bool has_row_units(PackedType packed_type) {
  return packed_type == PackedType::i8 || packed_type == PackedType::bf16;
}

struct SoftCap;        // attention_soft_cap.h
struct DecodeKernels;  // attention_decode.h
struct DecodeSteps;    // attention_decode.h
struct CodeKernels;    // attention_codes.h
struct PanelKernels;   // attention_codes.h

struct AttentionMethod {
  const char* name = "";  // for logs and reports
  // Microkernel of the scores (Q K^T): A is keys, B is queries; the query block is a multiple of
  // its columns. f32: sums are accumulated into. Otherwise sums are written, times the units of
  // each row in a_scale and b_scale: bf16, in which rows are exact (attention_exact.h), or two int8
  // limbs (attention_limbs.h), one panel after the other; `runs` is 1 where all lower limbs are
  // zero. Or f16: runs of kScoreRun products are summed in f16, and up to kScoreGroup products go,
  // times *a_scale and *b_scale, to f32.
  PackedType score_type = PackedType::f32;
  Microkernel score{};
  bool narrow_scores = false;  // scores are stored as f16 too, in the memory of the weights
  // f32: the microkernel replaces what it finds (MicrokernelJob::overwrites), so that nothing is
  // cleared before it.
  bool overwrites_scores = false;
  // Microkernel of the weighted values (P V): A is channels of V, B the weights of the query block,
  // interleaved by weigh.step keys. f32, or the sums of a tile go, times *a_scale, to f32: bf16, in
  // which V is exact (attention_exact.h), or f16, in which runs of kWeightRun products are summed.
  PackedType weigh_type = PackedType::f32;
  Microkernel weigh{};
  // Returns whether any factor of `rescale` is not 1.
  bool (*softmax)(const SoftmaxJob&) = nullptr;
  // Caps scores in f32, n of them, a tile's; null: the driver's loop.
  void (*soft_cap)(const SoftCap&, float* scores, std::int64_t n) = nullptr;
  // V with a scale for every row is exact in bf16 too: its scale is a power of two, which goes to
  // the packed row, times a factor of the weights of its key (SoftmaxJob::key_factors).
  bool takes_key_factors = false;
  // Multiplies the sums of a query block, [rows][query block], by the factors of its columns; null:
  // the driver's loop.
  void (*rescale)(float* sums, std::int64_t rows, const float* factors) = nullptr;
  // [rows][query block] to [query block][rows], rows a multiple of 16; null: the epilogue reads
  // columns.
  void (*transpose_sums)(const float* sums, std::int64_t rows, float* to) = nullptr;
  // As those of GemmMethod: called by each thread before and after it runs microkernels.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
  bool sums_weight_squares =
      false;                   // the softmax fills SoftmaxJob::weight_squares where it is not null
  float weight_factor = 1.0F;  // what a weight of 1 is stored as, a power of two
  std::int64_t tile_keys = 32;
  // Interleaves words of four bytes, as GemmMethod::interleave; null: the driver's loop.
  void (*interleave)(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) = nullptr;
  // The same for panels of K, where their step is another (Microkernel::a_step).
  void (*interleave_keys)(const std::byte* const* rows, int count, std::int64_t words,
                          std::byte* panel) = nullptr;
  // f32 to f16 and back; for f16 panels.
  void (*narrow)(const float* values, std::byte* packed, std::int64_t n) = nullptr;
  void (*widen)(const std::byte* packed, float* values, std::int64_t n) = nullptr;
  // [count][n] to [n][count], count a multiple of eight; where scores are f16.
  void (*interleave_halves)(const std::uint16_t* const* rows, int count, std::int64_t n,
                            std::uint16_t* panel) = nullptr;
  // Packing of e4m3 operands without a step through f32; null: through f32.
  const CodeKernels* codes = nullptr;
  // Packing of bf16 panels; null: the driver's loops, for the shape below.
  const PanelKernels* panels = nullptr;
  // Kernels of the decode path (decode attention: few query rows), for K or V; null, or returning
  // null, where there are none.
  const DecodeKernels* (*decode_kernels)(const GemmOperand&) = nullptr;
  // The more precise method of the chain. Sums in f16 are off by about 2^-11 of themselves, so
  // scores must not be large: where the largest norm of a row of Q times that of a row of K times
  // the softmax scale exceeds most_norms, this method takes the head; for limbs, where their scores
  // would be off by more than kScoreBudget. Single rows over the error bound
  // (attention_error_bound.h) are recomputed by the last method of the chain.
  const AttentionMethod* precise = nullptr;
  // The softmax of decode attention; null: the driver's loops.
  const DecodeSteps* decode_steps = nullptr;
  // Sums of a tile, of weighted values and of weights, are summed apart and then added to those of
  // the tiles before: a term meets the roundings of one tile and one for each tile.
  bool sums_by_tile = false;

  // Query rows of a block: the columns (NR) of both microkernels.
  [[nodiscard]] constexpr int query_block() const { return weigh.cols; }
};

// Around the microkernels, and the kernels of decode attention, that a thread runs.
class EnteredMethod {
 public:
  explicit EnteredMethod(const AttentionMethod& method) : method_(method) {
    if (method.enter != nullptr) method.enter();
  }
  ~EnteredMethod() {
    if (method_.leave != nullptr) method_.leave();
  }
  EnteredMethod(const EnteredMethod&) = delete;
  EnteredMethod& operator=(const EnteredMethod&) = delete;

 private:
  const AttentionMethod& method_;
};

// The method that recomputes rows over the error bound (attention_error_bound.h): the last of the
// chain.
constexpr const AttentionMethod& most_precise(const AttentionMethod& method) {
  return method.precise != nullptr ? most_precise(*method.precise) : method;
}

// The same method, with the one that takes heads for which it is too coarse.
constexpr AttentionMethod with_precise(AttentionMethod method, const AttentionMethod* precise) {
  method.precise = precise;
  return method;
}

// The shape of `weigh` for bf16 weights without PanelKernels: MR channels, and keys per K step.
inline constexpr int kBf16Channels = 8, kBf16Keys = 4;

inline constexpr int kMaxQueryBlock = 48;
inline constexpr std::int64_t kMaxTileKeys = 128;
// A sum of a run is off by up to its length times 2^-12 of itself, which happens in rows whose
// first weight is large: bits of what is added after it are lost.
inline constexpr std::int64_t kWeightRun = 32;
// Products summed in f16 at most: runs of a tile are added in f16, one rounding for each.
inline constexpr std::int64_t kWeightGroup = 128;
// Packed V in f16 is at most kMaxPackedValue, weights at most kWeightFactor, so that the sum of a
// group is finite.
inline constexpr float kMaxPackedValue = 3.5F;
inline constexpr float kWeightFactor = 146.0F;
static_assert(kWeightGroup * kMaxPackedValue * kWeightFactor < 65504);
static_assert(kMaxTileKeys <= kWeightGroup);

inline constexpr std::int64_t kScoreRun = 32, kScoreGroup = 128;
inline constexpr float kMaxPackedScore = 16.0F;
static_assert(kScoreGroup * kMaxPackedScore * kMaxPackedScore < 65504);
// With a = softmax_scale |q| |k| of the longest rows, a score summed in f16 is off by (standard
// deviation; docs/numerics/attention.md derives both)
//   a / sqrt(D) times kScoreSigma, where a key is independent of the query: partial sums are a
//   random walk, a times kAlignedSigma at most, where it is aligned with the query: partial sums
//   grow.
// The budgets: a row of two keys, the worst case, is off by half of the first times |v - out|. A
// score of 24 may be off by as much as the second: where it is the only large one, its weight is 1
// and the error cancels. Where several keys share the weight each has an error of its own, and no
// bound of norms detects such rows: they are found by the check of their weights afterwards
// (attention_error_bound.h).
inline constexpr double kScoreSigma = 0x1p-11 * 0.57735 * 4.0;    // sqrt(kScoreRun / 2)
inline constexpr double kAlignedSigma = 0x1p-11 * 5.65685 / 3.0;  // sqrt(kScoreRun) / 3
static_assert(kScoreRun == 32);
inline constexpr double kScoreBudget = 2.7e-3, kAlignedBudget = 2.2e-2;
inline double most_norms(double depth) {
  return std::min(kAlignedBudget / kAlignedSigma, kScoreBudget / kScoreSigma * std::sqrt(depth));
}

// Scores that stay in f16 are divided by this, which is exact (softmax_narrow.h says why). Their
// sums are not continued in f32, so that there is at most one group.
inline constexpr float kNarrowUnit = 16.0F;
inline bool takes_narrow_scores(const AttentionJob& job) {
  return job.bias.first == nullptr && job.soft_cap == 0.0 && job.q.first.cols() <= kScoreGroup;
}

// The largest head size of Q and V that is offered.
inline constexpr std::int64_t kMaxHeadSize = 1024;

// Query rows and keys of a batch.
inline std::int64_t rows_in(const AttentionJob& job, std::int64_t batch) {
  return job.query_lengths != nullptr ? job.query_lengths[batch] : job.queries;
}
inline std::int64_t keys_in(const AttentionJob& job, std::int64_t batch) {
  return job.key_lengths != nullptr ? job.key_lengths[batch] : job.keys;
}

// Jobs that fast kernels may take: not those that only the reference computes.
inline bool is_fast_attention(const AttentionJob& job) {
  return job.values != DType::f64 && job.p != AttentionP::f64 &&
         job.p != AttentionP::fp8_normalized && job.q.first.cols() <= kMaxHeadSize &&
         job.v.first.cols() <= kMaxHeadSize;
}
// P has at most ten mantissa bits: exact in f16.
inline bool is_short_p(const AttentionJob& job) {
  return job.p == AttentionP::bf16 || job.p == AttentionP::fp8 || job.p == AttentionP::fp8_split;
}

// Q and K are codes: they have few bits, and sums of their products need not have many.
inline bool is_coded(const AttentionJob& job) {
  return job.q.first.is_quantized() && job.k.first.is_quantized();
}

}  // namespace octavo::cpu
