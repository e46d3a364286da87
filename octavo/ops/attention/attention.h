// Scaled dot-product attention with an error bound:
//   Tensor o = attention(q, k, v, {.mask = {.causal = true}});
// is softmax(softmax_scale Q K^T) V of every head, at the cheapest precision that meets a
// tolerance, or at a given one. docs/numerics/attention.md defines the rounding of each and bounds
// its error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/quantizer.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The rungs of the precision ladder: what Q, K, V and P are rounded to. Inputs that are codes with
// scales are used as they are.
enum class AttentionRung : std::uint8_t {
  exact,      // nothing is rounded; reference only
  f32,        // values and P in f32
  bf16,       // values and P in bf16
  f16,        // values and P in f16, sums in f32; values beyond 65504 become Inf
  strict,     // Q, K, V in e4m3, P as two e4m3 terms: exact attention of those inputs within 5e-3
  balanced,   // Q and K in int8 per token, K smoothed, both rotated (Hadamard); V and P in bf16
  fast,       // everything in e4m3: Q, K per token, K smoothed, V per channel, P times 256
  naive,      // a counterexample: e4m3 without scales, P normalized before it is rounded
  automatic,  // per head and range of rows, the cheapest of fast, balanced, strict, bf16, f16
              // (where inputs are f16) and f32 whose modelled error meets rtol and atol
};

// Which keys a query row attends to.
struct AttentionMask {
  bool causal = false;
  // Row i is aligned with key j = i + diagonal: diagonal is 0 (top left, as in torch), or (true)
  // number of keys - number of queries, so that the last row sees the last key.
  bool bottom_right = false;
  // Sliding window: how many keys before and after the row's own key it sees; negative: no limit.
  std::int64_t left = -1, right = -1;
  // One per batch, or empty: the actual numbers of queries and keys (padding masks). Padding is
  // never read; its rows of the output are zeros.
  std::span<const std::int64_t> query_lengths{}, key_lengths{};
  // Of a device: the numbers of keys in its memory, one per batch, instead of key_lengths. They are
  // read when the kernels run: a captured graph follows them.
  const std::int64_t* device_key_lengths = nullptr;
  // If given: f32 bias added to the scores softmax_scale q k; -inf masks a key. Its shape is
  // [batch, heads, queries, keys], where any may be 1, or that without leading ones.
  View bias{};
};

// K and V in pages of a pool, as servers of many sequences keep them (paged attention): K is then
// [pages, Hkv, page tokens, D] and V [pages, Hkv, page tokens, E], of any strides, and token j of
// batch b is token j % page tokens of page blocks[b * pitch + j / page tokens]. Entries beyond the
// length of a batch are not read. On a device a page outside the pool cannot be reported: it makes
// NaN of the rows that see its tokens.
struct BlockTable {
  const std::int32_t* blocks = nullptr;   // in the memory of K; null: K and V are not in pages
  std::int64_t batches = 0, columns = 0;  // columns: the most pages that a batch may have
  std::int64_t pitch = 0;                 // entries from one batch to the next

  [[nodiscard]] bool exists() const { return blocks != nullptr; }
};

// The rung chosen for a range of rows of a head, and why.
struct AttentionChoice {
  AttentionRange rows{};
  AttentionRung rung = AttentionRung::bf16;
  // 1 / sum of squared weights, of the sample row that is likely the most peaked; 2, the worst
  // case, where no row was sampled.
  double n_eff = 0.0;
  // Modelled error of that row, at six standard deviations, corrected by a probe; certified: the
  // certified bound of all rows of the range.
  double predicted = 0.0;
  double tolerance = 0.0;  // atol, less what rounding the output takes
  std::string explanation{};
};
struct AttentionReport {
  std::vector<AttentionChoice> choices;
  // Rows that failed the posteriori check and were recomputed on a higher rung.
  std::int64_t redone = 0;
};

// Largest magnitudes of a call, by which scales may be chosen; NaN where there was one.
struct AttentionAmaxes {
  float s = 0.0F;  // softmax_scale q k, capped, before a bias; of keys that rows see
  float p = 0.0F;  // the weights that V is multiplied by: 2^(score - M), from 1/2 to 1
  float o = 0.0F;  // the output
};

