// In two passes over the keys of a few query rows: all scores first, then their weights times V.
// Nothing is skipped, redone or taken apart for a NaN: what is not finite goes through the same
// instructions, and the last step selects. Everything is in f32, in loops that compilers vectorise.
#include "octavo/backend/cpu/attention/attention_oblivious.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <numbers>
#include <vector>

#include "octavo/backend/attention_dropout_mask.h"
#include "octavo/backend/cpu/attention/attention_bias.h"
#include "octavo/backend/cpu/attention/attention_operand_rows.h"
#include "octavo/backend/cpu/attention/attention_soft_cap.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"
#include "octavo/backend/cpu/attention/row_store.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/masks.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRows = 8, kKeys = 64;  // query rows that share decoded keys
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float chosen(bool condition, float a, float b) {
  return std::bit_cast<float>(
      select(mask_of(condition), std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}
double chosen(bool condition, double a, double b) {
  const std::uint64_t mask = 0 - static_cast<std::uint64_t>(condition);
  return std::bit_cast<double>((mask & std::bit_cast<std::uint64_t>(a)) |
                               (~mask & std::bit_cast<std::uint64_t>(b)));
}

// The least integer that is not below x, or x where it is so large that it has few fraction bits.
float integer_above(float x) {
  constexpr float kRounder = 0x1.8p+23F, kLarge = 0x1p+22F;
  const float nearest = x + kRounder - kRounder, above = nearest + chosen(nearest < x, 1.0F, 0.0F);
  return chosen((x < kLarge) & (x > -kLarge), above, x);
}

// Of a positive normal number, to 1e-13: the mantissa between sqrt(1/2) and sqrt(2), and the series
// of the inverse hyperbolic tangent.
double log2_of(double x) {
  constexpr std::uint64_t kOne = 0x3FF0000000000000u, kRoot = 0x3FE6A09E667F3BCDu;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<std::int64_t>(bits - kRoot) >> 52;
  const auto mantissa = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  static_assert(kRoot < kOne);
  const double s = (mantissa - 1.0) / (mantissa + 1.0), t = s * s;
  double sum = 1.0 / 19.0;
  for (const double odd : {17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0})
    sum = sum * t + 1.0 / odd;
  return static_cast<double>(exponent) + 2.0 * std::numbers::log2e * s * sum;
}

// with_bias, of a bias that masks nothing.
float with_bias_of_any_size(float score, double bias, double factor) {
  const double wide = static_cast<double>(score) + bias * factor, size = std::fabs(wide),
               bent = std::copysign(kBend + (size - kBend) / kSlope, wide);
  return static_cast<float>(chosen(size > kBend, bent, wide));
}

float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  float sum = 0.0F;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Of a thread.
struct Scratch {
  float queries[kRows][kMaxHeadSize], sums[kRows][kMaxHeadSize], tile[kKeys][kMaxHeadSize];
};

// A row after its softmax.
struct RowState {
  float top = -kInfinity, base = 0.0F, sum = 0.0F, squares = 0.0F;
  bool poisoned = false;
};

// Neighbouring query rows of a head.
class Rows {
 public:
  Rows(const Isa& isa, const AttentionJob& job, std::int64_t batch, std::int64_t head,
       std::int64_t first, std::int64_t count, std::byte* memory)
      : job_(job),
        batch_(batch),
        head_(head),
        first_(first),
        count_(count),
        pitch_(round_up(std::max<std::int64_t>(job.keys, 1), 16)),
        depth_(job.q.first.cols()),
        width_(job.v.first.cols()),
        scores_(reinterpret_cast<float*>(memory + sizeof(Scratch))),
        q_(isa, job.q.at(batch, head), job.values, FactoredScales::none),
        k_(isa, job.k.at(batch, job.kv_head(head)), job.values, FactoredScales::none),
        v_(isa, job.v.at(batch, job.kv_head(head)), job.values, FactoredScales::none),
        store_(isa, job.out.first.values.dtype),
        scratch_(*new (memory) Scratch) {
    for (std::int64_t r = 0; r < count_; ++r) {
      seen_[r] = job.keys_of(batch, first + r);
      if (seen_[r].begin >= seen_[r].end) seen_[r] = {};
      if (first + r < rows_in(job, batch)) q_.row(first + r, scratch_.queries[r]);
      if (seen_[r].end == 0) continue;
      all_ = all_.end == 0 ? seen_[r]
                           : AttentionJob::Keys{std::min(all_.begin, seen_[r].begin),
                                                std::max(all_.end, seen_[r].end)};
    }
  }

  void run() {
    find_scores();
    for (std::int64_t r = 0; r < count_; ++r) weigh_row(r);
    for (float(&row)[kMaxHeadSize] : scratch_.sums) std::fill_n(row, width_, 0.0F);
    add_values();
    for (std::int64_t r = 0; r < count_; ++r) finish(r);
  }

 private:
  [[nodiscard]] float* scores_of(std::int64_t r) const { return scores_ + r * pitch_; }
  template <typename Visit>
  void for_each_seen(std::int64_t r, std::int64_t key, Visit&& visit) const {
    const std::int64_t end = std::min(key + kKeys, seen_[r].end);
    for (std::int64_t j = std::max(key, seen_[r].begin); j < end; ++j) visit(j);
  }
  [[nodiscard]] const float* bias_of(std::int64_t r) const {
    return job_.bias.first != nullptr ? job_.bias.at(batch_, head_, first_ + r) : nullptr;
  }
  // A mask that is given as a bias is as public as one that is given as a number.
  [[nodiscard]] bool is_masked(const float* bias, std::int64_t key) const {
    return bias != nullptr && bias[key * job_.bias.key] == -kInfinity;
  }

  void find_scores() {
    const auto factor = static_cast<float>(job_.softmax_scale * std::numbers::log2e);
    for (std::int64_t key = all_.begin; key < all_.end; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, all_.end - key);
      for (std::int64_t j = 0; j < keys; ++j) k_.row(key + j, scratch_.tile[j]);
      for (std::int64_t r = 0; r < count_; ++r)
        for_each_seen(r, key, [&](std::int64_t j) {
          scores_of(r)[j] = dot(scratch_.queries[r], scratch_.tile[j - key], depth_) * factor;
        });
    }
    for (std::int64_t r = 0; r < count_; ++r) {
      float* const scores = scores_of(r);
      if (job_.soft_cap != 0.0)
        apply_soft_cap(SoftCap(job_.soft_cap), scores + seen_[r].begin,
                       seen_[r].end - seen_[r].begin);
      const float* const bias = bias_of(r);
      if (bias == nullptr) continue;
      const double by = bias_factor(job_.bias);
      for (std::int64_t j = seen_[r].begin; j < seen_[r].end; ++j) {
        const float added = bias[j * job_.bias.key];
        scores[j] = is_masked(bias, j)
                        ? -kInfinity
                        : with_bias_of_any_size(scores[j], static_cast<double>(added), by);
      }
    }
  }

  // Scores become weights.
  void weigh_row(std::int64_t r) {
    RowState& state = states_[r];
    float* const scores = scores_of(r);
    std::uint32_t nan_seen = 0;
    for (std::int64_t j = seen_[r].begin; j < seen_[r].end; ++j)
      state.top = larger_of(state.top, scores[j], nan_seen);
    state.poisoned = (nan_seen != 0) | !(state.top < kInfinity);
    state.base = integer_above(state.top);
    const float from = chosen(state.top > -kInfinity, state.base, 0.0F);
    for (std::int64_t first = seen_[r].begin; first < seen_[r].end; first += kKeys) {
      const std::int64_t last = std::min(first + kKeys, seen_[r].end);
      float sum = 0.0F, squares = 0.0F;
      for (std::int64_t j = first; j < last; ++j) {
        scores[j] = exp2_of(scores[j] - from);
        sum += scores[j];
        squares += scores[j] * scores[j];
      }
      state.sum += sum;
      state.squares += squares;
    }
  }

  // Sums of a tile apart, so that a term meets the roundings of one tile and one for each tile.
  void add_values() {
    for (std::int64_t key = all_.begin; key < all_.end; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, all_.end - key);
      for (std::int64_t j = 0; j < keys; ++j) v_.row(key + j, scratch_.tile[j]);
      for (std::int64_t r = 0; r < count_; ++r) {
        alignas(64) float some[kMaxHeadSize] = {};
        const float* const bias = bias_of(r);
        for_each_seen(r, key, [&](std::int64_t j) {
          if (is_masked(bias, j) ||
              (job_.dropout.exists() && !dropout_keep(job_.dropout, batch_, head_, first_ + r, j)))
            return;
          const float p = scores_of(r)[j];
          for (std::int64_t e = 0; e < width_; ++e) some[e] += p * scratch_.tile[j - key][e];
        });
        for (std::int64_t e = 0; e < width_; ++e) scratch_.sums[r][e] += some[e];
      }
    }
  }

  // The log2 of the sum of 2^score over the keys and the sink, and the keys' share of it.
  struct Beside {
    double log2_sum, share;
    bool poisoned;
  };
  [[nodiscard]] Beside beside_sink_of(const RowState& state, bool empty) const {
    const auto base = static_cast<double>(state.base);
    const double unbent_base =
        chosen(std::fabs(base) > kBend,
               std::copysign(kBend + (std::fabs(base) - kBend) * kSlope, base), base);
    const double keys = (job_.bias.first != nullptr ? unbent_base : base) +
                        log2_of(static_cast<double>(chosen(empty, 1.0F, state.sum)));
    if (!job_.sinks.exist()) return {keys, 1.0, false};
    const double sink = static_cast<double>(job_.sinks.at(head_)) * std::numbers::log2e;
    if (!(sink < HUGE_VAL)) return {keys, kNaN, true};
    if (sink == -HUGE_VAL) return {keys, 1.0, false};
    const double most = chosen((sink > keys) | empty, sink, keys);
    const auto of_keys = static_cast<double>(
                   chosen(empty, 0.0F, exp2_of(static_cast<float>(keys - most)))),
               of_sink = static_cast<double>(exp2_of(static_cast<float>(sink - most))),
               sum = of_keys + of_sink;
    return {most + log2_of(sum), of_keys / sum, false};
  }

  void finish(std::int64_t r) const {
    const std::int64_t row = first_ + r, at = (batch_ * job_.heads + head_) * job_.queries + row;
    const RowState& state = states_[r];
    const bool is_padding = row >= rows_in(job_, batch_), empty = !(state.top > -kInfinity);
    const Beside beside = is_padding ? Beside{0.0, 1.0, false} : beside_sink_of(state, empty);
    const bool poisoned = state.poisoned | beside.poisoned;
    const auto share = static_cast<float>(beside.share);
    const float sum = chosen(empty, 1.0F, state.sum),
                factor = job_.dropout.exists() ? static_cast<float>(job_.dropout.factor()) : 1.0F;
    alignas(64) float values[kMaxHeadSize];
    for (std::int64_t e = 0; e < width_; ++e)
      values[e] =
          chosen(poisoned, kNaN, chosen(empty, 0.0F, scratch_.sums[r][e] / sum * share * factor));
    store_(job_.out.at(batch_, head_).values, row, values);
    const float largest = chosen(empty, 0.0F, exp2_of(state.top - state.base)),
                weight = chosen(poisoned, kNaN, largest / sum * share), part = share / sum,
                squares = state.squares * part * part;
    if (job_.largest_weight != nullptr) job_.largest_weight[at] = weight;
    if (job_.weight_squares != nullptr)
      job_.weight_squares[at] = chosen(squares < weight, squares, weight);
    if (job_.log_sum_exp == nullptr) return;
    double result = beside.log2_sum * std::numbers::ln2;
    if (job_.key_shift != nullptr && !is_padding) {
      const float* const shift =
          job_.key_shift + (batch_ * job_.kv_heads + job_.kv_head(head_)) * depth_;
      double along = 0.0;
      for (std::int64_t d = 0; d < depth_; ++d)
        along += static_cast<double>(scratch_.queries[r][d]) * static_cast<double>(shift[d]);
      result += chosen(empty, 0.0, along * job_.softmax_scale);
    }
    constexpr double kMost = std::numeric_limits<float>::max();
    result = chosen(result > kMost, kMost, chosen(result < -kMost, -kMost, result));
    const bool none = empty & !(job_.sinks.exist() && job_.sinks.at(head_) != -kInfinity);
    job_.log_sum_exp[at] =
        chosen(poisoned, kNaN, chosen(none | is_padding, -kInfinity, static_cast<float>(result)));
  }

  const AttentionJob& job_;
  std::int64_t batch_, head_, first_, count_, pitch_, depth_, width_;
  float* scores_;  // [rows][pitch]
  AttentionRows q_, k_, v_;
  RowStore store_;
  AttentionJob::Keys seen_[kRows] = {}, all_{};
  RowState states_[kRows] = {};
  Scratch& scratch_;
};

