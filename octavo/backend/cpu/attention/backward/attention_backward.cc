// The attention backward pass in f32. With s the scores, P = 2^(s - m) / sum 2^(s - m) the weights
// and delta = sum_j P dP of a row:
//   dV = P^T dO,   dP = dO V^T,   dS = P (dP - delta) scale,   dQ = dS K,   dK = dS^T Q.
// A soft cap multiplies dS by its slope; the sum of a row has its sink in it, whose gradient is
// minus its weight times delta.
// Where a forward pass is given, P = 2^(s - l) with its log-sum-exp l, and delta = sum_e dO O. It
// is not used for rows whose l is large: f32 has too few fraction bits left, and the forward pass's
// scores, whose sums are rounded in another order, differ from those here by as much. Query blocks
// of 48 rows are multiplied with tiles of 48 keys, twice where m, the sum and delta are to be
// computed. The tiles of a head are distributed over kChunks chunks, each with partial sums of its
// own that are added in order: the number of threads changes nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "octavo/backend/cpu/attention/backward/attention_backward_tile.h"
#include "octavo/backend/cpu/attention/row_store.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kChunks = 4;
constexpr std::int64_t kTogetherFloats = std::int64_t{16}
                                         << 20;  // size of the heads packed at a time
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// The largest log-sum-exp that is used: weights are off by half a unit of its last place, 2^-15
// here.
constexpr float kMaxGiven = 1024.0F;

class Backward {
 public:
  Backward(const Isa& isa, const AttentionMethod& method, const Exec& exec,
           const AttentionBackwardJob& job)
      : isa_(isa),
        method_(method),
        exec_(exec),
        job_(job),
        forward_(job.forward),
        sizes_(method.score, forward_.q.first.cols(), forward_.v.first.cols()),
        blocks_(blocks(forward_.queries, kBackwardSide)),
        group_(forward_.heads / std::max<std::int64_t>(1, forward_.kv_heads)),
        block_floats_(sizes_.block_floats() + kChunks * kBackwardSide * sizes_.padded_depth +
                      kChunks * BackwardSums::kFloats),
        head_floats_(group_ * blocks_ * block_floats_),
        threads_(std::max(1, exec.threads)),
        store_q_(isa, job.d_q.first.values.dtype),
        store_k_(isa, job.d_k.first.values.dtype),
        store_v_(isa, job.d_v.first.values.dtype) {
    const std::int64_t heads = std::max<std::int64_t>(1, forward_.batches * forward_.kv_heads);
    together_ = std::clamp<std::int64_t>(kTogetherFloats / std::max<std::int64_t>(1, head_floats_),
                                         1, heads);
  }

  [[nodiscard]] std::int64_t workspace() const {
    return (together_ * head_floats_ + parts() * scratch_floats()) * 4;
  }

  void run() const {
    auto* memory = reinterpret_cast<float*>(exec_.workspace.data());
    const std::int64_t heads = forward_.batches * forward_.kv_heads;
    for (std::int64_t first = 0; first < heads; first += together_)
      heads_from(first, std::min(heads, first + together_), memory);
  }

 private:
  [[nodiscard]] int parts() const { return threads_ > 1 ? threads_ * 4 : 1; }
  [[nodiscard]] std::int64_t scratch_floats() const {
    return BackwardScratch(sizes_, forward_, nullptr).floats;
  }

