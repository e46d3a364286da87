// A block of the general attention kernel: a tile of rows and a part of the output's columns, which
// goes through the keys a tile at a time. Scores are sums in f32 or f64, one fused multiply-add per
// product; the weighted values of a tile are summed before they are added to those of earlier
// tiles, so that long sums do not lose what is small.
#pragma once

#include "octavo/backend/cuda/attention/general_operands.cuh"

namespace octavo::cuda {
namespace {

template <typename Real, bool kCodes>
class Block {
 public:
  static constexpr int kSide = Shape<Real>::kSide, kEach = kSide / 16, kRun = Shape<Real>::kRun,
                       kWidth = Shape<Real>::kWidth, kWide = kWidth / 16;
  static_assert(kEach == kRun, "a thread's rows are one vector of shared memory");

  __device__ Block(const GeneralPlan& plan, Tiles<Real>& tiles, const RowTile& at)
      : plan_(plan),
        job_(plan.job),
        tiles_(tiles),
        at_(at),
        down_(threadIdx.x / 16),
        across_(threadIdx.x % 16) {
    first_col_ = static_cast<std::int64_t>(blockIdx.y) * kWidth;
    const std::int64_t length =
        job_.query_lengths != nullptr ? job_.query_lengths[at.batch] : job_.queries;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const std::int64_t row = row_of(at.first + down_ * kEach + r);
      rows_[r] = row;
      is_padding_[r] = row < 0 || row >= length;
      keys_[r] = is_padding_[r] ? AttentionJob::Keys{} : job_.keys_of(at.batch, row);
    }
  }

  __device__ __forceinline__ void run() {
    const bool normalized = job_.p == AttentionP::fp8_normalized;
    if (normalized) {
      go_through_keys</*kMultiplies=*/false>();
      weigh_first();
    }
    go_through_keys</*kMultiplies=*/true>();
    finish();
  }

 private:
  // The row of Q of a row of the results; -1 beyond the last.
  __device__ std::int64_t row_of(std::int64_t result) const {
    if (result >= at_.last) return -1;
    if (plan_.rows.positions == nullptr) return result;
    return plan_.rows.positions[(at_.batch * job_.heads + at_.head) * plan_.rows.count + result];
  }

  template <bool kMultiplies>
  __device__ __forceinline__ void go_through_keys() {
    const AttentionJob::Keys all = keys_of_tile();
    const GemmOperand q = job_.q.at(at_.batch, at_.head),
                      k = job_.k.at(at_.batch, job_.kv_head(at_.head)),
                      v = job_.v.at(at_.batch, job_.kv_head(at_.head));
    for (std::int64_t key = all.begin; key < all.end; key += kSide) {
      Real scores[kEach][kEach] = {};
      multiply_keys(q, k, key, all.end, scores);
      finish_scores(key, scores);
      Real factor[kEach];
      weigh<kMultiplies>(key, scores, factor);
      if constexpr (kMultiplies) add_values(v, key, all.end, factor);
    }
  }

  // The keys that any row of the tile sees.
  __device__ AttentionJob::Keys keys_of_tile() const {
    __shared__ long long begin, end;
    __syncthreads();
    if (threadIdx.x == 0) {
      begin = LLONG_MAX;
      end = 0;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kEach; ++r)
      if (across_ == 0 && keys_[r].begin < keys_[r].end) {
        atomicMin(&begin, static_cast<long long>(keys_[r].begin));
        atomicMax(&end, static_cast<long long>(keys_[r].end));
      }
    __syncthreads();
    return {begin, end};
  }

  __device__ __forceinline__ void multiply_keys(const GemmOperand& q, const GemmOperand& k,
                                                std::int64_t key, std::int64_t last_key,
                                                Real (&scores)[kEach][kEach]) {
    auto& tiles = tiles_.scores;
    for (std::int64_t depth = 0; depth < q.cols(); depth += kDepth) {
      __syncthreads();  // what was there has been read
      for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kThreads) {
        const int line = i / kDepth, d = i % kDepth;
        Real of_q = 0, of_k = 0;
        if (depth + d < q.cols()) {
          const std::int64_t row = row_of(at_.first + line);
          if (row >= 0) load_element<kCodes>(q, row, depth + d, plan_.to_bf16[0], of_q);
          if (key + line < last_key)
            load_element<kCodes>(k, key + line, depth + d, plan_.to_bf16[1], of_k);
        }
        tiles.q[d][line] = of_q;
        tiles.k[d][line] = of_k;
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d)
#pragma unroll
        for (int r = 0; r < kEach; ++r)
#pragma unroll
          for (int c = 0; c < kEach; ++c)
            scores[r][c] = multiply_add(tiles.q[d][down_ * kEach + r], tiles.k[d][across_ + 16 * c],
                                        scores[r][c]);
    }
  }

