// Attention as plain data for the kernel interface (kernels.h): forward, backward, preparation
// (smoothing, Hadamard) and statistics. For a batch b, a query head h and a row i
//   s_j = log2(e) * (cap(softmax_scale * sum_d Q[i, d] K[j, d]) + bias)   over the keys that row i
//         sees; cap(x) = soft_cap * tanh(x / soft_cap), or x where soft_cap is 0,
//   p_j = 2^(s_j - M), M = the maximum of s_j rounded up to an integer,
//   P_j = p_j * p_factor, rounded to `p`,
//   out[i] = sum_j P_j V[j] / (sum_j P_j + p_factor * 2^(log2(e) * sink - M)).
// A head without a sink has one of -inf, which adds nothing. M is a maximum over keys alone, and a
// sink is not rounded: P has the same bits with a sink as without, and a sink far above all scores
// does not make P subnormal. A row that sees no key has zeros and a log-sum-exp of its sink; a sink
// of NaN or +inf makes NaN of all rows of its head but padding.
// Q, K and V are what their codes and scales say, or values rounded to `values`; only they and P
// are rounded, everything else is exact in `reference`. Because M is an integer, a
// FlashAttention-style kernel, which goes through tiles of keys and raises the running maximum M
// (online softmax), rescales by powers of two, which is exact, and P has the same bits whatever the
// size of its tiles, except where P is so small that its type is subnormal. Kernels may keep P in a
// form that is at least as exact as the one asked for, if they divide by the sum of what they
// multiplied. Sums of more than one tile are in f32 at least. docs/numerics/attention.md has the
// same in words, and error bounds.
//
// kernels.h only declares these names; few files need the definitions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_dropout.h"
#include "octavo/backend/gemm_job.h"
#include "octavo/base/macros.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Matrices [rows, D] of all batches and heads: values, or codes with scales (per tensor, head,
// token, channel, block of tokens, or MX along D: whatever tile and pitches say).
struct AttentionOperand {
  GemmOperand first{};                                       // of batch 0, head 0
  std::int64_t batch_pitch = 0, head_pitch = 0;              // bytes between elements
  std::int64_t scale_batch_pitch = 0, scale_head_pitch = 0;  // bytes between scales; 0: shared

  [[nodiscard]] OCTAVO_HD GemmOperand at(std::int64_t batch, std::int64_t head) const {
    const auto moved = [&](void* data, std::int64_t batch_step, std::int64_t head_step) -> void* {
      if (data == nullptr) return nullptr;
      return static_cast<std::byte*>(data) + batch * batch_step + head * head_step;
    };
    GemmOperand there = first;
    Matrix& elements = there.is_quantized() ? there.quantized.codes : there.values;
    elements.data = moved(elements.data, batch_pitch, head_pitch);
    there.quantized.scales.data =
        moved(there.quantized.scales.data, scale_batch_pitch, scale_head_pitch);
    return there;
  }
};

// What P is rounded to before it is multiplied by V.
enum class AttentionP : std::uint8_t {
  f64,  // not at all; reference only
  f32,
  bf16,
  f16,
  fp8,        // e4m3, nearest even
  fp8_split,  // P = hi + lo, hi toward zero and lo (of what is left) to nearest even, both e4m3
  fp8_normalized,  // divided by its sum first, which is taken before rounding; reference only
};

// Bias added to scores, softmax_scale q k; -inf masks a key. Strides are in elements; 0 where all
// batches, heads, rows or keys share the bias.
struct AttentionBias {
  const float* first = nullptr;  // null: none
  std::int64_t batch = 0, head = 0, row = 0, key = 0;
  float factor = 1.0F;  // of all of them

  [[nodiscard]] OCTAVO_HD const float* at(std::int64_t b, std::int64_t h, std::int64_t r) const {
    return first + b * batch + h * head + r * row;
  }
};

// A logit for each query head that joins the softmax's denominator and has no value.
struct AttentionSinks {
  const float* first = nullptr;  // null: none
  std::int64_t step = 1;         // elements from one head to the next

  [[nodiscard]] OCTAVO_HD bool exist() const { return first != nullptr; }
  [[nodiscard]] OCTAVO_HD float at(std::int64_t head) const { return first[head * step]; }
};

