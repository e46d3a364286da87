// A tile of 32 queries by 32 keys of the general backward kernels: scores and dP, weights and dS.
// A block has 256 threads; each has two queries and two keys.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/attention_dropout_mask.h"
#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda/attention/general_rows.cuh"

namespace octavo::cuda {

inline constexpr int kTileSide = 32, kTileDepth = 16, kTileThreads = 256, kTileEach = 2;
inline constexpr double kLog2E = 1.4426950408889634;

// What a row's weights are made of: P = 2^(score - top) times.
template <typename Real>
struct BackwardRowSums {
  Real top, times, delta;
  double of_sink;  // the weight of the sink
};

struct GeneralBackwardPlan {
  AttentionBackwardJob job;
  bool to_bf16[3];         // Q, K and V
  void* sums;              // BackwardRowSums of [batches, heads, queries]
  const unsigned* wanted;  // 0: another kernel has done the job
};

template <typename Real>
class GeneralTile {
 public:
  struct Shared {
    Real a[kTileDepth][kTileSide + 1], b[kTileDepth][kTileSide + 1];
    // [query][key]: P, its dropout included, and dS; 0 of a key that is hidden or dropped.
    Real p[kTileSide][kTileSide + 1], d_s[kTileSide][kTileSide + 1];
  };

  __device__ GeneralTile(const GeneralBackwardPlan& plan, Shared& shared, std::int64_t batch,
                         std::int64_t head)
      : plan_(plan),
        job_(plan.job.forward),
        shared_(shared),
        batch_(batch),
        head_(head),
        down_(static_cast<int>(threadIdx.x) / 16),
        across_(static_cast<int>(threadIdx.x) % 16),
        q_(job_.q.at(batch, head).values),
        k_(job_.k.at(batch, job_.kv_head(head)).values),
        v_(job_.v.at(batch, job_.kv_head(head)).values),
        d_out_(plan.job.d_out.at(batch, head).values) {}

  [[nodiscard]] __device__ std::int64_t length() const {
    return job_.query_lengths != nullptr ? job_.query_lengths[batch_] : job_.queries;
  }
  [[nodiscard]] __device__ std::int64_t key_length() const {
    return job_.key_lengths != nullptr ? job_.key_lengths[batch_] : job_.keys;
  }
  [[nodiscard]] __device__ BackwardRowSums<Real>& sums_of(std::int64_t row) const {
    return static_cast<BackwardRowSums<Real>*>(
        plan_.sums)[(batch_ * job_.heads + head_) * job_.queries + row];
  }

  // Scores in units of log2, their slopes and dP of the tile, and which keys are hidden.
  __device__ void score(std::int64_t row, std::int64_t key) {
    row_ = row;
    key_ = key;
    Real sums[kTileEach][kTileEach] = {};
    multiply(q_, row, length(), plan_.to_bf16[0], k_, key, key_length(), plan_.to_bf16[1], sums);
    const auto factor = static_cast<Real>(job_.softmax_scale * kLog2E);
#pragma unroll
    for (int r = 0; r < kTileEach; ++r) {
      const std::int64_t i = row + kTileEach * down_ + r;
      const AttentionJob::Keys keys = i < length() ? job_.keys_of(batch_, i) : AttentionJob::Keys{};
      const float* const bias =
          job_.bias.first != nullptr && i < length() ? job_.bias.at(batch_, head_, i) : nullptr;
#pragma unroll
      for (int c = 0; c < kTileEach; ++c) {
        const std::int64_t j = key + kTileEach * across_ + c;
        hidden[r][c] = j < keys.begin || j >= keys.end;
        Real at = sums[r][c] * factor;
        slopes[r][c] = Real{1};
        if (job_.soft_cap != 0.0) cap(at, slopes[r][c]);
        if (bias != nullptr && !hidden[r][c]) {
          const float added = bias[j * job_.bias.key];
          hidden[r][c] = added == -HUGE_VALF;
          at += static_cast<Real>(static_cast<double>(added) *
                                  static_cast<double>(job_.bias.factor) * kLog2E);
        }
        scores[r][c] = at;
        d_p[r][c] = 0;
      }
    }
    multiply(d_out_, row, length(), false, v_, key, key_length(), plan_.to_bf16[2], d_p);
    if (!job_.dropout.exists()) return;
#pragma unroll
    for (int r = 0; r < kTileEach; ++r)
#pragma unroll
      for (int c = 0; c < kTileEach; ++c) {
        const bool keeps = dropout_keep(job_.dropout, batch_, head_, row + kTileEach * down_ + r,
                                        key + kTileEach * across_ + c);
        kept[r][c] = keeps ? static_cast<Real>(job_.dropout.factor()) : Real{0};
        d_p[r][c] = keeps ? d_p[r][c] * kept[r][c] : Real{0};
      }
  }

