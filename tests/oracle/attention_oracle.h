// The attention oracle, in f64, in textbook form: natural exponentials, the row's maximum as it is,
// one row at a time. Shares nothing with the library but the meaning of a mask, which is written
// out again here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace oracle {

using Rows = std::vector<std::vector<double>>;

// Which keys a row sees.
struct Sees {
  bool causal = false;
  std::int64_t left = -1, right = -1;  // negative: no limit
  std::int64_t diagonal = 0;           // row i stands at key i + diagonal
  std::int64_t keys = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] bool operator()(std::int64_t row, std::int64_t key) const {
    const std::int64_t distance = key - (row + diagonal);
    if (key >= keys) return false;
    if (causal && distance > 0) return false;
    if (left >= 0 && -distance > left) return false;
    return right < 0 || distance <= right;
  }
};

// What scores go through before softmax: cap tanh(x / cap) where there is a cap, a number that is
// added for each key where there are some, and a logit that is appended to them, without a value.
struct Logits {
  double soft_cap = 0.0;
  double sink = -std::numeric_limits<double>::infinity();
  std::vector<double> bias{};  // of the row's keys
};

struct AttendedRow {
  std::vector<double> out;
  double log_sum_exp = -std::numeric_limits<double>::infinity();
  std::vector<double> weights;
};

inline AttendedRow attended(const std::vector<double>& q, const Rows& k, const Rows& v,
                            double softmax_scale, const Sees& sees, std::int64_t row,
                            const Logits& logits = {}) {
  AttendedRow result;
  result.out.assign(v.empty() ? 0 : v[0].size(), 0.0);
  result.weights.assign(k.size(), 0.0);
  std::vector<double> scores(k.size());
  double largest = logits.sink;
  for (std::size_t j = 0; j < k.size(); ++j) {
    if (!sees(row, static_cast<std::int64_t>(j))) continue;
    double dot = 0.0;
    for (std::size_t d = 0; d < q.size(); ++d) dot += q[d] * k[j][d];
    scores[j] = dot * softmax_scale;
    if (logits.soft_cap != 0.0)
      scores[j] = std::tanh(scores[j] / logits.soft_cap) * logits.soft_cap;
    if (!logits.bias.empty()) scores[j] += logits.bias[j];
    largest = std::max(largest, scores[j]);
  }
  if (largest == -std::numeric_limits<double>::infinity()) return result;
  double sum = std::exp(logits.sink - largest);
  for (std::size_t j = 0; j < k.size(); ++j)
    if (sees(row, static_cast<std::int64_t>(j))) {
      result.weights[j] = std::exp(scores[j] - largest);
      sum += result.weights[j];
    }
  for (std::size_t j = 0; j < k.size(); ++j) {
    result.weights[j] /= sum;
    if (result.weights[j] == 0.0) continue;
    for (std::size_t e = 0; e < result.out.size(); ++e)
      result.out[e] += result.weights[j] * v[j][e];
  }
  result.log_sum_exp = largest + std::log(sum);
  return result;
}

}  // namespace oracle
