// Reference attention, by definition; attention_job.h has the formulas.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/attention_sink.h"
#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

double rounded(const Format& format, double value, Rounding rounding = Rounding::nearest_even) {
  const EncodePolicy policy{.rounding = rounding};
  return decode(format, encode_value(format, value, policy).code);
}

// P rounded to its type, factor included.
double rounded_p(AttentionP form, double p) {
  switch (form) {
    case AttentionP::f64:
      return p;
    case AttentionP::f32:
      return static_cast<double>(static_cast<float>(p));
    case AttentionP::bf16:
      return rounded(bf16_format, p);
    case AttentionP::f16:
      return rounded(f16_format, p);
    case AttentionP::fp8:
    case AttentionP::fp8_normalized:
      return rounded(e4m3fn, p);
    case AttentionP::fp8_split: {
      const double high = rounded(e4m3fn, p, Rounding::toward_zero);
      return high + rounded(e4m3fn, p - high);
    }
  }
  return p;
}

// The softmax of a row's scores.
struct Weights {
  bool empty = true;      // sees no key, or only scores of -inf
  bool poisoned = false;  // sees a NaN, or a score of +inf
  double divisor = 1.0;   // of sum_j P_j V_j
  double log2_sum = -std::numeric_limits<double>::infinity();  // of 2^score, and of the sink
  double largest_p = 0.0, exact_sum = 1.0;
  double squares = 0.0;    // of P over its sum
  double share = 1.0;      // of the keys, beside the sink
  bool has_share = false;  // P was multiplied by it before it was rounded
};

void take_sink(const AttentionJob& job, std::int64_t head, Weights& weights) {
  const BesideSink beside = beside_sink(job.sinks, head, weights.log2_sum);
  if (beside.poisoned) {
    weights.poisoned = true;
    weights.largest_p = 0.0;
  }
  weights.log2_sum = beside.log2_sum;
  weights.share = beside.share;
}

// Scores become P, in place.
Weights weigh(const AttentionJob& job, std::int64_t head, std::vector<double>& scores) {
  Weights result;
  double largest = -std::numeric_limits<double>::infinity();
  for (const double score : scores) {
    if (score != score) result.poisoned = true;
    largest = std::max(largest, score);
  }
  if (largest == std::numeric_limits<double>::infinity()) result.poisoned = true;
  result.empty = !result.poisoned && largest == -std::numeric_limits<double>::infinity();
  if (result.empty || result.poisoned) {
    take_sink(job, head, result);
    return result;
  }

  const double top = std::ceil(largest), factor = static_cast<double>(job.p_factor);
  const bool normalized = job.p == AttentionP::fp8_normalized;
  result.largest_p = std::exp2(largest - top);
  double sum = 0.0;
  double& exact_sum = result.exact_sum = 0.0;
  for (double& score : scores) {
    score = std::exp2(score - top);
    exact_sum += score;
  }
  if (normalized) {
    result.log2_sum = top + std::log2(exact_sum);
    take_sink(job, head, result);
    for (double& p : scores) p = rounded_p(job.p, p / exact_sum * result.share * factor);
    for (const double p : scores) result.squares += p / factor * (p / factor);
    result.divisor = factor;
    result.has_share = true;
    return result;
  }
  for (double& p : scores) {
    p = rounded_p(job.p, p * factor);
    sum += p;
  }
  for (const double p : scores) result.squares += p / sum * (p / sum);
  result.divisor = sum;
  result.log2_sum = top + std::log2(sum / factor);
  take_sink(job, head, result);
  return result;
}

// Padding has no sink.
Weights weights_of(const AttentionJob& job, std::int64_t batch, std::int64_t head, ScoredRow& row) {
  const bool is_padding = job.query_lengths != nullptr && row.row >= job.query_lengths[batch];
  return is_padding ? Weights{} : weigh(job, head, row.scores);
}