  void heads_from(std::int64_t first, std::int64_t last, float* memory) const {
    const std::int64_t per_head = group_ * blocks_;
    parallel_units((last - first) * per_head, threads_, [&](std::int64_t unit) {
      pack_block(first + unit / per_head, unit % per_head, memory + unit * block_floats_);
    });
    float* const scratches = memory + together_ * head_floats_;
    const std::int64_t units = (last - first) * kChunks;
    const auto all_chunks = [&](auto&& work) {
      parallel_parts(units, static_cast<int>(std::min<std::int64_t>(units, parts())), threads_,
                     [&](int part, std::int64_t begin, std::int64_t end) {
                       const BackwardScratch scratch(sizes_, forward_,
                                                     scratches + part * scratch_floats());
                       for (std::int64_t unit = begin; unit < end; ++unit)
                         work(first + unit / kChunks, unit % kChunks,
                              memory + unit / kChunks * head_floats_, scratch);
                     });
    };
    bool all_known = true;
    for (std::int64_t block = 0; block < (last - first) * per_head; ++block)
      all_known &= BackwardBlock(sizes_, memory + block * block_floats_).is_known();
    if (!all_known) {
      all_chunks([&](std::int64_t kv, std::int64_t chunk, float* blocks, const auto& scratch) {
        sum_up(kv, chunk, blocks, scratch);
      });
      parallel_units((last - first) * per_head, threads_, [&](std::int64_t unit) {
        merge_sums(head_of(first + unit / per_head, unit % per_head),
                   memory + unit * block_floats_);
      });
    }
    all_chunks([&](std::int64_t kv, std::int64_t chunk, float* blocks, const auto& scratch) {
      add_gradients(kv, chunk, blocks, scratch);
    });
    parallel_units((last - first) * per_head, threads_, [&](std::int64_t unit) {
      write_queries(first + unit / per_head, unit % per_head, memory + unit * block_floats_);
    });
    if (job_.d_sinks == nullptr) return;
    for (std::int64_t unit = 0; unit < (last - first) * per_head; ++unit)
      add_sink(head_of(first + unit / per_head, unit % per_head), memory + unit * block_floats_);
  }

  [[nodiscard]] std::int64_t head_of(std::int64_t kv, std::int64_t block) const {
    return kv % forward_.kv_heads * group_ + block / blocks_;
  }

