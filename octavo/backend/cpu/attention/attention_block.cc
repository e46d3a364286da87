#include "octavo/backend/cpu/attention/attention_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "octavo/backend/cpu/attention/attention_bias.h"
#include "octavo/backend/cpu/attention/attention_codes.h"
#include "octavo/backend/cpu/attention/attention_dropped.h"
#include "octavo/backend/cpu/attention/attention_error_bound.h"
#include "octavo/backend/cpu/attention/attention_query_block.h"
#include "octavo/backend/cpu/attention/attention_soft_cap.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"

namespace octavo::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Softmax kernels add to the bits of scores: a NaN must have room above.
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint16_t kHalfInfinity = 0x7C00, kHalfMinusInfinity = 0xFC00, kHalfNan = 0x7E00;

bool transposes_sums(const AttentionMethod& method, const TileLayout& layout) {
  return method.transpose_sums != nullptr && layout.padded_width % 16 == 0;
}

class Block {
 public:
  Block(const BlockJob& block, const BlockRows& range, const AttentionScratch& scratch)
      : b_(block),
        range_(range),
        s_(scratch),
        width_(block.method.query_block()),
        q_operand_(block.job.q.at(range.batch, range.head)),
        q_(block.isa, q_operand_, block.job.values, score_factoring(block.method)),
        coded_q_(block.isa, block.method, q_operand_),
        k_(block.isa, block.job.k.at(range.batch, block.job.kv_head(range.head)), block.job.values,
           FactoredScales::none),
        v_(block.isa, block.job.v.at(range.batch, block.job.kv_head(range.head)), block.job.values,
           FactoredScales::none) {
    begin();
  }