// The epilogue of one row, from P, or of a row that sees no key.
void epilogue(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
              const Weights& weights, const double* q, const double* sums) {
  const Matrix out = job.out.at(batch, head).values;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t e = 0; e < out.cols; ++e)
    store_value(out, row, e,
                weights.poisoned ? kNaN
                : weights.empty
                    ? 0.0
                    : sums[e] / weights.divisor * (weights.has_share ? 1.0 : weights.share));
  if (job.p_amax != nullptr)
    *job.p_amax = std::max(*job.p_amax, static_cast<float>(weights.largest_p));
  const std::int64_t at = (batch * job.heads + head) * job.queries + row;
  if (job.largest_weight != nullptr)
    job.largest_weight[at] = static_cast<float>(
        weights.poisoned ? kNaN : weights.largest_p / weights.exact_sum * weights.share);
  if (job.weight_squares != nullptr)
    job.weight_squares[at] =
        static_cast<float>(weights.poisoned    ? kNaN
                           : weights.has_share ? weights.squares
                                               : weights.squares * weights.share * weights.share);
  if (job.log_sum_exp == nullptr) return;
  double result = weights.poisoned ? kNaN : weights.log2_sum * std::numbers::ln2;
  if (job.key_shift != nullptr && !weights.empty) {
    const std::int64_t depth = job.q.first.cols();
    const float* shift = job.key_shift + (batch * job.kv_heads + job.kv_head(head)) * depth;
    double along = 0.0;
    for (std::int64_t d = 0; d < depth; ++d) along += q[d] * static_cast<double>(shift[d]);
    result += along * job.softmax_scale;
  }
  job.log_sum_exp[at] = static_cast<float>(result);
}

}  // namespace

void attention(const Exec&, const AttentionJob& job) {
  const FpEnvGuard guard;
  for_each_piece(job, [&](std::int64_t batch, std::int64_t head,
                          std::span<const std::int64_t> wanted) {
    std::vector<double> q;
    std::vector<ScoredRow> rows = scored_rows(job, batch, head, wanted, q);
    const AttentionJob::Keys all = keys_of_all(rows);
    std::vector<Weights> weights;
    for (ScoredRow& row : rows) weights.push_back(weights_of(job, batch, head, row));

    const std::int64_t width = job.out.first.cols(), depth = job.q.first.cols();
    const auto count = static_cast<std::int64_t>(rows.size());
    std::vector<double> sums(static_cast<std::size_t>(count * width), 0.0);
    const double factor = job.dropout.exists() ? job.dropout.factor() : 1.0;
    for (std::int64_t key = all.begin; key < all.end; key += kAttentionKeys) {
      const std::int64_t keys = std::min(kAttentionKeys, all.end - key);
      const std::vector<double> v = key_rows_of(job, job.v, batch, job.kv_head(head), key, keys);
      for (std::int64_t i = 0; i < count; ++i) {
        const ScoredRow& row = rows[static_cast<std::size_t>(i)];
        const Weights& weight = weights[static_cast<std::size_t>(i)];
        if (weight.empty || weight.poisoned) continue;
        double* sum = sums.data() + i * width;
        for (std::int64_t j = std::max(key, row.keys.begin); j < std::min(key + keys, row.keys.end);
             ++j) {
          if (is_masked(job, batch, head, row.row, j) || !is_kept(job, batch, head, row.row, j))
            continue;
          const double p = row.scores[static_cast<std::size_t>(j - row.keys.begin)] * factor;
          const double* values = v.data() + (j - key) * width;
          for (std::int64_t e = 0; e < width; ++e) sum[e] += p * values[e];
        }
      }
    }
    for (std::int64_t i = 0; i < count; ++i)
      epilogue(job, batch, head, rows[static_cast<std::size_t>(i)].row,
               weights[static_cast<std::size_t>(i)], q.data() + i * depth, sums.data() + i * width);
  });
}

}  // namespace octavo::reference
