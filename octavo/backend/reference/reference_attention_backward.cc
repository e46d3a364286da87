// Reference attention backward, by definition. With P the weights of a row (they sum to one), O its
// output and dO the gradient of O:
//   dV = P^T dO,   dP = dO V^T,   dS = P (dP - sum_e dO O),   dQ = scale dS K,   dK = scale dS^T Q,
// where a soft cap multiplies dS by its slope, 1 - tanh^2. A sink has a weight in P, which sums to
// less than one without it, and a value of zero: its gradient is minus that weight times sum_e dO
// O. Dropout multiplies weights by 0 or its factor, and so dP and what dV takes of P, but not P in
// dS. P is recomputed from Q and K, and delta = sum_e dO O as sum_j P dP, so neither out nor
// log_sum_exp of the forward pass is read.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/attention_sink.h"
#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

// Scores to weights that sum to one with that of the sink, which is returned as `of_sink`. Returns
// false where the row has no gradient, because it sees no key.
bool weigh(const AttentionJob& job, std::int64_t head, std::vector<double>& scores,
           double& of_sink) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  double largest = -kInf, sum = 0.0;
  bool poisoned = false;
  for (const double score : scores) {
    largest = std::max(largest, score);
    if (score != score || score == kInf) poisoned = true;
  }
  if (!poisoned && largest == -kInf && !beside_sink(job.sinks, head, -kInf).poisoned) return false;
  for (double& score : scores) {
    score = poisoned ? std::numeric_limits<double>::quiet_NaN() : std::exp2(score - largest);
    sum += score;
  }
  const BesideSink beside = beside_sink(job.sinks, head, largest + std::log2(sum));
  if (beside.poisoned) sum = std::numeric_limits<double>::quiet_NaN();
  for (double& p : scores) p = p / sum * beside.share;
  of_sink = 1.0 - beside.share;
  return true;
}

struct Gradients {
  std::vector<double> d_k, d_v;  // of one head of K and V, all keys
};

// One row of queries: adds to dK and dV, and writes dQ. Returns sum_e dO O.
double add_row(const AttentionBackwardJob& job, const ScoredRow& row, const double* q,
               const std::vector<double>& k, const std::vector<double>& v, const double* d_out,
               std::int64_t batch, std::int64_t head, std::vector<double>& d_q, Gradients& sums) {
  const std::int64_t depth = job.forward.q.first.cols(), width = job.forward.v.first.cols();
  const auto scale = job.forward.softmax_scale;
  const double factor = job.forward.dropout.exists() ? job.forward.dropout.factor() : 1.0;
  std::vector<double> d_p(row.scores.size());
  double along = 0.0;
  for (std::size_t j = 0; j < d_p.size(); ++j) {
    const std::int64_t key = row.keys.begin + static_cast<std::int64_t>(j);
    if (is_masked(job.forward, batch, head, row.row, key) ||
        !is_kept(job.forward, batch, head, row.row, key))
      continue;
    const double* values = v.data() + key * width;
    double sum = 0.0;
    for (std::int64_t e = 0; e < width; ++e) sum += d_out[e] * values[e];
    d_p[j] = sum * factor;
    along += row.scores[j] * d_p[j];
    double* d_v = sums.d_v.data() + key * width;
    for (std::int64_t e = 0; e < width; ++e) d_v[e] += row.scores[j] * factor * d_out[e];
  }
  for (std::size_t j = 0; j < d_p.size(); ++j) {
    const std::int64_t key = row.keys.begin + static_cast<std::int64_t>(j);
    if (is_masked(job.forward, batch, head, row.row, key)) continue;
    const double slope = row.slopes.empty() ? 1.0 : row.slopes[j],
                 d_s = row.scores[j] * (d_p[j] - along) * scale * slope;
    const double* numbers = k.data() + key * depth;
    double* d_k = sums.d_k.data() + key * depth;
    for (std::int64_t d = 0; d < depth; ++d) {
      d_q[static_cast<std::size_t>(d)] += d_s * numbers[d];
      d_k[d] += d_s * q[d];
    }
  }
  return along;
}

}  // namespace

void attention_backward(const Exec&, const AttentionBackwardJob& job) {
  const FpEnvGuard guard;
  const AttentionJob& forward = job.forward;
  const std::int64_t depth = forward.q.first.cols(), width = forward.v.first.cols();
  for (std::int64_t batch = 0; batch < forward.batches; ++batch)
    for (std::int64_t kv = 0; kv < forward.kv_heads; ++kv) {
      const std::int64_t length =
          forward.key_lengths != nullptr ? forward.key_lengths[batch] : forward.keys;
      std::vector<double> k = rows_of(forward.k.at(batch, kv), 0, length, forward.values),
                          v = rows_of(forward.v.at(batch, kv), 0, length, forward.values);
      Gradients sums{.d_k = std::vector<double>(static_cast<std::size_t>(forward.keys * depth)),
                     .d_v = std::vector<double>(static_cast<std::size_t>(forward.keys * width))};
      const std::int64_t group = forward.heads / forward.kv_heads;
      for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
        for (std::int64_t first = 0; first < forward.queries; first += kAttentionRows) {
          const std::int64_t count = std::min(kAttentionRows, forward.queries - first);
          std::vector<double> q;
          std::vector<std::int64_t> wanted(static_cast<std::size_t>(count));
          std::iota(wanted.begin(), wanted.end(), first);
          std::vector<ScoredRow> rows = scored_rows(forward, batch, head, wanted, q);
          for (std::int64_t i = 0; i < count; ++i) {
            ScoredRow& row = rows[static_cast<std::size_t>(i)];
            std::vector<double> d_q(static_cast<std::size_t>(depth), 0.0);
            double of_sink = 0.0;
            if (row.keys.begin < row.keys.end && weigh(forward, head, row.scores, of_sink)) {
              const double along =
                  add_row(job, row, q.data() + i * depth, k, v,
                          rows_of(job.d_out.at(batch, head), first + i, 1, DType::f64).data(),
                          batch, head, d_q, sums);
              if (job.d_sinks != nullptr) job.d_sinks[head] -= of_sink * along;
            }
            const Matrix to = job.d_q.at(batch, head).values;
            for (std::int64_t d = 0; d < depth; ++d)
              store_value(to, first + i, d, d_q[static_cast<std::size_t>(d)]);
          }
        }
      const Matrix to_k = job.d_k.at(batch, kv).values, to_v = job.d_v.at(batch, kv).values;
      for (std::int64_t key = 0; key < forward.keys; ++key) {
        for (std::int64_t d = 0; d < depth; ++d)
          store_value(to_k, key, d, sums.d_k[static_cast<std::size_t>(key * depth + d)]);
        for (std::int64_t e = 0; e < width; ++e)
          store_value(to_v, key, e, sums.d_v[static_cast<std::size_t>(key * width + e)]);
      }
    }
}

}  // namespace octavo::reference