  // P and dS of the tile to shared memory.
  __device__ void share() {
    const auto scale = static_cast<Real>(job_.softmax_scale);
    __syncthreads();  // what was there has been read
#pragma unroll
    for (int r = 0; r < kTileEach; ++r) {
      const std::int64_t i = row_ + kTileEach * down_ + r;
      BackwardRowSums<Real> row{};
      if (i < length()) row = sums_of(i);
#pragma unroll
      for (int c = 0; c < kTileEach; ++c) {
        const int at = kTileEach * across_ + c, line = kTileEach * down_ + r;
        const Real p = exp2(scores[r][c] - row.top) * row.times;
        const bool drops = job_.dropout.exists() && kept[r][c] == Real{0};
        const Real factor = job_.dropout.exists() ? kept[r][c] : Real{1};
        shared_.p[line][at] = hidden[r][c] || drops ? Real{0} : p * factor;
        shared_.d_s[line][at] =
            hidden[r][c] ? Real{0} : p * (d_p[r][c] - row.delta) * scale * slopes[r][c];
      }
    }
    __syncthreads();
  }

  // Of a thread's two queries and two keys.
  Real scores[kTileEach][kTileEach], slopes[kTileEach][kTileEach], d_p[kTileEach][kTileEach],
      kept[kTileEach][kTileEach];
  bool hidden[kTileEach][kTileEach];

 private:
  // sums += A B^T for 32 rows of A and 32 of B; rows from a_last and b_last on are not read.
  __device__ void multiply(const Matrix& a, std::int64_t a_first, std::int64_t a_last, bool a_bf16,
                           const Matrix& b, std::int64_t b_first, std::int64_t b_last, bool b_bf16,
                           Real (&sums)[kTileEach][kTileEach]) {
    for (std::int64_t depth = 0; depth < a.cols; depth += kTileDepth) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kTileSide * kTileDepth; i += kTileThreads) {
        const int line = i / kTileDepth, d = i % kTileDepth;
        Real of_a = 0, of_b = 0;
        if (depth + d < a.cols) {
          if (a_first + line < a_last) load_number(a, a_first + line, depth + d, a_bf16, of_a);
          if (b_first + line < b_last) load_number(b, b_first + line, depth + d, b_bf16, of_b);
        }
        shared_.a[d][line] = of_a;
        shared_.b[d][line] = of_b;
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kTileDepth; ++d)
#pragma unroll
        for (int r = 0; r < kTileEach; ++r)
#pragma unroll
          for (int c = 0; c < kTileEach; ++c)
            sums[r][c] = fma(shared_.a[d][kTileEach * down_ + r],
                             shared_.b[d][kTileEach * across_ + c], sums[r][c]);
    }
  }

  __device__ void cap(Real& score, Real& slope) const {
    const auto most = static_cast<Real>(job_.soft_cap * kLog2E);
    if (!isfinite(score)) {
      score = slope = static_cast<Real>(NAN);
      return;
    }
    const Real wide = cosh(score / most);
    slope = Real{1} / (wide * wide);
    score = most * tanh(score / most);
  }

  const GeneralBackwardPlan& plan_;
  const AttentionJob& job_;
  Shared& shared_;
  const std::int64_t batch_, head_;
  const int down_, across_;
  const Matrix q_, k_, v_, d_out_;
  std::int64_t row_ = 0, key_ = 0;
};

}  // namespace octavo::cuda
