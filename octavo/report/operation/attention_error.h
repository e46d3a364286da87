// measure_attention(): the error of each rung of attention against f64, and its sources (inputs,
// scores, weights, output).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Relative L2 error after each of the four steps of an FP8 kernel.
struct AttentionStages {
  double inputs = 0.0;  // the rung's rounded Q, K and V: the largest of the three
  // Q K^T of those, after the soft cap where there is one, less the mean of each row, which softmax
  // does not see; with sinks, beside which it does, as they are.
  double scores = 0.0;
  double weights = 0.0;  // the rung's weights (P), measured through a V of random signs
  double output = 0.0;
};

struct AttentionRungError {
  AttentionRung rung = AttentionRung::bf16;
  std::int64_t elements = 0;
  // Outside atol + rtol |exact|, NaN included where the exact result is none. What is NaN in both
  // counts as equal, and is left out of the numbers below.
  std::int64_t failures = 0;
  // The same against exact attention of the rung's own inputs: the error without that of quantizing
  // them.
  std::int64_t failures_of_own = 0;
  double max_abs = 0.0, mean_abs = 0.0, relative_l2 = 0.0, cosine = 0.0;
  AttentionStages stages{};
  // auto, which is run on all rows even if only some are compared: rows computed on each rung, in
  // the order of AttentionRung, and the number of rows recomputed.
  std::vector<std::int64_t> rows_by_rung{};
  std::int64_t redone = 0;
};

struct AttentionErrorOptions {
  std::vector<AttentionRung> rungs = {AttentionRung::bf16,     AttentionRung::strict,
                                      AttentionRung::balanced, AttentionRung::fast,
                                      AttentionRung::naive,    AttentionRung::automatic};
  double rtol = 5e-3, atol = 5e-3;
  AttentionMask mask{};
  std::optional<double> softmax_scale{};
  double soft_cap = 0.0;  // as in AttentionOptions
  View sinks{};
  // Number of compared rows of each head, evenly spaced, including the first and the last; 0: all.
  std::int64_t rows = 64;
  int threads = 0;
  const Kernels* backend = nullptr;
};

// Q, K and V are values. The exact result is that of AttentionRung::exact, in f64.
[[nodiscard]] OCTAVO_API std::vector<AttentionRungError> measure_attention(
    const View& q, const View& k, const View& v, const AttentionErrorOptions& options = {});

// Sample inputs, bf16, [1, heads, tokens, head_size], the same on every machine.
enum class AttentionSample : std::uint8_t {
  normal,   // N(0, 1)
  outlier,  // K has 10 added to, or taken from, four channels
  peaked,   // scores have a standard deviation of 3
  biased,   // V has a mean of 0.7
};
struct AttentionSampleInputs {
  Tensor q, k, v;
};
[[nodiscard]] OCTAVO_API AttentionSampleInputs sample_attention(AttentionSample sample,
                                                                std::int64_t heads,
                                                                std::int64_t tokens,
                                                                std::int64_t head_size,
                                                                std::uint64_t seed);
OCTAVO_API std::string_view name_of(AttentionSample sample);
OCTAVO_API AttentionSample parse_attention_sample(std::string_view name);

}  // namespace octavo
