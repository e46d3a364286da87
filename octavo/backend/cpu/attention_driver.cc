// Who does which rows. Keys and values of as many heads as memory allows are packed by all threads;
// then blocks of query rows go through them, each by one thread, in an order that does not depend
// on how many there are.
#include <algorithm>

#include "octavo/backend/cpu/attention_block.h"
#include "octavo/backend/cpu/gemm_cut.h"
#include "octavo/backend/cpu/share.h"

namespace octavo::cpu {
namespace {

// Packed heads at a time take about so much, unless one alone takes more.
constexpr std::int64_t kPackedBytes = std::int64_t{32} << 20;

// Rows that are asked for, range by range; all rows of a head are one range where none are given.
struct Ranges {
  const AttentionJob& job;

  [[nodiscard]] std::int64_t count() const {
    return job.ranges != nullptr ? job.range_count : job.batches * job.heads;
  }
  [[nodiscard]] AttentionRange at(std::int64_t i) const {
    if (job.ranges != nullptr) return job.ranges[i];
    return {.batch = i / job.heads, .head = i % job.heads, .first = 0, .count = job.queries};
  }
  [[nodiscard]] std::int64_t kv_index(const AttentionRange& range) const {
    return range.batch * job.kv_heads + job.kv_head(range.head);
  }
};

class Driver {
 public:
  Driver(const Isa& isa, const AttentionMethod& method, const Exec& exec, const AttentionJob& job)
      : isa_(isa),
        method_(method),
        job_(job),
        layout_(method, job.q.first.cols(), job.v.first.cols()),
        tiles_(blocks(job.keys, method.tile_keys)),
        block_rows_(kBlockStrips * method.strip()) {
    const std::int64_t heads = job.batches * job.kv_heads;
    head_bytes_ = tiles_ * layout_.bytes;
    together_ = std::clamp<std::int64_t>(kPackedBytes / std::max<std::int64_t>(1, head_bytes_), 1,
                                         std::max<std::int64_t>(1, heads));
    scratch_bytes_ = attention_scratch(method, layout_, nullptr).bytes;
    threads_ = std::max(1, exec.threads);
  }

  [[nodiscard]] std::int64_t workspace() const {
    return together_ * head_bytes_ + parts() * scratch_bytes_;
  }

  void run(std::byte* memory) const {
    const std::int64_t heads = job_.batches * job_.kv_heads;
    for (std::int64_t first = 0; first < heads; first += together_) {
      const std::int64_t last = std::min(heads, first + together_);
      pack(first, last, memory);
      attend(first, last, memory);
    }
  }

 private:
  [[nodiscard]] int parts() const { return threads_ > 1 ? threads_ * 4 : 1; }

  void pack(std::int64_t first, std::int64_t last, std::byte* memory) const {
    share_units((last - first) * tiles_, threads_, [&](std::int64_t unit) {
      const std::int64_t head = first + unit / tiles_, tile = unit % tiles_;
      const std::int64_t batch = head / job_.kv_heads, kv_head = head % job_.kv_heads;
      const std::int64_t keys = job_.key_lengths != nullptr ? job_.key_lengths[batch] : job_.keys;
      const std::int64_t key = tile * method_.tile_keys,
                         count = std::min(method_.tile_keys, keys - key);
      if (count <= 0) return;
      const AttentionRows k(isa_, job_.k.at(batch, kv_head), job_.values,
                            method_.score_lane != Lane::f32),
          v(isa_, job_.v.at(batch, kv_head), job_.values, false);
      pack_tile(method_, layout_, k, v, key, count, memory + unit * layout_.bytes);
    });
  }

  void attend(std::int64_t first, std::int64_t last, std::byte* memory) const {
    const AttentionFinish finish(isa_, job_, method_.weight_factor);
    const int parts = this->parts();
    parallel_for(parts, threads_, [&](int part) {
      const FpEnvGuard guard;
      const AttentionScratch scratch = attention_scratch(
          method_, layout_, memory + together_ * head_bytes_ + part * scratch_bytes_);
      // Blocks are dealt out one by one: with a causal mask later ones take longer.
      std::int64_t unit = 0;
      const Ranges ranges{job_};
      for (std::int64_t i = 0; i < ranges.count(); ++i) {
        const AttentionRange range = ranges.at(i);
        const std::int64_t kv = ranges.kv_index(range);
        if (kv < first || kv >= last) continue;
        const BlockJob block{isa_,    method_, job_,
                             layout_, finish,  memory + (kv - first) * head_bytes_};
        for (std::int64_t at = 0; at < range.count; at += block_rows_, ++unit) {
          if (unit % parts != part) continue;
          AttentionRange piece = range;
          piece.first = range.first + at;
          piece.count = std::min(block_rows_, range.count - at);
          attend_block(block, piece, scratch);
        }
      }
    });
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const AttentionJob& job_;
  TileLayout layout_;
  std::int64_t tiles_, block_rows_, head_bytes_ = 0, together_ = 1, scratch_bytes_ = 0;
  int threads_ = 1;
};

}  // namespace

void attend(const Isa& isa, const AttentionMethod& method, const Exec& exec,
            const AttentionJob& job) {
  Driver(isa, method, exec, job).run(exec.workspace.data());
}

std::int64_t attention_workspace(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                                 const AttentionJob& job) {
  return Driver(isa, method, exec, job).workspace();
}

}  // namespace octavo::cpu
