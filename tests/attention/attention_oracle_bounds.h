// Rows of a call beside the bounds it gives for them and the oracle, which shares no code with the
// library: masks, lengths, biases, soft caps, sinks, grouped heads, values and codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {

inline oracle::Rows rows_of(const Tensor& tensor, std::int64_t batch, std::int64_t head) {
  return rows_of(tensor.view(), batch, head);
}

// Rows that were looked at.
struct HeldRows {
  std::int64_t rows = 0, above = 0;
  std::int64_t unknown = 0;  // of an infinite bound
  std::int64_t outside = 0;  // of a choice that promised the tolerance and did not keep it
  double closest = 0.0;      // the largest share of a bound that an error is
  std::string first{};       // which row was above, or outside

  void add(const HeldRows& other) {
    rows += other.rows;
    above += other.above;
    unknown += other.unknown;
    outside += other.outside;
    closest = std::max(closest, other.closest);
    if (first.empty()) first = other.first;
  }
};

// f64 sums of the oracle are themselves off by some of their units.
inline constexpr double kOracleUnit = 1e-12;

// The oracle's view of a call.
struct OracleCall {
  const AttentionOptions& options;
  std::vector<float> sinks{};    // those that the options view
  const Tensor* bias = nullptr;  // [batch, heads, queries, keys], all of them

  [[nodiscard]] oracle::Sees sees(std::int64_t batch, std::int64_t queries,
                                  std::int64_t keys) const {
    const AttentionMask& mask = options.mask;
    const auto at = static_cast<std::size_t>(batch);
    const std::int64_t rows = mask.query_lengths.empty() ? queries : mask.query_lengths[at],
                       count = mask.key_lengths.empty() ? keys : mask.key_lengths[at];
    return {.causal = mask.causal,
            .left = mask.left,
            .right = mask.right,
            .diagonal = mask.bottom_right ? count - rows : 0,
            .keys = count};
  }
  [[nodiscard]] bool is_padding(std::int64_t batch, std::int64_t row) const {
    const auto lengths = options.mask.query_lengths;
    return !lengths.empty() && row >= lengths[static_cast<std::size_t>(batch)];
  }
  [[nodiscard]] oracle::Logits logits(std::int64_t batch, std::int64_t head,
                                      std::int64_t row) const {
    oracle::Logits made = logits_of(options.soft_cap, sinks, head);
    if (bias == nullptr) return made;
    const Shape& shape = bias->shape();
    const std::size_t first =
        static_cast<std::size_t>(((batch * shape[1] + head) * shape[2] + row) * shape[3]);
    for (const float number :
         bias->span<float>().subspan(first, static_cast<std::size_t>(shape[3])))
      made.bias.push_back(static_cast<double>(number));
    return made;
  }
};

inline const AttentionChoice* choice_of(const AttentionReport& report, std::int64_t batch,
                                        std::int64_t head, std::int64_t row) {
  for (const AttentionChoice& choice : report.choices)
    if (choice.rows.batch == batch && choice.rows.head == head && row >= choice.rows.first &&
        row < choice.rows.first + choice.rows.count)
      return &choice;
  return nullptr;
}

// Calls with a bound. Where `auto` is certified, choices keep what they promise, too. Q, K and V:
// tensors of values or codes.
template <typename Q, typename K, typename V>
HeldRows held_rows(const Q& q, const K& k, const V& v, OracleCall call) {
  AttentionOptions options = call.options;
  const Shape shape = attention_shape(q, k, v);
  const std::int64_t batches = shape[0], heads = shape[1], queries = shape[2], width = shape[3];
  const Tensor bound = Tensor::values({batches, heads, queries}, DType::f32);
  std::ranges::fill(bound.span<float>(), -1.0F);  // no row may be left out
  AttentionReport report;
  options.bound = bound.view();
  if (options.certified) options.report = &report;
  const Tensor out = attention(q, k, v, options);
  HeldRows held;
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t head = 0; head < heads; ++head) {
      const oracle::Rows q_rows = rows_of(q, batch, head), got = rows_of(out, batch, head);
      const Shape& of_keys = Operand(k).shape();
      const std::int64_t keys = of_keys[2], kv_head = head / (heads / of_keys[1]);
      const oracle::Rows k_rows = rows_of(k, batch, kv_head), v_rows = rows_of(v, batch, kv_head);
      const double scale =
          options.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(of_keys[3])));
      for (std::int64_t row = 0; row < queries; ++row) {
        oracle::AttendedRow exact;
        exact.out.assign(static_cast<std::size_t>(width), 0.0);
        const auto at = static_cast<std::size_t>(row);
        if (!call.is_padding(batch, row))
          exact =
              oracle::attended(q_rows[at], k_rows, v_rows, scale, call.sees(batch, queries, keys),
                               row, call.logits(batch, head, row));
        const AttentionChoice* const choice = choice_of(report, batch, head, row);
        const bool promises = choice != nullptr && choice->predicted <= choice->tolerance;
        double error = 0.0, size = 0.0;
        bool is_outside = false;
        for (std::size_t e = 0; e < exact.out.size(); ++e) {
          const double off = std::abs(got[at][e] - exact.out[e]);
          if (error == error && !(off <= error)) error = off;  // NaN stays
          size = std::max(size, std::abs(exact.out[e]));
          is_outside |= promises && !(off <= options.atol * (1.0 + 1e-6) +
                                                 options.rtol * std::abs(exact.out[e]));
        }
        const auto limit = static_cast<double>(
            bound.span<float>()[static_cast<std::size_t>((batch * heads + head) * queries + row)]);
        const bool is_above = error == error ? !(error <= limit + kOracleUnit * size)
                                             : limit != std::numeric_limits<double>::infinity();
        ++held.rows;
        held.unknown += std::isinf(limit);
        held.above += is_above;
        held.outside += is_outside;
        if (error > 0.0) held.closest = std::max(held.closest, error / limit);
        if ((is_above || is_outside) && held.first.empty())
          held.first = "batch " + std::to_string(batch) + ", head " + std::to_string(head) +
                       ", row " + std::to_string(row) + ": error " + std::to_string(error) +
                       ", share of the bound " + std::to_string(error / limit) +
                       (choice != nullptr ? ", " + std::string(octavo::name_of(choice->rung)) : "");
      }
    }
  return held;
}

}  // namespace octavo::testing