  // Sums to scores in units of log2, -inf where a row does not see the key; what poisons a row is
  // noted and becomes -inf too.
  __device__ __forceinline__ void finish_scores(std::int64_t key, Real (&scores)[kEach][kEach]) {
    constexpr Real kInf = HUGE_VAL;
    const Real factor = static_cast<Real>(job_.softmax_scale * 1.4426950408889634);
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const float* const bias = job_.bias.first != nullptr && !is_padding_[r]
                                    ? job_.bias.at(at_.batch, at_.head, rows_[r])
                                    : nullptr;
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const std::int64_t j = key + across_ + 16 * c;
        Real& score = scores[r][c];
        hidden_[r][c] = j < keys_[r].begin || j >= keys_[r].end;
        if (hidden_[r][c]) {
          score = -kInf;
          continue;
        }
        score *= factor;
        if (job_.soft_cap != 0.0) score = soft_capped(score);
        if (bias != nullptr) {
          const float added = bias[j * job_.bias.key];
          hidden_[r][c] = added == -HUGE_VALF;
          score = hidden_[r][c] ? -kInf
                                : score + static_cast<Real>(static_cast<double>(added) *
                                                            static_cast<double>(job_.bias.factor) *
                                                            1.4426950408889634);
        }
        if (score != score || score == kInf) {
          rows_softmax_[r].poisoned = true;
          score = -kInf;
        }
      }
    }
  }
  __device__ Real soft_capped(Real score) const {
    if (!isfinite(score)) return static_cast<Real>(NAN);
    const auto cap = static_cast<Real>(job_.soft_cap * 1.4426950408889634);
    return cap * tanh(score / cap);
  }

  __device__ __forceinline__ bool drops(std::int64_t row, std::int64_t key) const {
    return job_.dropout.exists() && !dropout_keep(job_.dropout, at_.batch, at_.head, row, key);
  }

  // Scores to P in shared memory; `factor` is what earlier sums of the row shrink by.
  template <bool kMultiplies>
  __device__ __forceinline__ void weigh(std::int64_t key, Real (&scores)[kEach][kEach],
                                        Real (&factor)[kEach]) {
    const bool first_of_two = job_.p == AttentionP::fp8_normalized && !kMultiplies;
    const bool second_of_two = job_.p == AttentionP::fp8_normalized && kMultiplies;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      RowSoftmax<Real>& row = rows_softmax_[r];
      Real largest = scores[r][0];
#pragma unroll
      for (int c = 1; c < kEach; ++c) largest = fmax(largest, scores[r][c]);
      factor[r] = Real{1};
      if (!second_of_two) factor[r] = row.raise(most_of_row(largest));
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        Real p = scores[r][c] == Real{-HUGE_VAL} ? Real{0} : exp2(scores[r][c] - row.top);
        if (!second_of_two) {
          row.exact_sum += p;
          row.squares = multiply_add(p, p, row.squares);
        }
        if (first_of_two) continue;
        p = rounded_p(
            job_.p, second_of_two ? p * before_rounding_[r] : p * static_cast<Real>(job_.p_factor));
        if (!second_of_two) row.sum += p;
        const bool leaves_out = hidden_[r][c] || drops(rows_[r], key + across_ + 16 * c);
        tiles_.p[across_ + 16 * c][down_ * kEach + r] = leaves_out ? Real{-0.0} : p;
      }
    }
  }

  // Of P that is divided by its sum before it is rounded.
  __device__ __forceinline__ void weigh_first() {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      RowSoftmax<Real>& row = rows_softmax_[r];
      row.join();
      const double sum = static_cast<double>(row.exact_sum);
      const BesideSink beside =
          beside_sink(job_.sinks, at_.head, static_cast<double>(row.top) + log2(sum));
      before_rounding_[r] =
          static_cast<Real>(beside.share / sum * static_cast<double>(job_.p_factor));
      if (across_ != 0) row.exact_sum = row.squares = 0;  // they are joined again
    }
  }

  static __device__ constexpr int col_of(int across, int c) {
    return c / kRun * 16 * kRun + across * kRun + c % kRun;
  }

  __device__ __forceinline__ void add_values(const GemmOperand& v, std::int64_t key,
                                             std::int64_t last_key, const Real (&factor)[kEach]) {
    Real part[kEach][kWide] = {};
    for (int first = 0; first < kSide && key + first < last_key; first += kDepth) {
      __syncthreads();  // P has been written, and what was in the place of V read
      int bad = 0;
      for (int i = static_cast<int>(threadIdx.x); i < kDepth * kWidth; i += kThreads) {
        const int line = i / kWidth, col = i % kWidth;
        Real number = 0;
        if (key + first + line < last_key && first_col_ + col < v.cols())
          load_element<kCodes>(v, key + first + line, first_col_ + col, plan_.to_bf16[2], number);
        bad |= !isfinite(number);
        tiles_.v[line][col] = number;
      }
      // What is not finite may be multiplied for rows alone that see its key.
      if (__syncthreads_or(bad) != 0) {
        add_seen(first, part);
        continue;
      }
#pragma unroll
      for (int d = 0; d < kDepth; ++d)
#pragma unroll
        for (int r = 0; r < kEach; ++r)
#pragma unroll
          for (int c = 0; c < kWide; ++c)
            part[r][c] = multiply_add(tiles_.p[first + d][down_ * kEach + r],
                                      tiles_.v[d][col_of(across_, c)], part[r][c]);
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
      for (int c = 0; c < kWide; ++c)
        totals_[r][c] = multiply_add(totals_[r][c], factor[r], part[r][c]);
  }
  __device__ __forceinline__ void add_seen(int first, Real (&part)[kEach][kWide]) const {
    for (int d = 0; d < kDepth; ++d)
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        const Real p = tiles_.p[first + d][down_ * kEach + r];
        if (signbit(p)) continue;
#pragma unroll
        for (int c = 0; c < kWide; ++c)
          part[r][c] = multiply_add(p, tiles_.v[d][col_of(across_, c)], part[r][c]);
      }
  }

  __device__ __forceinline__ void finish() {
    const Matrix out = job_.out.at(at_.batch, at_.head).values;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      RowSoftmax<Real>& row = rows_softmax_[r];
      row.join();
      const std::int64_t result = at_.first + down_ * kEach + r;
      const bool normalized = job_.p == AttentionP::fp8_normalized;
      const double sum = static_cast<double>(normalized ? row.exact_sum : row.sum) /
                         (normalized ? 1.0 : static_cast<double>(job_.p_factor));
      const double log2_sum = row.empty() ? -HUGE_VAL : static_cast<double>(row.top) + log2(sum);
      BesideSink beside{.log2_sum = -HUGE_VAL};
      if (!is_padding_[r]) beside = beside_sink(job_.sinks, at_.head, log2_sum);
      if (beside.poisoned) row.poisoned = true;
      const double along = along_shift(r);
      if (result >= at_.last) continue;
      const double of_kept = job_.dropout.exists() ? job_.dropout.factor() : 1.0,
                   times = (normalized ? 1.0 / static_cast<double>(job_.p_factor)
                                       : beside.share / static_cast<double>(row.sum)) *
                           of_kept;
#pragma unroll
      for (int c = 0; c < kWide; ++c) {
        const std::int64_t col = first_col_ + col_of(across_, c);
        if (col >= out.cols) continue;
        store_value(out, result, col,
                    row.poisoned  ? static_cast<double>(NAN)
                    : row.empty() ? 0.0
                                  : static_cast<double>(totals_[r][c]) * times);
      }
      if (across_ == 0 && blockIdx.y == 0) finish_row(row, beside, result, along);
    }
  }

  // q shift, of what smoothing subtracted from K. All lanes of a row call it.
  __device__ double along_shift(int r) const {
    if (job_.key_shift == nullptr || job_.log_sum_exp == nullptr) return 0.0;
    const GemmOperand q = job_.q.at(at_.batch, at_.head);
    const float* const shift =
        job_.key_shift + (at_.batch * job_.kv_heads + job_.kv_head(at_.head)) * q.cols();
    double along = 0.0;
    for (std::int64_t d = across_; d < q.cols() && !is_padding_[r]; d += kLanesOfRow) {
      double number = 0.0;
      load_element<kCodes>(q, rows_[r], d, plan_.to_bf16[0], number);
      along += number * static_cast<double>(shift[d]);
    }
    return sum_of_row(along) * job_.softmax_scale;
  }

  __device__ __forceinline__ void finish_row(const RowSoftmax<Real>& row, const BesideSink& beside,
                                             std::int64_t result, double along) const {
    const std::int64_t rows = plan_.rows.positions != nullptr ? plan_.rows.count : job_.queries;
    const std::int64_t to = (at_.batch * job_.heads + at_.head) * rows + result;
    const double largest =
        row.poisoned || row.empty() ? 0.0 : exp2(static_cast<double>(row.largest - row.top));
    if (job_.p_amax != nullptr)
      atomicMax(reinterpret_cast<int*>(job_.p_amax), __float_as_int(static_cast<float>(largest)));
    const double share = row.empty() ? 0.0 : beside.share / static_cast<double>(row.exact_sum);
    if (job_.largest_weight != nullptr)
      job_.largest_weight[to] = row.poisoned  ? NAN
                                : row.empty() ? 0.0F
                                              : static_cast<float>(largest * share);
    if (plan_.rows.squares != nullptr)
      plan_.rows.squares[to] =
          row.poisoned  ? NAN
          : row.empty() ? 0.0F
                        : static_cast<float>(static_cast<double>(row.squares) * share * share);
    if (job_.log_sum_exp == nullptr) return;
    const double sum = beside.log2_sum * 0.6931471805599453;
    job_.log_sum_exp[to] = row.poisoned ? NAN : static_cast<float>(row.empty() ? sum : sum + along);
  }

  const GeneralPlan& plan_;
  const AttentionJob& job_;
  Tiles<Real>& tiles_;
  const RowTile at_;
  const int down_, across_;
  std::int64_t first_col_ = 0;
  std::int64_t rows_[kEach];
  bool is_padding_[kEach];
  AttentionJob::Keys keys_[kEach];
  RowSoftmax<Real> rows_softmax_[kEach];
  bool hidden_[kEach][kEach] = {};
  Real before_rounding_[kEach] = {};
  Real totals_[kEach][kWide] = {};
};

}  // namespace
}  // namespace octavo::cuda
