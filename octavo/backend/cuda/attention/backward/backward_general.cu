// General gradients of attention in f32 or f64. Three kernels go through tiles of 32 queries by 32
// keys and compute their scores anew: one for the softmax of rows and delta, one for dK and dV, one
// for dQ. The parts of a tile are summed before they are added to those of earlier tiles.
#include "octavo/backend/cuda/attention/backward/backward_general.h"

#include "octavo/backend/cuda/attention/backward/backward_general_tile.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kCols = 64;                                   // of a gradient, for a block
constexpr int kResults = kTileSide * kCols / kTileThreads;  // of a thread

__device__ __forceinline__ bool is_wanted(const GeneralBackwardPlan& plan) {
  return plan.wanted == nullptr || *plan.wanted != 0;
}

// The keys that any row of [first, first + 32) sees.
__device__ AttentionJob::Keys keys_of_tile(const AttentionJob& job, std::int64_t batch,
                                           std::int64_t first) {
  AttentionJob::Keys all{};
  for (std::int64_t row = first; row < min(first + kTileSide, job.queries); ++row) {
    const AttentionJob::Keys keys = job.keys_of(batch, row);
    if (keys.begin >= keys.end) continue;
    if (all.begin >= all.end) all = keys;
    all = {min(all.begin, keys.begin), max(all.end, keys.end)};
  }
  return all;
}

// A row's softmax so far, of one lane's keys; 16 lanes share a row.
template <typename Real>
struct RunningRow {
  Real top = -HUGE_VAL, sum = 0, delta = 0;
  bool poisoned = false;

  __device__ void add(Real score, Real d_p) {
    if (score != score || score == Real{HUGE_VAL}) poisoned = true;
    if (poisoned || score == Real{-HUGE_VAL}) return;
    if (score > top) {
      const Real less = exp2(top - score);
      sum *= less;
      delta = less == Real{0} ? Real{0} : delta * less;
      top = score;
    }
    const Real p = exp2(score - top);
    sum += p;
    delta = fma(p, d_p, delta);
  }
  __device__ void join() {
    const Real mine = top;
    top = most_of_row(top);
    const Real factor = mine == Real{-HUGE_VAL} ? Real{0} : exp2(mine - top);
    sum = sum_of_row(sum * factor);
    delta = sum_of_row(factor == Real{0} ? Real{0} : delta * factor);
    poisoned = sum_of_row(poisoned ? 1.0F : 0.0F) != 0.0F;
  }
};

template <typename Real>
__global__ void __launch_bounds__(kTileThreads)
    backward_row_sums_kernel(const __grid_constant__ GeneralBackwardPlan plan) {
  if (!is_wanted(plan)) return;
  __shared__ typename GeneralTile<Real>::Shared shared;
  const AttentionJob& job = plan.job.forward;
  const std::int64_t tiles = (job.queries + kTileSide - 1) / kTileSide,
                     first = blockIdx.x % tiles * kTileSide, head = blockIdx.x / tiles % job.heads,
                     batch = blockIdx.x / tiles / job.heads;
  GeneralTile<Real> tile(plan, shared, batch, head);
  RunningRow<Real> rows[kTileEach];
  const AttentionJob::Keys all = keys_of_tile(job, batch, first);
  for (std::int64_t key = all.begin / kTileSide * kTileSide; key < all.end; key += kTileSide) {
    tile.score(first, key);
#pragma unroll
    for (int r = 0; r < kTileEach; ++r)
#pragma unroll
      for (int c = 0; c < kTileEach; ++c)
        if (!tile.hidden[r][c]) rows[r].add(tile.scores[r][c], tile.d_p[r][c]);
  }
#pragma unroll
  for (int r = 0; r < kTileEach; ++r) {
    RunningRow<Real>& row = rows[r];
    row.join();
    const std::int64_t i = first + kTileEach * (threadIdx.x / 16) + r;
    if (i >= tile.length() || threadIdx.x % 16 != 0) continue;
    const auto nan = static_cast<Real>(NAN);
    const bool empty = !row.poisoned && row.top == Real{-HUGE_VAL};
    const double log2_sum =
        empty ? -HUGE_VAL : static_cast<double>(row.top) + log2(static_cast<double>(row.sum));
    const BesideSink beside = beside_sink(job.sinks, head, log2_sum);
    BackwardRowSums<Real> to{};  // a row that sees no key
    const AttentionJob::Keys keys = job.keys_of(batch, i);
    if (keys.begin < keys.end) {
      if (row.poisoned || beside.poisoned) {
        to = {nan, nan, nan, static_cast<double>(NAN)};
      } else if (!empty) {
        const double times = beside.share / static_cast<double>(row.sum);
        to = {row.top, static_cast<Real>(times),
              static_cast<Real>(static_cast<double>(row.delta) * times), 1.0 - beside.share};
      }
    }
    tile.sums_of(i) = to;
  }
}