struct AttentionOptions {
  AttentionRung rung = AttentionRung::automatic;
  double rtol = 5e-3, atol = 5e-3;  // automatic only
  AttentionMask mask{};
  // On a device with rungs that take K and V as they are: exact, f32 and bf16, f16 where both are
  // f16 or codes, and strict and fast where both are codes. So is mask.device_key_lengths.
  BlockTable block_table{};
  std::optional<double> softmax_scale{};  // 1 / sqrt(D)
  // Scores x = softmax_scale q k become soft_cap tanh(x / soft_cap), before a bias is added and
  // keys are masked, as in Gemma 2; 0: none; else from 1e-30 to 1e30. K is not smoothed then, on
  // any rung, nor is it with sinks.
  double soft_cap = 0.0;
  // If given: f32 [heads], a logit for each query head that joins the softmax's denominator and has
  // no value, as in gpt-oss; -inf: none. NaN or +inf makes NaN of all rows of its head. A row that
  // sees no key is zeros, with a log-sum-exp of its sink.
  View sinks{};
  // Weights are dropped with this probability, from 0 to less than 1, and the others divided by
  // 1 - probability: a function of (seed, batch, head, row, key) alone, the same on every backend,
  // forward and backward. The log-sum-exp has all weights. `automatic` is rung f32 then: its error
  // model does not cover dropped weights.
  AttentionDropout dropout{};
  std::optional<DType> out{};  // the type of Q; f32 where Q is codes
  // f32, the shape of Q without its last dimension, dense. automatic: within the tolerance too.
  View log_sum_exp{};
  // If given, f32 of the shape of log_sum_exp, dense: bounds of the error of every row against
  // exact attention of the given inputs (codes times scales, where they are codes): of the largest
  // error among its channels, which is what a tolerance of elements asks for. `bound` is certified:
  // it holds whatever the inputs are, and is infinite where nothing can be said (NaN, Inf,
  // overflow). `probabilistic_bound` is smaller, and holds with a probability of 1 - 1e-6 for a row
  // if roundings are independent and values are of keys (docs/numerics/attention-bound.md). Both
  // are of the output alone, not of the log-sum-exp. On a CPU, without dropout; not for naive.
  View bound{}, probabilistic_bound{};
  // automatic: the cheapest rung whose certified bound is within atol, for each range of rows, from
  // norms of the inputs alone: no row is sampled, nor computed twice. Where none is, f32, and the
  // report says so.
  bool certified = false;
  // automatic, few queries on the CPU: if given, statistics of V, one for each (batch, KV head), as
  // a cache keeps them; V is not read for them then.
  std::span<const AttentionStatistics> value_statistics{};
  AttentionReport* report = nullptr;  // receives the choices and their explanations
  // If given, receives them, of all rows; on a CPU. S takes another product of Q and K.
  AttentionAmaxes* amaxes = nullptr;
  // Data-oblivious: no branch and no address depends on the numbers of Q, K and V or their scales,
  // only on shapes, masks, lengths, biases and sinks, so that time and traces tell nothing of them.
  // Of a rung that is named, on a CPU; slower. Without bounds, amaxes and
  // p_quantizer.
  bool oblivious = false;
  // Only these rows; others of the output are left as they are.
  std::span<const AttentionRange> ranges{};
  // State of a layer: Q, K and V (for strict and fast, where they are values) are quantized with
  // these instead of the rung's own scales; p_quantizer records the largest p.
  Quantizer *q_quantizer = nullptr, *k_quantizer = nullptr, *v_quantizer = nullptr,
            *p_quantizer = nullptr;

  int threads = 0;  // 0: all cores the thread pool has; results do not depend on it
  const Kernels* backend = nullptr;
  Log* log = nullptr;
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// Q is [B, H, queries, D], K is [B, Hkv, keys, D], V is [B, Hkv, keys, E]; H is a multiple of Hkv.
// Without B, or without B and H, for all of them. Rows that see no key are zeros. A NaN in a key
// poisons the rows that see it.
[[nodiscard]] OCTAVO_API Tensor attention(const Operand& q, const Operand& k, const Operand& v,
                                          const AttentionOptions& options = {});
OCTAVO_API void attention_into(const Operand& q, const Operand& k, const Operand& v,
                               const View& out, const AttentionOptions& options = {});
// The f32 result through a quantizer of the layer.
[[nodiscard]] OCTAVO_API QuantizedTensor attention_quantized(const Operand& q, const Operand& k,
                                                             const Operand& v, Quantizer& o,
                                                             const AttentionOptions& options = {});

// The same with a scaling: the codes of quantize(attention(..., {.out = f32}), scaling).
[[nodiscard]] OCTAVO_API QuantizedTensor attention_quantized(const Operand& q, const Operand& k,
                                                             const Operand& v,
                                                             const Scaling& scaling,
                                                             const AttentionOptions& options = {});

// The rounded Q, K and V of a rung, as f32 values of their shapes: the reference for the error of P
// alone, and the point at which gradients are taken.
struct AttentionInputs {
  Tensor q, k, v;
};
[[nodiscard]] OCTAVO_API AttentionInputs attention_inputs(const Operand& q, const Operand& k,
                                                          const Operand& v,
                                                          const AttentionOptions& options);

// Gradients, exact at the rung's rounded inputs up to the rounding of the results
// (straight-through: rounding of inputs and of P has derivative 1). automatic: at the given inputs.
struct AttentionGradients {
  Tensor q, k, v;
  Tensor sinks{};  // f32 [heads], where the options have sinks
};
// Results of the forward pass of the same call: the output, dense, and the log-sum-exp. Where given
// they are not recomputed, except for rows whose log-sum-exp is beyond 1024. In f32, of rung f32:
// other rungs have rounded P in both. On a device also those of rung bf16, the output in f32 or
// bf16: tensor cores round P as that rung does.
struct AttentionForward {
  View out{}, log_sum_exp{};
};
[[nodiscard]] OCTAVO_API AttentionGradients
attention_backward(const Operand& q, const Operand& k, const Operand& v, const View& d_out,
                   const AttentionOptions& options = {}, const AttentionForward& forward = {});

// Into memory of the caller's: dense views of the shapes of Q, K and V, of any value type; and, if
// given, f32 or f64 [heads] for the gradient of the sinks.
OCTAVO_API void attention_backward_into(const Operand& q, const Operand& k, const Operand& v,
                                        const View& d_out, const View& d_q, const View& d_k,
                                        const View& d_v, const AttentionOptions& options = {},
                                        const AttentionForward& forward = {},
                                        const View& d_sinks = {});

// Shape of the result; checks the operands.
[[nodiscard]] OCTAVO_API Shape attention_shape(const Operand& q, const Operand& k,
                                               const Operand& v);

// "exact", "f32", "bf16", "f16", "strict", "balanced", "fast", "naive", "auto".
OCTAVO_API std::string_view name_of(AttentionRung rung);
OCTAVO_API AttentionRung parse_attention_rung(std::string_view name);

}  // namespace octavo
