// What the tensor-core backward kernel reads: pointers, sizes and the mask as 32-bit numbers, and
// the arithmetic of tiles that all its kernels share.
//
// Determinism. A block has 128 keys, keeps their dK and dV in registers, and goes through tiles of
// queries; the part of dQ that it makes is added to f32 sums in global memory. Those additions are
// done in the order of key blocks: a tile of queries has a counter, and block n adds when the
// counter says that it is its turn. Blocks take their keys in the same order from a ticket counter
// and go through tiles from the last to the first, so a block waits only for blocks that started
// before it: no deadlock, whatever the number of multiprocessors, and bits that do not depend on
// timing.
#pragma once

#include <cuda.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <climits>
#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/base/macros.h"

namespace octavo::cuda {

inline constexpr int kBackwardKeys = 128;      // of a block
inline constexpr int kBackwardWarpgroups = 2;  // consumers, 64 keys each
// Rows of a tile of queries: as many as make a tile of dQ two accumulators of 64 x 64.
OCTAVO_HD constexpr int backward_queries(int depth) { return 8192 / depth; }
inline constexpr int kBackwardPart = 64 * 64;  // floats of dQ that a warpgroup makes for a tile

// A mask of one batch in 32 bits: row i sees key j where -left <= j - i - diagonal <= right.
struct BackwardBand {
  int rows, keys, diagonal, left, right;

  struct Span {
    int begin, end;
  };
  // Rows that see any of the keys [first, last), which is not empty.
  [[nodiscard]] OCTAVO_HD Span rows_of(int first, int last) const {
    if (last > keys) last = keys;
    if (first >= last) return {0, 0};
    const std::int64_t begin = std::int64_t{first} - diagonal - right,
                       end = std::int64_t{last} - diagonal + left;
    return {static_cast<int>(begin < 0      ? 0
                             : begin > rows ? rows
                                            : begin),
            static_cast<int>(end < 0      ? 0
                             : end > rows ? rows
                                          : end)};
  }
  // Keys that any of the rows [first, last) sees.
  [[nodiscard]] OCTAVO_HD Span keys_of(int first, int last) const {
    if (last > rows) last = rows;
    if (first >= last) return {0, 0};
    const std::int64_t begin = std::int64_t{first} + diagonal - left,
                       end = std::int64_t{last} + diagonal + right;
    return {static_cast<int>(begin < 0      ? 0
                             : begin > keys ? keys
                                            : begin),
            static_cast<int>(end < 0      ? 0
                             : end > keys ? keys
                                          : end)};
  }
  // Does every one of these rows see all of these keys?
  [[nodiscard]] OCTAVO_HD bool is_full(int first_row, int last_row, int first_key,
                                       int last_key) const {
    return last_row <= rows && last_key <= keys &&
           std::int64_t{last_key} - 1 - first_row - diagonal <= right &&
           std::int64_t{first_key} - (last_row - 1) - diagonal >= -std::int64_t{left};
  }
  [[nodiscard]] OCTAVO_HD bool sees(int row, int key) const {
    const int distance = key - row - diagonal;
    return row < rows && key < keys && distance <= right && distance >= -left;
  }
};

// A gradient: dense rows of f32, f16 or bf16.
struct BackwardResult {
  unsigned char* first = nullptr;
  std::int64_t batch_pitch = 0, head_pitch = 0, row_pitch = 0;
  DType dtype = DType::f32;

  [[nodiscard]] OCTAVO_HD unsigned char* head(int batch, int of_head) const {
    return first + batch * batch_pitch + of_head * head_pitch;
  }
#ifdef __CUDACC__
  // Columns `col` and the next; `col` is even.
  __device__ __forceinline__ void store_pair(unsigned char* row, int col, float a, float b) const {
    if (dtype == DType::f32)
      *reinterpret_cast<float2*>(row + col * 4) = {a, b};
    else if (dtype == DType::bf16)
      *reinterpret_cast<__nv_bfloat162*>(row + col * 2) = __floats2bfloat162_rn(a, b);
    else
      *reinterpret_cast<__half2*>(row + col * 2) = __floats2half2_rn(a, b);
  }
  // Columns `col` on; aligned to sixteen bytes.
  __device__ __forceinline__ void store_eight(unsigned char* row, int col,
                                              const float (&eight)[8]) const {
    if (dtype == DType::f32) {
      auto* to = reinterpret_cast<float4*>(row + col * 4);
      to[0] = {eight[0], eight[1], eight[2], eight[3]};
      to[1] = {eight[4], eight[5], eight[6], eight[7]};
      return;
    }
    uint4 packed;
    auto* pairs = reinterpret_cast<std::uint32_t*>(&packed);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 wide = __floats2bfloat162_rn(eight[2 * i], eight[2 * i + 1]);
      const __half2 half = __floats2half2_rn(eight[2 * i], eight[2 * i + 1]);
      pairs[i] = dtype == DType::bf16 ? *reinterpret_cast<const std::uint32_t*>(&wide)
                                      : *reinterpret_cast<const std::uint32_t*>(&half);
    }
    *reinterpret_cast<uint4*>(row + col * 2) = packed;
  }
#endif
};

struct BackwardPlan {
  CUtensorMap q, k, v, d_out;  // [batches][heads][rows][D]
  BackwardResult d_q, d_k, d_v;
  const float* minus_lse = nullptr;  // [batches, heads, padded rows], in units of log2
  const float* delta = nullptr;      // the same
  float* d_q_sums = nullptr;         // [batches, heads, tiles][2][kBackwardPart]
  unsigned* turns = nullptr;         // [batches, heads, tiles]
  unsigned* ticket = nullptr;
  unsigned* declined = nullptr;  // not 0: the general kernel does this job
  int batches = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0;
  int tiles = 0, key_blocks = 0;  // of queries, of keys
  int together = 1;               // heads of K whose blocks take turns
  int left = INT_MAX / 4, right = INT_MAX / 4;
  bool bottom_right = false;
  const std::int64_t *query_lengths = nullptr, *key_lengths = nullptr;
  float scale = 1.0F, log2_scale = 1.0F;  // softmax_scale, and that in units of log2
  float soft_cap = 0.0F;                  // in units of log2
  float over_cap = 0.0F;                  // scale / soft cap
  AttentionDropout dropout{};

  [[nodiscard]] OCTAVO_HD BackwardBand band(int batch) const {
    const int rows = query_lengths != nullptr ? static_cast<int>(query_lengths[batch]) : queries,
              count = key_lengths != nullptr ? static_cast<int>(key_lengths[batch]) : keys;
    return {rows, count, bottom_right ? count - rows : 0, left, right};
  }
};

}  // namespace octavo::cuda