// totals += A^T B or A B for the 32 x 32 tile A in shared memory. Zeros of A are not multiplied: a
// key that a row does not see may be NaN.
template <bool kTransposed, typename Real>
__device__ void add_product(const Real (&a)[kTileSide][kTileSide + 1], Real (&b)[kTileSide][kCols],
                            const Matrix& from, std::int64_t first, std::int64_t last,
                            std::int64_t col, bool to_bf16, Real (&totals)[kResults]) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTileSide * kCols; i += kTileThreads) {
    Real number = 0;
    if (first + i / kCols < last && col + i % kCols < from.cols)
      load_number(from, first + i / kCols, col + i % kCols, to_bf16, number);
    b[i / kCols][i % kCols] = number;
  }
  __syncthreads();
  const int line = static_cast<int>(threadIdx.x) / 8, at = static_cast<int>(threadIdx.x) % 8;
  Real part[kResults] = {};
  for (int d = 0; d < kTileSide; ++d) {
    const Real factor = kTransposed ? a[d][line] : a[line][d];
    if (factor == Real{0}) continue;
#pragma unroll
    for (int i = 0; i < kResults; ++i) part[i] = fma(factor, b[d][at + 8 * i], part[i]);
  }
#pragma unroll
  for (int i = 0; i < kResults; ++i) totals[i] += part[i];
}

template <typename Real>
__device__ void write_results(const Matrix& to, std::int64_t first, std::int64_t col,
                              const Real (&totals)[kResults]) {
  const std::int64_t row = first + threadIdx.x / 8;
  if (row >= to.rows) return;
#pragma unroll
  for (int i = 0; i < kResults; ++i) {
    const std::int64_t at = col + threadIdx.x % 8 + 8 * i;
    if (at < to.cols) store_value(to, row, at, static_cast<double>(totals[i]));
  }
}

// dK and dV of 32 keys, 64 columns each.
template <typename Real>
__global__ void __launch_bounds__(kTileThreads)
    backward_keys_kernel(const __grid_constant__ GeneralBackwardPlan plan) {
  if (!is_wanted(plan)) return;
  __shared__ typename GeneralTile<Real>::Shared shared;
  __shared__ Real other[kTileSide][kCols];
  const AttentionJob& job = plan.job.forward;
  const std::int64_t tiles = (job.keys + kTileSide - 1) / kTileSide,
                     key = blockIdx.x % tiles * kTileSide,
                     kv_head = blockIdx.x / tiles % job.kv_heads,
                     batch = blockIdx.x / tiles / job.kv_heads, group = job.heads / job.kv_heads,
                     col = std::int64_t{blockIdx.y} * kCols;
  Real d_k[kResults] = {}, d_v[kResults] = {};
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    GeneralTile<Real> tile(plan, shared, batch, head);
    const Matrix q = job.q.at(batch, head).values, d_out = plan.job.d_out.at(batch, head).values;
    for (std::int64_t row = 0; row < tile.length(); row += kTileSide) {
      const AttentionJob::Keys top = job.keys_of(batch, row),
                               bottom = job.keys_of(batch, min(row + kTileSide, tile.length()) - 1);
      // Rows further down see no fewer keys at the end and no more at the beginning.
      if (bottom.end <= key || top.begin >= key + kTileSide) continue;
      tile.score(row, key);
      tile.share();
      if (col < d_out.cols)
        add_product<true>(shared.p, other, d_out, row, tile.length(), col, false, d_v);
      if (col < q.cols)
        add_product<true>(shared.d_s, other, q, row, tile.length(), col, plan.to_bf16[0], d_k);
    }
  }
  write_results(plan.job.d_k.at(batch, kv_head).values, key, col, d_k);
  write_results(plan.job.d_v.at(batch, kv_head).values, key, col, d_v);
}

// dQ of 32 rows, 64 columns.
template <typename Real>
__global__ void __launch_bounds__(kTileThreads)
    backward_queries_kernel(const __grid_constant__ GeneralBackwardPlan plan) {
  if (!is_wanted(plan)) return;
  __shared__ typename GeneralTile<Real>::Shared shared;
  __shared__ Real other[kTileSide][kCols];
  const AttentionJob& job = plan.job.forward;
  const std::int64_t tiles = (job.queries + kTileSide - 1) / kTileSide,
                     first = blockIdx.x % tiles * kTileSide, head = blockIdx.x / tiles % job.heads,
                     batch = blockIdx.x / tiles / job.heads, col = std::int64_t{blockIdx.y} * kCols;
  GeneralTile<Real> tile(plan, shared, batch, head);
  const Matrix k = job.k.at(batch, job.kv_head(head)).values;
  const AttentionJob::Keys all = keys_of_tile(job, batch, first);
  Real d_q[kResults] = {};
  for (std::int64_t key = all.begin / kTileSide * kTileSide; key < all.end; key += kTileSide) {
    tile.score(first, key);
    tile.share();
    add_product<false>(shared.d_s, other, k, key, tile.key_length(), col, plan.to_bf16[1], d_q);
  }
  write_results(plan.job.d_q.at(batch, head).values, first, col, d_q);
}

