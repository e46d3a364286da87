// Shared by the reference attention, forward and backward: rows as numbers, and scores.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "octavo/backend/attention_job.h"

namespace octavo::reference {

// Rows [first, first + count) of an operand as its job defines them: dequantized exactly, or values
// rounded to `values`. [count][cols]; with `transposed` [cols][count].
std::vector<double> rows_of(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                            DType values, bool transposed = false);

// The same of the keys or values of a KV head, which may lie in pages; NaN where a page is not of
// the pool.
std::vector<double> key_rows_of(const AttentionJob& job, const AttentionOperand& operand,
                                std::int64_t batch, std::int64_t kv_head, std::int64_t first,
                                std::int64_t count, bool transposed = false);

// Rows of one head that are processed together, so that a key is decoded once for all of them.
inline constexpr std::int64_t kAttentionRows = 32, kAttentionKeys = 64;

// One row of Q and its scores with the keys it sees.
struct ScoredRow {
  std::int64_t row = 0;
  AttentionJob::Keys keys{};
  std::vector<double> scores;  // of keys.begin, ...: in units of log2
  std::vector<double> slopes;  // of the soft cap there, 1 - tanh^2; empty without one
};
// Scores of up to kAttentionRows rows of a head; those rows of Q are written to `q`.
std::vector<ScoredRow> scored_rows(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                                   std::span<const std::int64_t> rows, std::vector<double>& q);

// Calls visit(batch, head, rows) for at most kAttentionRows rows of the job at a time.
void for_each_piece(const AttentionJob& job,
                    const std::function<void(std::int64_t batch, std::int64_t head,
                                             std::span<const std::int64_t> rows)>& visit);

// Does the bias mask this key? Then it must not be multiplied, not even by zero.
bool is_masked(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
               std::int64_t key);

// Does dropout keep the weight of this key?
bool is_kept(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
             std::int64_t key);

// The keys that any of these rows sees.
AttentionJob::Keys keys_of_all(const std::vector<ScoredRow>& rows);

}  // namespace octavo::reference