  void pack_block(std::int64_t kv, std::int64_t block, float* memory) const {
    const std::int64_t batch = kv / forward_.kv_heads, head = head_of(kv, block);
    const std::int64_t first = block % blocks_ * kBackwardSide;
    const BackwardBlock to(sizes_, memory);
    const AttentionRows q(isa_, forward_.q.at(batch, head), forward_.values, FactoredScales::none),
        d_out(isa_, job_.d_out.at(batch, head), DType::f32, FactoredScales::none);
    const std::int64_t length = rows_in(forward_, batch);
    const std::int64_t real = std::clamp<std::int64_t>(length - first, 0, kBackwardSide);
    const BackwardPack pack(sizes_);
    pack.both(q, first, real, sizes_.depth, sizes_.cols, to.q_transposed, to.q_rows);
    pack.both(d_out, first, real, sizes_.width, sizes_.cols, to.d_transposed, to.d_rows);
    bool is_known = forward_.log_sum_exp != nullptr;
    for (std::int64_t r = 0; r < kBackwardSide; ++r) {
      to.begin[r] = to.end[r] = 0;
      to.from[r] = to.delta[r] = 0.0F;
      to.times[r] = 1.0F;
      if (r >= real) continue;
      const AttentionJob::Keys keys = forward_.keys_of(batch, first + r);
      if (keys.begin >= keys.end) continue;
      to.begin[r] = static_cast<std::int32_t>(keys.begin);
      to.end[r] = static_cast<std::int32_t>(keys.end);
      if (is_known) is_known = take_given(batch, head, first + r, r, d_out, to);
    }
    to.set_known(is_known);
    float* const sums = memory + sizes_.block_floats();
    std::fill_n(sums, kChunks * kBackwardSide * sizes_.padded_depth, 0.0F);
    for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) sums_of(memory, chunk).clear();
  }

  // Takes the forward pass's results of a row. Returns false where they cannot be used.
  bool take_given(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t r,
                  const AttentionRows& d_out, const BackwardBlock& to) const {
    const AttentionRows out(isa_, forward_.out.at(batch, head), DType::f32, FactoredScales::none);
    const float lse =
        forward_.log_sum_exp[(batch * forward_.heads + head) * forward_.queries + row];
    if (lse == -HUGE_VALF) to.begin[r] = to.end[r] = 0;
    if (lse == -HUGE_VALF) return true;
    if (std::abs(lse) > kMaxGiven) return false;
    to.from[r] = static_cast<float>(static_cast<double>(lse) * std::numbers::log2e);
    alignas(64) float gradient[kMaxHeadSize], output[kMaxHeadSize];
    d_out.row(row, gradient);
    out.row(row, output);
    double delta = 0.0;
    for (std::int64_t e = 0; e < sizes_.width; ++e)
      delta += static_cast<double>(gradient[e]) * static_cast<double>(output[e]);
    to.delta[r] = static_cast<float>(delta);
    return true;
  }

  [[nodiscard]] BackwardSums sums_of(float* block, std::int64_t chunk) const {
    return BackwardSums(block + sizes_.block_floats() +
                        kChunks * kBackwardSide * sizes_.padded_depth +
                        chunk * BackwardSums::kFloats);
  }

  // Merges the sums of all chunks, in order, and the sink: a key whose dP is zero.
  void merge_sums(std::int64_t head, float* memory) const {
    const BackwardBlock to(sizes_, memory);
    if (to.is_known()) return;
    const BackwardSums sums = sums_of(memory, 0);
    for (std::int64_t chunk = 1; chunk < kChunks; ++chunk) sums.add(sums_of(memory, chunk));
    const float sink = sink_of(head);
    for (std::int64_t r = 0; r < kBackwardSide; ++r) {
      if (sink > -HUGE_VALF && sums.top[r] > -HUGE_VALF) sums.add_sink(r, sink);
      const bool poisoned = !(sums.top[r] < HUGE_VALF) || !(sink < HUGE_VALF);
      if (sums.top[r] == -HUGE_VALF) to.begin[r] = to.end[r] = 0;
      to.from[r] = poisoned ? kNaN : sums.top[r] == -HUGE_VALF ? 0.0F : sums.top[r];
      to.times[r] = sums.sum[r] > 0.0F ? 1.0F / sums.sum[r] : 1.0F;
      to.delta[r] = poisoned ? kNaN : sums.delta[r] * to.times[r];
    }
  }

  // In units of log2.
  [[nodiscard]] float sink_of(std::int64_t head) const {
    if (!forward_.sinks.exist()) return -HUGE_VALF;
    const double sink = static_cast<double>(forward_.sinks.at(head)) * std::numbers::log2e;
    constexpr double kMax = std::numeric_limits<float>::max();
    return static_cast<float>(std::isfinite(sink) ? std::clamp(sink, -kMax, kMax) : sink);
  }

  void add_sink(std::int64_t head, float* memory) const {
    const BackwardBlock rows(sizes_, memory);
    const auto sink = static_cast<double>(sink_of(head));
    for (std::int64_t r = 0; r < kBackwardSide; ++r) {
      if (rows.begin[r] >= rows.end[r]) continue;
      const double weight =
          std::exp2(sink - static_cast<double>(rows.from[r])) * static_cast<double>(rows.times[r]);
      job_.d_sinks[head] -= weight * static_cast<double>(rows.delta[r]);
    }
  }

  // Tiles chunk, chunk + kChunks, ... of a head of keys: interleaved, because with a causal mask
  // later tiles are seen by fewer rows. Calls work(memory, query block, place) for query blocks
  // that see a tile.
  template <typename Work>
  void over_blocks(std::int64_t kv, std::int64_t key, std::int64_t real, float* blocks_memory,
                   Work&& work) const {
    for (std::int64_t block = 0; block < group_ * blocks_; ++block) {
      float* const memory = blocks_memory + block * block_floats_;
      const BackwardBlock rows(sizes_, memory);
      bool any = false;
      for (std::int64_t r = 0; r < kBackwardSide; ++r)
        any |= rows.begin[r] < key + real && rows.end[r] > key;
      if (any)
        work(memory, rows,
             BackwardTile::Place{.batch = kv / forward_.kv_heads,
                                 .head = head_of(kv, block),
                                 .first = block % blocks_ * kBackwardSide,
                                 .key = key});
    }
  }
  // Calls work(first key, number of keys) for those tiles, whose keys and values are packed.
  template <typename Work>
  void over_tiles(std::int64_t kv, std::int64_t chunk, const BackwardScratch& s,
                  Work&& work) const {
    const std::int64_t batch = kv / forward_.kv_heads, head = kv % forward_.kv_heads;
    const AttentionRows k(isa_, forward_.k.at(batch, head), forward_.values, FactoredScales::none),
        v(isa_, forward_.v.at(batch, head), forward_.values, FactoredScales::none);
    const std::int64_t length = keys_in(forward_, batch);
    const BackwardPack pack(sizes_);
    for (std::int64_t key = chunk * kBackwardSide; key < forward_.keys;
         key += kChunks * kBackwardSide) {
      const std::int64_t real = std::clamp<std::int64_t>(length - key, 0, kBackwardSide);
      pack.both(k, key, real, sizes_.depth, sizes_.rows, s.k_transposed, s.k_rows);
      pack.both(v, key, real, sizes_.width, sizes_.rows, s.v_transposed, nullptr);
      work(key, real);
    }
  }

  void sum_up(std::int64_t kv, std::int64_t chunk, float* blocks_memory,
              const BackwardScratch& s) const {
    const BackwardTile tile(method_, forward_, sizes_);
    over_tiles(kv, chunk, s, [&](std::int64_t key, std::int64_t real) {
      over_blocks(kv, key, real, blocks_memory,
                  [&](float* memory, const BackwardBlock& rows, const BackwardTile::Place& at) {
                    if (!rows.is_known()) tile.sum_up(rows, at, s, sums_of(memory, chunk));
                  });
    });
  }

  void add_gradients(std::int64_t kv, std::int64_t chunk, float* blocks_memory,
                     const BackwardScratch& s) const {
    const std::int64_t batch = kv / forward_.kv_heads, head = kv % forward_.kv_heads;
    const BackwardTile tile(method_, forward_, sizes_);
    over_tiles(kv, chunk, s, [&](std::int64_t key, std::int64_t real) {
      std::fill_n(s.d_k, kBackwardSide * sizes_.padded_depth, 0.0F);
      std::fill_n(s.d_v, kBackwardSide * sizes_.padded_width, 0.0F);
      over_blocks(kv, key, real, blocks_memory,
                  [&](float* memory, const BackwardBlock& rows, const BackwardTile::Place& at) {
                    tile.add_gradients(rows, at, s,
                                       memory + sizes_.block_floats() +
                                           chunk * kBackwardSide * sizes_.padded_depth);
                  });
      write_keys(job_.d_k.at(batch, head).values, store_k_, key, s.d_k);
      write_keys(job_.d_v.at(batch, head).values, store_v_, key, s.d_v);
    });
  }

  // [channels][48] to rows.
  void write_keys(const Matrix& to, const RowStore& store, std::int64_t key,
                  const float* sums) const {
    alignas(64) float row[kMaxHeadSize];
    for (std::int64_t j = 0; j < std::min(kBackwardSide, to.rows - key); ++j) {
      for (std::int64_t d = 0; d < to.cols; ++d) row[d] = sums[d * kBackwardSide + j];
      store(to, key + j, row);
    }
  }

  void write_queries(std::int64_t kv, std::int64_t block, float* memory) const {
    float* const sums = memory + sizes_.block_floats();
    const std::int64_t n = kBackwardSide * sizes_.padded_depth;
    for (std::int64_t chunk = 1; chunk < kChunks; ++chunk)
      for (std::int64_t i = 0; i < n; ++i) sums[i] += sums[chunk * n + i];
    write_keys(job_.d_q.at(kv / forward_.kv_heads, head_of(kv, block)).values, store_q_,
               block % blocks_ * kBackwardSide, sums);
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const Exec& exec_;
  const AttentionBackwardJob& job_;
  const AttentionJob& forward_;
  BackwardSizes sizes_;
  std::int64_t blocks_, group_, block_floats_, head_floats_, together_ = 1;
  int threads_;
  RowStore store_q_, store_k_, store_v_;
};

}  // namespace

const AttentionMethod* backward_method(ChooseAttention choose, const AttentionBackwardJob& job) {
  // Key indices are compared in 32 bits.
  if (job.forward.values == DType::f64 || job.forward.keys > (std::int64_t{1} << 30))
    return nullptr;
  AttentionJob forward = job.forward;
  forward.p = AttentionP::f32;
  const AttentionMethod* method = choose(forward);
  const bool fits = method != nullptr && method->score_type == PackedType::f32 &&
                    method->weigh_type == PackedType::f32 &&
                    kBackwardSide % method->score.rows == 0 &&
                    kBackwardSide % method->score.cols == 0 && method->score.step == 1;
  return fits ? method : nullptr;
}

void attend_backward(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                     const AttentionBackwardJob& job) {
  if (job.forward.batches * job.forward.kv_heads == 0) return;  // nothing to write
  Backward(isa, method, exec, job).run();
}

std::int64_t attention_backward_workspace(const Isa& isa, const AttentionMethod& method,
                                          const Exec& exec, const AttentionBackwardJob& job) {
  if (job.forward.batches * job.forward.kv_heads == 0) return 0;
  return Backward(isa, method, exec, job).workspace();
}

}  // namespace octavo::cpu