// K and V in pages of a pool, as servers of many sequences keep them: key j of batch b is row
// j % page_rows of page table[b * table_pitch + j / page_rows]. The operands of K and V are the
// pool then: `first` is page 0 of head 0, with page_rows rows, and batch_pitch and
// scale_batch_pitch lead from one page to the next. `keys` is the most keys that a row of the table
// holds. Entries of pages that no row sees are not read. A page outside the pool is an error of the
// caller's: on a device, where nothing can be thrown, it makes NaN of the rows that see its keys.
struct AttentionPages {
  const std::int32_t* table = nullptr;  // null: K and V are contiguous
  std::int64_t table_pitch = 0;         // entries from one batch to the next
  std::int64_t page_rows = 0;
  std::int64_t page_count = 0;  // of the pool

  [[nodiscard]] OCTAVO_HD bool exist() const { return table != nullptr; }
};

// Rows [first, first + count) of one head.
struct AttentionRange {
  std::int64_t batch = 0, head = 0, first = 0, count = 0;
};

// Soft caps are within these, so that scores over one are f32 numbers.
inline constexpr double kLeastSoftCap = 1e-30, kMostSoftCap = 1e30;
// How far a kernel's soft cap may be off, relative to what it should be, with scores in f32.
inline constexpr double kSoftCapError = 12.0 * 0x1p-24;

struct AttentionJob {
  std::int64_t batches = 0, heads = 0,
               kv_heads = 0;           // query head h reads head h / (heads / kv_heads)
  std::int64_t queries = 0, keys = 0;  // rows of Q and of K and V
  AttentionOperand q{}, k{}, v{};      // [queries, D], [keys, D], [keys, E]
  AttentionPages pages{};              // of K and V, where they are not contiguous
  AttentionOperand out{};              // [queries, E] of f32, f16, bf16 or f64; dense rows
  // If given: [batches, heads, queries], dense: ln(sum_j exp(s_j / log2(e)) + exp(sink)); without a
  // sink -inf for a row that sees no key.
  float* log_sum_exp = nullptr;
  // If given: [batches, kv_heads, D], dense: what was subtracted from every row of K (the mean of
  // smoothing), in the basis that K is in. It changes no output, because softmax is invariant to
  // it, except log_sum_exp, which gets softmax_scale q shift added. Never with a soft cap or sinks:
  // a tanh and the weight of a sink depend on the level of scores.
  const float* key_shift = nullptr;

  double softmax_scale = 1.0;
  double soft_cap = 0.0;  // 0: none; else from kLeastSoftCap to kMostSoftCap
  AttentionSinks sinks{};
  // Row i of a batch sees key j where  -left <= j - (i + diagonal) <= right; a negative number is
  // no limit. Causal is right = 0. The diagonal is 0, or key length - query length of the batch.
  std::int64_t left = -1, right = -1;
  bool bottom_right = false;
  // If given, one for each batch: the numbers of rows and of keys (variable sequence lengths). Rows
  // beyond are written as zeros, with a log-sum-exp of -inf; keys beyond are not read. Each is from
  // 0 to queries, or keys.
  const std::int64_t* query_lengths = nullptr;
  const std::int64_t* key_lengths = nullptr;
  AttentionBias bias{};
  // Of weights: sum_j P_j V[j] leaves out the dropped ones and multiplies the kept by the factor.
  // The sums of weights, log_sum_exp, p_amax, largest_weight and weight_squares have all of them.
  AttentionDropout dropout{};

  DType values =
      DType::f32;  // what values of Q, K and V are rounded to: f64 (not at all), f32, bf16
  AttentionP p = AttentionP::f32;
  float p_factor = 1.0F;  // for f16 and e4m3 forms; a power of two of at most 256
  // If given, becomes the maximum of itself and every p_j: what a quantizer of P tracks.
  float* p_amax = nullptr;
  // If given: [batches, heads, queries], dense: max_j p_j / (sum_j p_j + 2^(log2(e) sink - M)), the
  // largest weight of a row; 0 for a row that sees no key. One over it bounds n_eff = 1 / (sum of
  // squared weights) from below, from which `auto` detects rows that are more peaked than its error
  // model assumed. Within 2^-3 relative.
  float* largest_weight = nullptr;
  // If given: the same shape: the sum of squares of those weights, or an upper bound of it (the
  // largest weight is one); 0 for a row that sees no key.
  float* weight_squares = nullptr;

  // No branch and no address depends on elements and scales of Q, K and V (it may on masks,
  // lengths, biases and sinks). Without p_amax.
  bool oblivious = false;