// A block sums one head, a thread rows t, t + 256, ..., and the block its threads, in order.
template <typename Real>
__global__ void __launch_bounds__(kTileThreads)
    backward_sinks_kernel(const __grid_constant__ GeneralBackwardPlan plan) {
  if (!is_wanted(plan)) return;
  __shared__ double parts[kTileThreads];
  const AttentionJob& job = plan.job.forward;
  const std::int64_t head = blockIdx.x;
  double sum = 0.0;
  for (std::int64_t batch = 0; batch < job.batches; ++batch) {
    const std::int64_t length =
        job.query_lengths != nullptr ? job.query_lengths[batch] : job.queries;
    const auto* rows = static_cast<const BackwardRowSums<Real>*>(plan.sums) +
                       (batch * job.heads + head) * job.queries;
    for (std::int64_t i = threadIdx.x; i < length; i += kTileThreads)
      if (rows[i].of_sink != 0.0) sum += rows[i].of_sink * static_cast<double>(rows[i].delta);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kTileThreads; ++i) sum += parts[i];
  plan.job.d_sinks[head] -= sum;
}

template <typename Real>
void launch(const Exec& exec, const GeneralBackwardPlan& plan) {
  const AttentionJob& job = plan.job.forward;
  const auto tiles = [](std::int64_t rows) { return (rows + kTileSide - 1) / kTileSide; };
  const auto chunks = [](std::int64_t cols) {
    return static_cast<unsigned>(std::max<std::int64_t>(1, (cols + kCols - 1) / kCols));
  };
  const std::int64_t of_rows = tiles(job.queries) * job.heads * job.batches,
                     of_keys = tiles(job.keys) * job.kv_heads * job.batches;
  const std::int64_t depth = job.q.first.cols(), width = job.v.first.cols();
  if (of_rows != 0) {
    backward_row_sums_kernel<Real>
        <<<blocks_for(of_rows, 1), kTileThreads, 0, stream_of(exec)>>>(plan);
    OCTAVO_CUDA_LAUNCHED("backward_row_sums_kernel");
    backward_queries_kernel<Real>
        <<<dim3(blocks_for(of_rows, 1), chunks(depth)), kTileThreads, 0, stream_of(exec)>>>(plan);
    OCTAVO_CUDA_LAUNCHED("backward_queries_kernel");
  }
  if (of_keys != 0) {
    backward_keys_kernel<Real><<<dim3(blocks_for(of_keys, 1), chunks(std::max(depth, width))),
                                 kTileThreads, 0, stream_of(exec)>>>(plan);
    OCTAVO_CUDA_LAUNCHED("backward_keys_kernel");
  }
  if (plan.job.d_sinks != nullptr && of_rows != 0) {
    backward_sinks_kernel<Real>
        <<<blocks_for(job.heads, 1), kTileThreads, 0, stream_of(exec)>>>(plan);
    OCTAVO_CUDA_LAUNCHED("backward_sinks_kernel");
  }
}

bool is_wide(const AttentionBackwardJob& job) { return job.forward.values == DType::f64; }

}  // namespace

std::int64_t attention_backward_general_bytes(const AttentionBackwardJob& job) {
  const AttentionJob& forward = job.forward;
  const std::int64_t each = static_cast<std::int64_t>(
      is_wide(job) ? sizeof(BackwardRowSums<double>) : sizeof(BackwardRowSums<float>));
  return (forward.batches * forward.heads * forward.queries * each + 15) / 16 * 16;
}

void attention_backward_general(const Exec& exec, const AttentionBackwardJob& job, void* memory,
                                const unsigned* wanted) {
  const auto rounds = [&](const AttentionOperand& operand) {
    return job.forward.values == DType::bf16 && operand.first.values.dtype != DType::bf16;
  };
  const GeneralBackwardPlan plan{
      .job = job,
      .to_bf16 = {rounds(job.forward.q), rounds(job.forward.k), rounds(job.forward.v)},
      .sums = memory,
      .wanted = wanted};
  return is_wide(job) ? launch<double>(exec, plan) : launch<float>(exec, plan);
}

}  // namespace octavo::cuda