std::int64_t bytes_of_part(const AttentionJob& job) {
  return static_cast<std::int64_t>(sizeof(Scratch)) +
         kRows * round_up(std::max<std::int64_t>(job.keys, 1), 16) *
             static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::int64_t oblivious_attention_workspace(const Exec& exec, const AttentionJob& job) {
  return std::max(1, exec.threads) * bytes_of_part(job);
}

void attend_obliviously(const Isa& isa, const Exec& exec, const AttentionJob& job) {
  struct Block {
    std::int64_t batch, head, first, count;
  };
  std::vector<Block> blocks;
  const auto cut = [&](const AttentionRange& range) {
    for (std::int64_t row = 0; row < range.count; row += kRows)
      blocks.push_back(
          {range.batch, range.head, range.first + row, std::min(kRows, range.count - row)});
  };
  for (std::int64_t i = 0; i < job.range_count; ++i) cut(job.ranges[i]);
  if (job.ranges == nullptr)
    for (std::int64_t batch = 0; batch < job.batches; ++batch)
      for (std::int64_t head = 0; head < job.heads; ++head)
        cut({.batch = batch, .head = head, .first = 0, .count = job.queries});
  const auto count = static_cast<std::int64_t>(blocks.size());
  const int threads = std::max(1, exec.threads),
            parts =
                static_cast<int>(std::min<std::int64_t>(threads, std::max<std::int64_t>(1, count)));
  parallel_parts(count, parts, threads, [&](int part, std::int64_t first, std::int64_t last) {
    std::byte* const memory = exec.workspace.data() + part * bytes_of_part(job);
    for (std::int64_t i = first; i < last; ++i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      Rows(isa, job, block.batch, block.head, block.first, block.count, memory).run();
    }
  });
}

}  // namespace octavo::cpu
