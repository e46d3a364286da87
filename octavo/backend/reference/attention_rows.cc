#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/backend/attention_dropout_mask.h"
#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/dequantized_internal.h"

namespace octavo::reference {
namespace {

double rounded_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(value));
  if (dtype != DType::bf16) return value;
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee};
  return decode(bf16_format, encode_value(bf16_format, value, kRoundOnce).code);
}

// Of a score in units of log2. An infinite score, whose true size is unknown, becomes NaN.
double soft_capped(const AttentionJob& job, double score) {
  if (job.soft_cap == 0.0) return score;
  if (!std::isfinite(score)) return std::numeric_limits<double>::quiet_NaN();
  const double cap = job.soft_cap * std::numbers::log2e;
  return cap * std::tanh(score / cap);
}

// 1 - tanh^2, without the cancellation of that.
double slope_of_soft_cap(const AttentionJob& job, double score) {
  const double wide = std::cosh(score / (job.soft_cap * std::numbers::log2e));
  return 1.0 / (wide * wide);
}

// -inf masks a key, whatever its score.
double with_bias(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
                 std::int64_t key, double score) {
  if (job.bias.first == nullptr) return score;
  const auto bias = static_cast<double>(job.bias.at(batch, head, row)[key * job.bias.key]);
  return is_masked(job, batch, head, row, key)
             ? bias
             : score + bias * static_cast<double>(job.bias.factor) * std::numbers::log2e;
}

}  // namespace

bool is_masked(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
               std::int64_t key) {
  return job.bias.first != nullptr &&
         job.bias.at(batch, head, row)[key * job.bias.key] == -HUGE_VALF;
}

bool is_kept(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
             std::int64_t key) {
  return !job.dropout.exists() || dropout_keep(job.dropout, batch, head, row, key);
}

std::vector<double> rows_of(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                            DType values, bool transposed) {
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
      rows[static_cast<std::size_t>(transposed ? col * count + row : row * cols + col)] = number;
    }
  return rows;
}

std::vector<double> key_rows_of(const AttentionJob& job, const AttentionOperand& operand,
                                std::int64_t batch, std::int64_t kv_head, std::int64_t first,
                                std::int64_t count, bool transposed) {
  if (!job.pages.exist())
    return rows_of(operand.at(batch, kv_head), first, count, job.values, transposed);
  const AttentionPages& pages = job.pages;
  const std::int64_t cols = operand.first.cols();
  std::vector<double> rows(static_cast<std::size_t>(count * cols),
                           std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t key = first + done, row = key % pages.page_rows,
                       here = std::min(count - done, pages.page_rows - row);
    const std::int64_t page = pages.table[batch * pages.table_pitch + key / pages.page_rows];
    if (page >= 0 && page < pages.page_count) {
      const std::vector<double> some = rows_of(operand.at(page, kv_head), row, here, job.values);
      for (std::int64_t i = 0; i < here; ++i)
        for (std::int64_t col = 0; col < cols; ++col)
          rows[static_cast<std::size_t>(transposed ? col * count + done + i
                                                   : (done + i) * cols + col)] =
              some[static_cast<std::size_t>(i * cols + col)];
    }
    done += here;
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
                                   std::span<const std::int64_t> wanted, std::vector<double>& q) {
  const GemmOperand q_matrix = job.q.at(batch, head);
  const double factor = job.softmax_scale * std::numbers::log2e;
  const std::int64_t depth = q_matrix.cols();
  const std::int64_t length = job.query_lengths != nullptr ? job.query_lengths[batch] : job.queries;
  std::vector<ScoredRow> rows(wanted.size());
  // Rows beyond their batch's length are padding, which may hold anything.
  q.assign(wanted.size() * static_cast<std::size_t>(depth), 0.0);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ScoredRow& row = rows[i];
    row.row = wanted[i];
    row.keys = job.keys_of(batch, row.row);
    if (row.keys.begin < row.keys.end)
      row.scores.resize(static_cast<std::size_t>(row.keys.end - row.keys.begin));
    if (job.soft_cap != 0.0) row.slopes.resize(row.scores.size());
    if (row.row >= length) continue;
    const std::vector<double> numbers = rows_of(q_matrix, row.row, 1, job.values);
    std::copy(numbers.begin(), numbers.end(),
              q.begin() + static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(depth));
  }

  const AttentionJob::Keys all = keys_of_all(rows);
  for (std::int64_t key = all.begin; key < all.end; key += kAttentionKeys) {
    const std::int64_t keys = std::min(kAttentionKeys, all.end - key);
    const std::vector<double> k =
        key_rows_of(job, job.k, batch, job.kv_head(head), key, keys, true);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ScoredRow& row = rows[i];
      const std::int64_t begin = std::max(row.keys.begin, key),
                         end = std::min(row.keys.end, key + keys);
      if (begin >= end) continue;
      // One sum per key, from the first product to the last; interleaved, so that they vectorise.
      std::array<double, kAttentionKeys> sums{};
      const double* numbers = q.data() + static_cast<std::int64_t>(i) * depth;
      for (std::int64_t d = 0; d < depth; ++d)
        for (std::int64_t j = 0; j < keys; ++j)
          sums[static_cast<std::size_t>(j)] +=
              numbers[d] * k[static_cast<std::size_t>(d * keys + j)];
      for (std::int64_t j = begin; j < end; ++j) {
        const auto at = static_cast<std::size_t>(j - row.keys.begin);
        const double score = sums[static_cast<std::size_t>(j - key)] * factor;
        row.scores[at] = with_bias(job, batch, head, row.row, j, soft_capped(job, score));
        if (!row.slopes.empty()) row.slopes[at] = slope_of_soft_cap(job, score);
      }
    }
  }
  return rows;
}

void for_each_piece(const AttentionJob& job,
                    const std::function<void(std::int64_t batch, std::int64_t head,
                                             std::span<const std::int64_t> rows)>& visit) {
  std::vector<std::int64_t> rows;
  std::int64_t batch = 0, head = 0;
  const auto flush = [&] {
    if (!rows.empty()) visit(batch, head, rows);
    rows.clear();
  };
  // Consecutive ranges of one head share pieces.
  const auto add = [&](const AttentionRange& range) {
    if (range.batch != batch || range.head != head) flush();
    batch = range.batch;
    head = range.head;
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      rows.push_back(row);
      if (static_cast<std::int64_t>(rows.size()) == kAttentionRows) flush();
    }
  };
  if (job.ranges != nullptr) {
    for (std::int64_t i = 0; i < job.range_count; ++i) add(job.ranges[i]);
  } else {
    for (std::int64_t b = 0; b < job.batches; ++b)
      for (std::int64_t h = 0; h < job.heads; ++h)
        add({.batch = b, .head = h, .first = 0, .count = job.queries});
  }
  flush();
}

}  // namespace octavo::reference
