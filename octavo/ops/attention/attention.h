// Attention that states its error:
//   Tensor o = attention(q, k, v, {.mask = {.causal = true}});
// is softmax(softmax_scale Q K^T) V of every head, at the cheapest precision that meets a
// tolerance, or at the one asked for. docs/numerics/attention.md says what each rounds, and bounds.
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

// The rungs of the ladder: what Q, K and V are rounded to, and what P is. Inputs that are codes
// with scales already are taken as they are.
enum class AttentionRung : std::uint8_t {
  exact,      // nothing is rounded; reference only
  f32,        // values and P in f32
  bf16,       // values and P in bf16
  strict,     // Q, K, V in e4m3, P as two e4m3 terms: exact attention of those inputs within 5e-3
  balanced,   // Q and K in int8 per token, smoothed and turned; V and P in bf16
  fast,       // everything in e4m3: Q, K per token, K smoothed, V per channel, P times 256
  naive,      // what not to do: e4m3 without scales, P divided by its sum before it is rounded
  automatic,  // per head and range of rows, the cheapest of fast, balanced, strict, bf16 and f32
              // that is predicted to meet rtol and atol
};

// Which keys a row sees.
struct AttentionMask {
  bool causal = false;
  // Row i and key j are at the same place where j = i + diagonal: 0 as torch has it, or (true)
  // number of keys - number of queries, so that the last row sees the last key.
  bool bottom_right = false;
  // Sliding window: keys at most so far before and after the row's place; negative: no limit.
  std::int64_t left = -1, right = -1;
  // One for each batch, or empty: how many rows and keys there really are. What lies beyond is not
  // looked at; rows of the output there are zeros.
  std::span<const std::int64_t> query_lengths{}, key_lengths{};
  // If given: f32 numbers that are added to the scores, softmax_scale q k; -inf hides a key. Its
  // shape is [batch, heads, queries, keys], where any may be 1, or that without leading ones.
  View bias{};
};

// Why a rung was taken for some rows of a head.
struct AttentionChoice {
  AttentionRange rows{};
  AttentionRung rung = AttentionRung::bf16;
  // 1 / sum of squared weights, of the row that is likely the most peaked; 2 where no row was
  // looked at, which is the worst.
  double n_eff = 0.0;
  double predicted = 0.0;  // error of that row, at six standard deviations, corrected by a trial
  double tolerance = 0.0;  // atol, less what rounding the output takes
  std::string explanation{};
};
struct AttentionReport {
  std::vector<AttentionChoice> choices;
  std::int64_t redone =
      0;  // rows that came out too peaked for their rung, and were done again above
};

struct AttentionOptions {
  AttentionRung rung = AttentionRung::automatic;
  double rtol = 5e-3, atol = 5e-3;  // automatic only
  AttentionMask mask{};
  std::optional<double> softmax_scale{};  // 1 / sqrt(D)
  std::optional<DType> out{};             // the type of Q; f32 where Q is codes
  // f32, the shape of Q without its last dimension, dense. automatic: within the tolerance too.
  View log_sum_exp{};
  AttentionReport* report = nullptr;  // is filled with what was chosen, and why
  // Only these rows; others of the output are left as they are.
  std::span<const AttentionRange> ranges{};
  // State of a layer: Q, K and V (for strict and fast, where they are values) are quantized with
  // these instead of the rung's own scales, and the largest p is noted by p.
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

// What Q, K and V are on a rung, as f32 values of their shapes: what its error is measured against
// where the question is what P costs, and what gradients are taken at.
struct AttentionInputs {
  Tensor q, k, v;
};
[[nodiscard]] OCTAVO_API AttentionInputs attention_inputs(const Operand& q, const Operand& k,
                                                          const Operand& v,
                                                          const AttentionOptions& options);

// Gradients, exact at the rung's inputs up to what is stored (the rounding of inputs and of P is
// taken as if it were none). automatic: at the inputs as given.
struct AttentionGradients {
  Tensor q, k, v;
};
// What a forward pass of the same call made, in f32: the output, dense, and the log-sum-exp. Where
// it is given it is not found again, but for rows whose log-sum-exp is beyond 1024. For rung f32
// alone: others have rounded P in both.
struct AttentionForward {
  View out{}, log_sum_exp{};
};
[[nodiscard]] OCTAVO_API AttentionGradients
attention_backward(const Operand& q, const Operand& k, const Operand& v, const View& d_out,
                   const AttentionOptions& options = {}, const AttentionForward& forward = {});

// Into memory of the caller's: dense views of the shapes of Q, K and V, of any value type.
OCTAVO_API void attention_backward_into(const Operand& q, const Operand& k, const Operand& v,
                                        const View& d_out, const View& d_q, const View& d_k,
                                        const View& d_v, const AttentionOptions& options = {},
                                        const AttentionForward& forward = {});

// Of the result, checked.
[[nodiscard]] OCTAVO_API Shape attention_shape(const Operand& q, const Operand& k,
                                               const Operand& v);

// "exact", "f32", "bf16", "strict", "balanced", "fast", "naive", "auto".
OCTAVO_API std::string_view name_of(AttentionRung rung);
OCTAVO_API AttentionRung parse_attention_rung(std::string_view name);

}  // namespace octavo
