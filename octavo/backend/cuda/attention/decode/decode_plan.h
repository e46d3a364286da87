// Decode attention as its kernels see it: where the rows of K and V and their scales lie, and how
// the work is shared. Plain data; decode.cc makes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_job.h"

namespace octavo::cuda {

// Rows of K or V of all heads. A page is a batch where there is no block table.
struct DecodeTokens {
  const std::byte* rows = nullptr;
  std::int64_t page_pitch = 0, head_pitch = 0, row_pitch = 0;  // bytes
  int row_bytes = 0;
  // Scales of f32, one for each token or for 2^token_shift of them in a row; bytes between them.
  const std::byte* scales = nullptr;
  std::int64_t scale_page_pitch = 0, scale_head_pitch = 0, scale_step = 0;
  int token_shift = 0;
  // One scale for all tokens, of each channel where channel_step is not 0.
  const std::byte* shared = nullptr;
  std::int64_t shared_page_pitch = 0, shared_head_pitch = 0, channel_step = 0;
};

struct DecodePlan {
  AttentionJob job{};
  DecodeTokens k{}, v{};
  int page_shift = 0;    // 2^page_shift keys lie in a page
  int rows_of_head = 0;  // query rows that read a KV head: those of all heads that share it
  int row_tiles = 0;     // the kernel's: it takes 8 row_tiles rows at a time
  int groups = 0;        // of as many rows, each of which reads the KV head for itself
  int blocks = 0;        // thread blocks
  float* partials = nullptr;
};

// Keys that a warp scores at a time: pages hold a multiple of it.
inline constexpr int kDecodeTileKeys = 16;

// A partial result: for each row its state, then its sums.
inline constexpr int kDecodeStateFloats = 8;
constexpr std::int64_t decode_partial_floats(int rows, int dims) {
  return static_cast<std::int64_t>(rows) * (kDecodeStateFloats + dims);
}
// A thread block has at most two heads that it shares with others: its first and its last.
inline constexpr int kDecodePartialsOfBlock = 2;

}  // namespace octavo::cuda
