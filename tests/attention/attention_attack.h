// Adversarial inputs, for which errors of single keys do not average out: `auto` must detect them
// before it takes a cheap rung, or at the latest in its posteriori check.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {

// Numbers of one head, [rows][channels], drawn before anything is done to them: N(0, 1).
using Numbers = std::vector<std::vector<float>>;

struct AttackSizes {
  std::int64_t queries = 384, keys = 4096, depth = 64, heads = 1, kv_heads = 1;
};

// One head's inputs, changed in place.
struct Attack {
  std::string name;
  std::function<void(Numbers& q, Numbers& k, Numbers& v, std::mt19937_64& random)> edit;
  AttackSizes sizes{};
  AttentionMask mask{};
  DType dtype = DType::f32;
  std::optional<double> softmax_scale{};
};

inline Numbers drawn_numbers(std::int64_t rows, std::int64_t cols, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  Numbers numbers(static_cast<std::size_t>(rows),
                  std::vector<float>(static_cast<std::size_t>(cols)));
  for (std::vector<float>& row : numbers)
    for (float& number : row) number = normal(random);
  return numbers;
}

inline Made attacked(const Attack& attack, unsigned seed) {
  std::mt19937_64 random(seed);
  const AttackSizes& sizes = attack.sizes;
  std::vector<float> q_all, k_all, v_all;
  const auto add = [](std::vector<float>& all, const Numbers& numbers) {
    for (const std::vector<float>& row : numbers) all.insert(all.end(), row.begin(), row.end());
  };
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  for (std::int64_t head = 0; head < sizes.kv_heads; ++head) {
    Numbers k = drawn_numbers(sizes.keys, sizes.depth, random),
            v = drawn_numbers(sizes.keys, sizes.depth, random),
            q = drawn_numbers(sizes.queries * group, sizes.depth, random);
    attack.edit(q, k, v, random);
    add(q_all, q);
    add(k_all, k);
    add(v_all, v);
  }
  Made made;
  made.q = tensor_of({1, sizes.heads, sizes.queries, sizes.depth}, q_all, attack.dtype);
  made.k = tensor_of({1, sizes.kv_heads, sizes.keys, sizes.depth}, k_all, attack.dtype);
  made.v = tensor_of({1, sizes.kv_heads, sizes.keys, sizes.depth}, v_all, attack.dtype);
  return made;
}

// The outcome: sampled rows of the first head, against f64.
struct Outcome {
  std::int64_t elements = 0, failures = 0, redone = 0;
  double worst = 0.0;    // error over tolerance
  std::string chosen{};  // rungs of ranges of the first head, counted
};

inline Outcome outcome_of(const Attack& attack, unsigned seed, double tolerance,
                          std::int64_t rows_looked_at = 96) {
  const Made made = attacked(attack, seed);
  AttentionReport report;
  const Tensor out = attention(made.q, made.k, made.v,
                               {.rtol = tolerance,
                                .atol = tolerance,
                                .mask = attack.mask,
                                .softmax_scale = attack.softmax_scale,
                                .out = DType::f32,
                                .report = &report});
  const std::int64_t head = attack.sizes.heads - 1;
  const oracle::Rows q = rows_of(made.q.view(), 0, head),
                     k = rows_of(made.k.view(), 0, attack.sizes.kv_heads - 1),
                     v = rows_of(made.v.view(), 0, attack.sizes.kv_heads - 1),
                     got = rows_of(out.view(), 0, head);
  oracle::Sees sees{
      .causal = attack.mask.causal, .left = attack.mask.left, .right = attack.mask.right};
  std::int64_t rows = attack.sizes.queries;
  if (!attack.mask.key_lengths.empty()) sees.keys = attack.mask.key_lengths[0];
  if (!attack.mask.query_lengths.empty()) rows = attack.mask.query_lengths[0];
  const double scale =
      attack.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(attack.sizes.depth)));
  Outcome outcome{.redone = report.redone};
  const std::int64_t step = std::max<std::int64_t>(1, rows / rows_looked_at);
  for (std::int64_t row = 0; row < rows; row += row < 16 ? 1 : step) {
    const oracle::AttendedRow exact =
        oracle::attended(q[static_cast<std::size_t>(row)], k, v, scale, sees, row);
    for (std::size_t e = 0; e < exact.out.size(); ++e) {
      const double error = std::abs(got[static_cast<std::size_t>(row)][e] - exact.out[e]),
                   allowed = tolerance + tolerance * std::abs(exact.out[e]);
      ++outcome.elements;
      outcome.failures += !(error <= allowed);
      outcome.worst = std::max(outcome.worst, error / allowed);
    }
  }
  for (const AttentionRung rung :
       {AttentionRung::fast, AttentionRung::balanced, AttentionRung::strict, AttentionRung::bf16,
        AttentionRung::f32, AttentionRung::exact}) {
    std::int64_t count = 0;
    for (const AttentionChoice& choice : report.choices) count += choice.rung == rung;
    if (count > 0)
      outcome.chosen += std::string(octavo::name_of(rung)) + " " + std::to_string(count) + " ";
  }
  return outcome;
}

}  // namespace octavo::testing