  void run() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (int i = 0; i < query_block_count_; ++i) {
      least = std::min(least, query_blocks_[i].least);
      most = std::max(most, query_blocks_[i].most);
    }
    const std::int64_t keys = b_.method.tile_keys;
    for (std::int64_t tile = least / keys; tile * keys < most; ++tile) {
      const PackedTile packed = tile_at(b_.layout, b_.tiles + tile * b_.layout.bytes);
      for (int i = 0; i < query_block_count_; ++i)
        if (query_blocks_[i].least < (tile + 1) * keys && query_blocks_[i].most > tile * keys)
          attend(i, packed, tile * keys);
    }
    const RowErrors errors = errors_of(b_.method, b_.random_walk);
    const std::int64_t width = b_.layout.padded_width;
    const bool transposed = transposes_sums(b_.method, b_.layout);
    for (int i = 0; i < query_block_count_; ++i) {
      if (transposed) b_.method.transpose_sums(sums(i), width, s_.rows);
      for (int c = 0; c < query_blocks_[i].count; ++c) {
        const std::int64_t at = i * width_ + c, row = query_blocks_[i].row[c];
        if (b_.uncertain != nullptr && exceeds_error_bound(state_at(at, row), errors)) {
          b_.uncertain[row] = 1;
          continue;
        }
        b_.epilogue(range_.batch, range_.head, row,
                    {s_.top[at], s_.base[at], s_.sum[at],
                     transposed ? s_.rows + c * width : sums(i) + c, transposed ? 1 : width_,
                     b_.value_unit, has_channels_ ? channels_ : nullptr, s_.weight_squares[at]});
      }
    }
  }

 private:
  void begin() {
    const Microkernel& score = b_.method.score;
    const auto factor = static_cast<float>(b_.job.softmax_scale * std::numbers::log2e);
    const std::int64_t length = rows_in(b_.job, range_.batch);
    has_channels_ = AttentionRows(b_.isa, b_.job.v.at(range_.batch, b_.job.kv_head(range_.head)),
                                  b_.job.values, weigh_factoring(b_.method))
                        .channel_scales(channels_);
    query_block_count_ = static_cast<int>(blocks(range_.count, width_));
    for (int i = 0; i < query_block_count_; ++i) {
      query_blocks_[i] = query_block_of(b_.job, range_, i * width_, width_);
      low_[i] = false;
      for (int c = 0; c < width_; c += score.cols) {
        // Rows beyond their batch's length are padding, which may hold anything.
        std::int64_t rows[kMaxPanelRows];
        for (int r = 0; r < score.cols; ++r) {
          const std::int64_t row =
              c + r < query_blocks_[i].count ? query_blocks_[i].row[c + r] : length;
          rows[r] = row < length ? row : -1;
        }
        low_[i] |=
            pack_queries(b_.method, b_.layout, q_, coded_q_, rows, score.cols, factor, panel(i, c),
                         s_.units + i * width_ + c, s_.nonfinite + i * width_ + c);
      }
    }
    const std::int64_t all = query_block_count_ * width_;
    std::fill_n(s_.top, all, -kInfinity);
    std::fill_n(s_.base, all, -kInfinity);
    std::fill_n(s_.sum, all, 0.0F);
    std::fill_n(s_.weight_squares, all, b_.method.sums_weight_squares ? 0.0F : kInfinity);
    std::fill_n(s_.largest_raw_score, all, 0.0F);
    std::fill_n(s_.sums, all * b_.layout.padded_width, 0.0F);
  }

  [[nodiscard]] std::byte* panel(int query_block, int col) const {
    const int cols = b_.method.score.cols;
    return s_.queries + (query_block * (width_ / cols) + col / cols) * b_.layout.query_panel(cols);
  }
  [[nodiscard]] float* sums(int query_block) const {
    return s_.sums + query_block * b_.layout.padded_width * width_;
  }

  void attend(int i, const PackedTile& tile, std::int64_t first_key) {
    const AttentionMethod& method = b_.method;
    const QueryBlock& query_block = query_blocks_[i];
    const std::int64_t keys = method.tile_keys;
    score(i, tile);
    const bool nonfinite_queries =
        std::any_of(s_.nonfinite + i * width_, s_.nonfinite + (i + 1) * width_,
                    [](bool nonfinite) { return nonfinite; });
    if (tile.nonfinite_keys || nonfinite_queries) score_nonfinite(i, first_key);
    if (b_.job.soft_cap != 0.0) soft_cap();
    if (b_.job.bias.first != nullptr) add_bias(i, first_key);
    if (query_block.all_begin > first_key || query_block.all_end < first_key + keys)
      mask(query_block, first_key);

    alignas(64) float rescale[kMaxQueryBlock];
    const std::int64_t at = i * width_;
    if (method.softmax(
            {.scores = s_.scores,
             .weights = s_.weights,
             .keys = keys,
             .run = kWeightRun,
             .top = s_.top + at,
             .base = s_.base + at,
             .sum = s_.sum + at,
             .rescale = rescale,
             .weight_squares = b_.uncertain != nullptr || b_.job.weight_squares != nullptr
                                   ? s_.weight_squares + at
                                   : nullptr,
             .key_factors = tile.key_factors,
             .key_inverses = tile.key_factors != nullptr ? tile.key_factors + keys : nullptr})) {
      float* row = sums(i);
      if (method.rescale != nullptr) {
        method.rescale(row, b_.layout.padded_width, rescale);
        row = nullptr;
      }
      for (std::int64_t e = 0; row != nullptr && e < b_.layout.padded_width; ++e, row += width_)
        for (int c = 0; c < width_; ++c) row[c] *= rescale[c];
    }
    if (b_.job.dropout.exists())
      drop_weights(b_.job.dropout, range_.batch, range_.head,
                   {query_block.row, query_block.count, first_key, keys},
                   {s_.weights, width_, method.weigh.step, packed_bytes(method.weigh_type)});
    weigh(i, tile);
    if (tile.nonfinite_values) weigh_nonfinite(i, first_key);
  }

  // A bias has no error: with one, the largest score before the bias counts, of any visible key.
  [[nodiscard]] RowState state_at(std::int64_t at, std::int64_t row) const {
    return {.top = s_.top[at],
            .base = s_.base[at],
            .sum = b_.epilogue.sum_with_sink(range_.batch, range_.head, row,
                                             {s_.top[at], s_.base[at], s_.sum[at]}),
            .weight_squares = s_.weight_squares[at],
            .score = b_.job.bias.first != nullptr ? s_.largest_raw_score[at] : std::abs(s_.top[at]),
            .factor = b_.method.weight_factor};
  }

  void score(int i, const PackedTile& tile) const {
    const AttentionMethod& method = b_.method;
    const bool is_f32 = method.score_type == PackedType::f32;
    if (is_f32 && !method.overwrites_scores)
      std::fill_n(s_.scores, method.tile_keys * width_, 0.0F);
    const int rows = method.score.rows, cols = method.score.cols;
    for (std::int64_t key = 0; key < method.tile_keys; key += rows)
      for (int c = 0; c < width_; c += cols)
        method.score.run({.a = tile.keys + key / rows * b_.layout.key_panel,
                          .b = panel(i, c),
                          .run = b_.layout.padded_depth,
                          .runs = tile.low_keys || low_[i] ? 2 : 1,
                          .a_scale = is_f32 ? nullptr : tile.units + key,
                          .b_scale = is_f32 ? nullptr : s_.units + i * width_ + c,
                          .sums = score_at(key, c),
                          .pitch = width_,
                          .overwrites = method.overwrites_scores});
  }

  // f16 scores (narrow_scores) are half as wide.
  [[nodiscard]] float* score_at(std::int64_t key, std::int64_t col) const {
    const std::int64_t at = key * width_ + col;
    return b_.method.narrow_scores
               ? reinterpret_cast<float*>(reinterpret_cast<std::uint16_t*>(s_.scores) + at)
               : s_.scores + at;
  }
  void set_score(std::int64_t key, std::int64_t col, float score) const {
    if (!b_.method.narrow_scores) {
      s_.scores[key * width_ + col] = score == score ? score : kNaN;
      return;
    }
    // Only non-finite scores are set.
    const bool is_nan = score != score;
    reinterpret_cast<std::uint16_t*>(s_.scores)[key * width_ + col] = is_nan ? kHalfNan
                                                                      : score > 0.0F
                                                                          ? kHalfInfinity
                                                                          : kHalfMinusInfinity;
  }

  // Recomputes the scores of non-finite rows and keys by definition in f64: they are non-finite
  // too.
  void score_nonfinite(int i, std::int64_t first_key) const {
    alignas(64) float q[kMaxHeadSize], k[kMaxHeadSize];
    const QueryBlock& query_block = query_blocks_[i];
    const double factor = b_.job.softmax_scale * std::numbers::log2e;
    const AttentionRows q_rows(b_.isa, b_.job.q.at(range_.batch, range_.head), b_.job.values,
                               FactoredScales::none);
    for (std::int64_t key = 0; key < b_.method.tile_keys; ++key) {
      if (first_key + key >= query_block.most) break;
      k_.row(first_key + key, k);
      const bool nonfinite_key = !is_finite_row(k, b_.layout.depth);
      for (int c = 0; c < query_block.count; ++c) {
        if (!(nonfinite_key || s_.nonfinite[i * width_ + c]) || query_block.end[c] == 0) continue;
        q_rows.row(query_block.row[c], q);
        double sum = 0.0;
        for (std::int64_t d = 0; d < b_.layout.depth; ++d)
          sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
        set_score(key, c, static_cast<float>(sum * factor));
      }
    }
  }

  // Scores are f32 here (takes_narrow_scores).
  void soft_cap() const {
    const SoftCap cap(b_.job.soft_cap);
    const std::int64_t n = b_.method.tile_keys * width_;
    if (b_.method.soft_cap != nullptr) return b_.method.soft_cap(cap, s_.scores, n);
    apply_soft_cap(cap, s_.scores, n);
  }

  // Adds the bias to the keys that a row sees; others are masked afterwards. -inf stays, whatever
  // the key is.
  void add_bias(int i, std::int64_t first_key) const {
    const QueryBlock& query_block = query_blocks_[i];
    const AttentionBias& bias = b_.job.bias;
    const double factor = bias_factor(bias);
    for (int c = 0; c < query_block.count; ++c) {
      const float* row = bias.at(range_.batch, range_.head, query_block.row[c]);
      float& largest_raw_score = s_.largest_raw_score[i * width_ + c];
      const std::int64_t end = std::min(first_key + b_.method.tile_keys, query_block.end[c]);
      for (std::int64_t key = std::max(first_key, query_block.begin[c]); key < end; ++key) {
        float& score = s_.scores[(key - first_key) * width_ + c];
        const float size = std::abs(score);
        if (row[key * bias.key] > -kInfinity && size < kInfinity)
          largest_raw_score = std::max(largest_raw_score, size);
        score = with_bias(score, row[key * bias.key], factor);
        if (score != score) score = kNaN;
      }
    }
  }

  void mask(const QueryBlock& query_block, std::int64_t first_key) const {
    std::int32_t begin[kMaxQueryBlock], end[kMaxQueryBlock];
    const auto within = [&](std::int64_t key) {
      return static_cast<std::int32_t>(
          std::clamp<std::int64_t>(key - first_key, 0, b_.method.tile_keys));
    };
    for (int c = 0; c < width_; ++c) {
      begin[c] = within(query_block.begin[c]);
      end[c] = within(query_block.end[c]);
    }
    if (b_.method.narrow_scores) {
      hide(reinterpret_cast<std::uint16_t*>(s_.scores), begin, end, kHalfMinusInfinity);
    } else {
      hide(s_.scores, begin, end, -kInfinity);
    }
  }
  template <typename T>
  void hide(T* row, const std::int32_t* begin, const std::int32_t* end, T nothing) const {
    for (std::int32_t key = 0; key < b_.method.tile_keys; ++key, row += width_)
      for (int c = 0; c < width_; ++c)
        row[c] = (key >= begin[c]) & (key < end[c]) ? row[c] : nothing;
  }

  void weigh(int i, const PackedTile& tile) const {
    const AttentionMethod& method = b_.method;
    const bool is_f32 = method.weigh_type == PackedType::f32,
               is_f16 = method.weigh_type == PackedType::f16;
    const int rows = method.weigh.rows;
    const float factor = tile.factor / b_.value_unit;
    for (std::int64_t e = 0; e < b_.layout.padded_width; e += rows)
      method.weigh.run({.a = tile.values + e / rows * b_.layout.value_panel,
                        .b = s_.weights,
                        .run = is_f16 ? kWeightRun : method.tile_keys,
                        .runs = is_f16 ? method.tile_keys / kWeightRun : 1,
                        .a_scale = is_f32 ? nullptr : &factor,
                        .b_scale = nullptr,
                        .sums = sums(i) + e * width_,
                        .pitch = width_});
  }

  // Adds non-finite values to the rows that see them, and no others.
  void weigh_nonfinite(int i, std::int64_t first_key) const {
    alignas(64) float v[kMaxHeadSize];
    const QueryBlock& query_block = query_blocks_[i];
    for (std::int64_t key = first_key; key < first_key + b_.method.tile_keys; ++key) {
      if (key >= query_block.most) break;
      v_.row(key, v);
      for (std::int64_t e = 0; e < b_.layout.width; ++e) {
        if (std::isfinite(v[e])) continue;
        for (int c = 0; c < query_block.count; ++c)
          if (key >= query_block.begin[c] && key < query_block.end[c] &&
              !is_hidden(query_block.row[c], key) && is_kept(query_block.row[c], key))
            sums(i)[e * width_ + c] += v[e];
      }
    }
  }

  [[nodiscard]] bool is_hidden(std::int64_t row, std::int64_t key) const {
    const AttentionBias& bias = b_.job.bias;
    return bias.first != nullptr &&
           bias.at(range_.batch, range_.head, row)[key * bias.key] == -kInfinity;
  }

  [[nodiscard]] bool is_kept(std::int64_t row, std::int64_t key) const {
    return !b_.job.dropout.exists() ||
           dropout_keep(b_.job.dropout, range_.batch, range_.head, row, key);
  }

  const BlockJob& b_;
  const BlockRows& range_;
  const AttentionScratch& s_;
  int width_, query_block_count_ = 0;
  bool has_channels_ = false;
  alignas(64) float channels_[kMaxHeadSize];
  GemmOperand q_operand_;
  AttentionRows q_;
  CodedRows coded_q_;
  AttentionRows k_, v_;
  std::array<QueryBlock, kQueryBlocks> query_blocks_{};
  std::array<bool, kQueryBlocks> low_{};  // whether a lower limb of its queries is not zero
};

}  // namespace

