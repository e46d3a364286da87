// QueryBlock: query rows that go through the keys together, and the keys that each of them sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "octavo/backend/cpu/attention/attention_block.h"

namespace octavo::cpu {

// Unused columns see all keys, and their results are not read.
struct QueryBlock {
  const std::int64_t* row = nullptr;
  std::int64_t count = 0;
  std::int64_t begin[kMaxQueryBlock], end[kMaxQueryBlock];
  std::int64_t least = 0, most = 0;         // keys that any row sees
  std::int64_t all_begin = 0, all_end = 0;  // keys that every row sees
};

// Rows [first, first + width) of those, as far as there are.
inline QueryBlock query_block_of(const AttentionJob& job, const BlockRows& rows, std::int64_t first,
                                 int width) {
  QueryBlock query_block;
  query_block.row = rows.row + first;
  query_block.count = std::min<std::int64_t>(width, rows.count - first);
  query_block.least = query_block.all_end = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < width; ++i) {
    AttentionJob::Keys keys{0, std::numeric_limits<std::int64_t>::max()};
    if (i < query_block.count) {
      keys = job.keys_of(rows.batch, query_block.row[i]);
      if (keys.begin >= keys.end) keys = {0, 0};
      query_block.all_begin = std::max(query_block.all_begin, keys.begin);
      query_block.all_end = std::min(query_block.all_end, keys.end);
      if (keys.end > 0) {
        query_block.least = std::min(query_block.least, keys.begin);
        query_block.most = std::max(query_block.most, keys.end);
      }
    }
    query_block.begin[i] = keys.begin;
    query_block.end[i] = keys.end;
  }
  return query_block;
}

}  // namespace octavo::cpu
