// AppendJob: new tokens for a KV cache, as plain data for the kernel interface: rows of bytes are
// copied to the places of their tokens, and lengths grow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_job.h"

namespace octavo {

// Codes or scales of K or V. Pitches are in bytes; a page is a batch where there is no block table.
struct AppendRows {
  const std::byte* from = nullptr;
  std::int64_t from_batch = 0, from_head = 0, from_row = 0;
  std::byte* to = nullptr;
  std::int64_t to_page = 0, to_head = 0, to_row = 0;
  std::int64_t bytes = 0;  // of a row
};

struct AppendJob {
  static constexpr int kMostParts = 4;
  AppendRows parts[kMostParts]{};
  int part_count = 0;
  std::int64_t batches = 0, heads = 0;
  std::int64_t tokens = 0;               // new ones of each batch
  const std::int64_t* counts = nullptr;  // if given, how many of them, the first ones, are appended
  std::int64_t capacity = 0;             // of a batch; tokens beyond it are dropped
  AttentionPages pages{};                // of the cache
  std::int64_t* lengths = nullptr;  // [batches]: where new tokens go; then as many as there are
};

// The memory of a row of a token in the cache; null where its page is not one of the pool.
OCTAVO_HD inline std::byte* place_of_token(const AppendJob& job, const AppendRows& part,
                                           std::int64_t batch, std::int64_t head,
                                           std::int64_t token) {
  std::int64_t page = batch, row = token;
  if (job.pages.exist()) {
    page = job.pages.table[batch * job.pages.table_pitch + token / job.pages.page_rows];
    row = token % job.pages.page_rows;
    if (page < 0 || page >= job.pages.page_count) return nullptr;
  }
  return part.to + page * part.to_page + head * part.to_head + row * part.to_row;
}

}  // namespace octavo
