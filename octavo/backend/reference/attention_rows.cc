#include <algorithm>
#include <array>

#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/dequantized_internal.h"

namespace octavo::reference {
namespace {

constexpr double kLog2E = 1.4426950408889634;

double rounded_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(value));
  if (dtype != DType::bf16) return value;
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee};
  return decode(bf16_format, encode_value(bf16_format, value, kRoundOnce).code);
}

}  // namespace

std::vector<double> rows_of(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                            DType values, bool turned) {
  const std::int64_t cols = operand.cols();
  std::vector<double> rows(static_cast<std::size_t>(count * cols));
  const bool as_it_is = operand.values.dtype == values || values == DType::f64;
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      double number = 0.0;
      if (operand.is_quantized()) {
        number = dequantized(operand.quantized, first + row, col);
      } else {
        number = load_value(operand.values, first + row, col);
        if (!as_it_is) number = rounded_to(values, number);
      }
      rows[static_cast<std::size_t>(turned ? col * count + row : row * cols + col)] = number;
    }
  return rows;
}

AttentionJob::Keys keys_of_all(const std::vector<ScoredRow>& rows) {
  AttentionJob::Keys all{};
  bool any = false;
  for (const ScoredRow& row : rows) {
    if (row.keys.begin >= row.keys.end) continue;
    all = any ? AttentionJob::Keys{std::min(all.begin, row.keys.begin),
                                   std::max(all.end, row.keys.end)}
              : row.keys;
    any = true;
  }
  return all;
}

std::vector<ScoredRow> scored_rows(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                                   std::int64_t first, std::int64_t count, std::vector<double>& q) {
  const GemmOperand q_matrix = job.q.at(batch, head), k_matrix = job.k.at(batch, job.kv_head(head));
  const double factor = static_cast<double>(job.softmax_scale) * kLog2E;
  const std::int64_t depth = q_matrix.cols();
  std::vector<ScoredRow> rows(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    ScoredRow& row = rows[static_cast<std::size_t>(i)];
    row.row = first + i;
    row.keys = job.keys_of(batch, first + i);
    if (row.keys.begin < row.keys.end)
      row.scores.resize(static_cast<std::size_t>(row.keys.end - row.keys.begin));
  }
  // Rows beyond their batch's length are padding, which may hold anything.
  q.assign(static_cast<std::size_t>(count * depth), 0.0);
  const std::int64_t length = job.query_lengths != nullptr ? job.query_lengths[batch] : job.queries;
  const std::int64_t real = std::clamp<std::int64_t>(length - first, 0, count);
  if (real > 0) {
    const std::vector<double> numbers = rows_of(q_matrix, first, real, job.values);
    std::copy(numbers.begin(), numbers.end(), q.begin());
  }

  const AttentionJob::Keys all = keys_of_all(rows);
  for (std::int64_t key = all.begin; key < all.end; key += kAttentionKeys) {
    const std::int64_t keys = std::min(kAttentionKeys, all.end - key);
    const std::vector<double> k = rows_of(k_matrix, key, keys, job.values, true);
    for (ScoredRow& row : rows) {
      const std::int64_t begin = std::max(row.keys.begin, key),
                         end = std::min(row.keys.end, key + keys);
      if (begin >= end) continue;
      // One sum per key, from the first product to the last; side by side, so that they vectorize.
      std::array<double, kAttentionKeys> sums{};
      const double* numbers = q.data() + (row.row - first) * depth;
      for (std::int64_t d = 0; d < depth; ++d)
        for (std::int64_t j = 0; j < keys; ++j)
          sums[static_cast<std::size_t>(j)] +=
              numbers[d] * k[static_cast<std::size_t>(d * keys + j)];
      for (std::int64_t j = begin; j < end; ++j)
        row.scores[static_cast<std::size_t>(j - row.keys.begin)] =
            sums[static_cast<std::size_t>(j - key)] * factor;
    }
  }
  return rows;
}

void for_each_piece(const AttentionJob& job,
                    const std::function<void(std::int64_t batch, std::int64_t head,
                                             std::int64_t first, std::int64_t count)>& visit) {
  const auto cut = [&](const AttentionRange& range) {
    for (std::int64_t at = 0; at < range.count; at += kAttentionRows)
      visit(range.batch, range.head, range.first + at, std::min(kAttentionRows, range.count - at));
  };
  if (job.ranges != nullptr) {
    for (std::int64_t i = 0; i < job.range_count; ++i) cut(job.ranges[i]);
    return;
  }
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t head = 0; head < job.heads; ++head)
      cut({.batch = batch, .head = head, .first = 0, .count = job.queries});
}

}  // namespace octavo::reference