  // If given: only these rows are computed; others are not touched. Ranges do not overlap.
  const AttentionRange* ranges = nullptr;
  std::int64_t range_count = 0;

  // The keys [begin, end) that a row may see; nothing where begin >= end. A NaN in K or V poisons
  // the rows that see its key and no others: a masked key must not be multiplied by zero.
  struct Keys {
    std::int64_t begin = 0, end = 0;
  };
  [[nodiscard]] OCTAVO_HD Keys keys_of(std::int64_t batch, std::int64_t row) const {
    const std::int64_t rows = query_lengths != nullptr ? query_lengths[batch] : queries;
    const std::int64_t count = key_lengths != nullptr ? key_lengths[batch] : keys;
    if (row >= rows) return {};
    const std::int64_t middle = row + (bottom_right ? count - rows : 0);
    return {left < 0 ? 0 : std::max<std::int64_t>(0, middle - left),
            right < 0 ? count : std::min(count, middle + right + 1)};
  }
  [[nodiscard]] OCTAVO_HD std::int64_t kv_head(std::int64_t head) const {
    return head / (heads / kv_heads);
  }
};

// Backward pass, from the inputs of a forward pass: P is not rounded, all is exact in reference up
// to what it stores. Where `p` is bf16, kernels may round P and dS to it before they are
// multiplied, and out and log_sum_exp may be those of a forward pass that rounded P to it. `ranges`
// is ignored: all rows are computed. dK and dV of a head are sums over the query heads that read
// it. out and log_sum_exp of `forward` are both given or both null: the f32 results of a forward
// pass of these inputs whose P was not rounded either. A kernel may read or recompute them.
struct AttentionBackwardJob {
  AttentionJob forward{};
  AttentionOperand d_out{};              // [queries, E] values
  AttentionOperand d_q{}, d_k{}, d_v{};  // of f32, f16, bf16 or f64, dense rows
  // If given: [heads], to which the gradient of the sinks is added, over all batches and rows:
  // -(weight of the sink) * sum_e dO[e] out[e].
  double* d_sinks = nullptr;
};

// Preparation of Q and K (and V, without either step) before they are quantized: smoothing
// subtracts the mean over the tokens of a head, and every row is rotated by a Hadamard matrix with
// random signs. In f32:
//   mean[d] = f32(sum over rows in f64, in order, / rows), where NaN and Inf count as zero
//   t[d] = sign(d) * (f32(x[d]) - mean[d]), then for h = 1, 2, 4 ... n/2 in every group of n
//   elements (a, b) = (a + b, a - b) of elements h apart, and all of it times f32(1 / sqrt(n)),
// where n is the largest power of two that divides D. Every backend gives these bits. `undo`
// inverts it: butterflies and factor first, then signs, then the mean is added.
struct AttentionPrepareJob {
  std::int64_t batches = 0, heads = 0;
  AttentionOperand from{};                // values
  AttentionOperand to{};                  // f32 values, dense rows; on a device f64 too
  const std::int64_t* lengths = nullptr;  // rows beyond are written as zeros and not read
  float* mean = nullptr;  // [batches, heads, D], in the basis of `from`; null: no smoothing
  bool hadamard = false;
  bool undo = false;  // the inverse; `mean` is read
};

// Statistics of the rows of a range, in f64: the input of the error model of `auto`. NaN stays NaN.
struct AttentionStatistics {
  std::int64_t row = 0;          // the row of the largest sum of squares; NaN compares above all
  double row_squares = 0.0;      // its sum of squares
  double mean_squares = 0.0;     // mean over rows of the sum of squares
  double channel_squares = 0.0;  // largest over channels of the mean over rows of squares
  double amax = 0.0;
};
struct AttentionStatisticsJob {
  std::int64_t batches = 0, heads = 0;
  AttentionOperand of{};  // values, or codes with scales
  const std::int64_t* lengths = nullptr;
  std::int64_t rows_per_range = 0;
  AttentionStatistics* result =
      nullptr;  // [batches, heads, ranges of rows, the last one shorter], dense
};

// Whether the random sign of the Hadamard transform negates element d.
OCTAVO_HD constexpr bool hadamard_negative(std::int64_t d) {
  auto bits = static_cast<std::uint32_t>(d) * 0x9E3779B1u;
  bits = (bits ^ bits >> 15) * 0x2C1B3C6Du;
  return ((bits ^ bits >> 12) & 1u) != 0;
}

}  // namespace octavo
