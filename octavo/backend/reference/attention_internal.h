// What forward and backward attention by definition share: rows as numbers, and scores.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "octavo/backend/attention_job.h"

namespace octavo::reference {

// Rows [first, first + count) of an operand as its job takes them: dequantized exactly, or values
// rounded to `values`. [count][cols]; with `turned` [cols][count].
std::vector<double> rows_of(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                            DType values, bool transposed = false);

// Rows of one head that are worked on together, so that a key is decoded once for all of them.
inline constexpr std::int64_t kAttentionRows = 32, kAttentionKeys = 64;

// What one row of Q has to do with the keys it sees.
struct ScoredRow {
  std::int64_t row = 0;
  AttentionJob::Keys keys{};
  std::vector<double> scores;  // of keys.begin, ...: in units of log2
};
// Of up to kAttentionRows rows of a head, and those rows of Q themselves in `q`.
std::vector<ScoredRow> scored_rows(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                                   std::span<const std::int64_t> rows, std::vector<double>& q);

// Calls visit(batch, head, rows) for at most kAttentionRows rows at a time of what the job asks
// for.
void for_each_piece(const AttentionJob& job,
                    const std::function<void(std::int64_t batch, std::int64_t head,
                                             std::span<const std::int64_t> rows)>& visit);

// Does the bias hide this key? Then nothing of it may be multiplied, not even by zero.
bool is_masked(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
               std::int64_t key);

// Keys that any of these rows sees.
AttentionJob::Keys keys_of_all(const std::vector<ScoredRow>& rows);

}  // namespace octavo::reference