AttentionScratch attention_scratch(const AttentionMethod& method, const TileLayout& layout,
                                   std::byte* memory) {
  AttentionScratch scratch;
  const auto take = [&]<typename T>(T*& part, std::int64_t count) {
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + scratch.bytes);
    scratch.bytes += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
  };
  const std::int64_t width = method.query_block(), rows = kQueryBlocks * width;
  take(scratch.queries, rows / method.score.cols * layout.query_panel(method.score.cols));
  take(scratch.units, rows);
  take(scratch.nonfinite, rows);
  take(scratch.scores, method.tile_keys * width);
  if (method.weigh_type == PackedType::f32 || method.narrow_scores) {
    scratch.weights = reinterpret_cast<std::byte*>(scratch.scores);
  } else {
    take(scratch.weights, method.tile_keys * width * packed_bytes(method.weigh_type));
  }
  take(scratch.sums, rows * layout.padded_width);
  if (transposes_sums(method, layout)) take(scratch.rows, width * layout.padded_width);
  take(scratch.top, rows);
  take(scratch.base, rows);
  take(scratch.sum, rows);
  take(scratch.weight_squares, rows);
  take(scratch.largest_raw_score, rows);
  return scratch;
}

void attend_block(const BlockJob& block, const BlockRows& rows, const AttentionScratch& scratch) {
  Block(block, rows, scratch).run();
}

}  // namespace octavo::cpu
