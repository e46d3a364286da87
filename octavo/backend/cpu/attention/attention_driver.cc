// The attention driver: splits heads and query rows among threads. Keys and values of as many heads
// as memory allows are packed by all threads; then blocks of query rows go through them, each on
// one thread, in an order that does not depend on the number of threads. Rows over the error bound
// (attention_error_bound.h) are recomputed, head by head, by a more precise method.
#include <algorithm>

#include "octavo/backend/cpu/attention/attention_block.h"
#include "octavo/backend/cpu/attention/attention_codes.h"
#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/attention/attention_error_bound.h"
#include "octavo/backend/cpu/attention/attention_norms.h"
#include "octavo/backend/cpu/attention/attention_oblivious.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

// Memory of the heads packed at a time, unless a single one takes more.
constexpr std::int64_t kPackedBytes = std::int64_t{32} << 20;

// Are rows of this method checked against the error bound afterwards?
bool is_checked(const AttentionMethod& method) { return method.precise != nullptr; }

// The rows of the job, range by range; all rows of a head are one range where none are given.
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

// Memory shared by all methods of a job, at the front of the workspace.
class SharedMemory {
 public:
  SharedMemory(const AttentionJob& job, std::byte* memory)
      : job_(job), bytes_(memory), units_bytes_(round_up(job.batches * job.kv_heads * 8, 64)) {}

  // The unit of the sums of weighted values of a KV head.
  [[nodiscard]] float& value_unit(std::int64_t kv) const {
    return reinterpret_cast<float*>(bytes_)[2 * kv];
  }
  // The standard deviation of its score errors.
  [[nodiscard]] float& random_walk(std::int64_t kv) const {
    return reinterpret_cast<float*>(bytes_)[2 * kv + 1];
  }
  // [queries] of a query head: the rows to recompute.
  [[nodiscard]] std::uint8_t* uncertain(std::int64_t batch, std::int64_t head) const {
    return reinterpret_cast<std::uint8_t*>(bytes_) + units_bytes_ +
           (batch * job_.heads + head) * job_.queries;
  }
  void clear_uncertain() const {
    std::fill_n(uncertain(0, 0), job_.batches * job_.heads * job_.queries, std::uint8_t{0});
  }
  [[nodiscard]] std::int64_t size() const {
    return units_bytes_ + round_up(job_.batches * job_.heads * job_.queries, 64);
  }
  [[nodiscard]] std::byte* rest() const { return bytes_ + size(); }

 private:
  const AttentionJob& job_;
  std::byte* bytes_;
  std::int64_t units_bytes_;
};

// One method, for the heads assigned to it.
class Driver {
 public:
  Driver(const Isa& isa, const AttentionMethod& method, const Exec& exec, const AttentionJob& job)
      : isa_(isa),
        method_(method),
        job_(job),
        layout_(method, job.q.first.cols(), job.v.first.cols()),
        tiles_(blocks(job.keys, method.tile_keys)),
        block_rows_(block_rows(method, job, std::max(1, exec.threads))),
        head_bytes_(tiles_ * layout_.bytes),
        scratch_bytes_(attention_scratch(method, layout_, nullptr).bytes),
        threads_(std::max(1, exec.threads)) {
    together_ = std::clamp<std::int64_t>(kPackedBytes / std::max<std::int64_t>(1, head_bytes_), 1,
                                         std::max<std::int64_t>(1, job.batches * job.kv_heads));
  }

  [[nodiscard]] std::int64_t together() const { return together_; }
  [[nodiscard]] std::int64_t workspace() const {
    return together_ * head_bytes_ + parts() * scratch_bytes_;
  }

  // Heads [first, last) of keys and values, at most together().
  void run(std::int64_t first, std::int64_t last, const SharedMemory& shared) const {
    pack(first, last, {0, job_.keys}, shared.rest());
    for (std::int64_t kv = first; kv < last; ++kv)
      shared.value_unit(kv) =
          value_unit(kv / job_.kv_heads, shared.rest() + (kv - first) * head_bytes_);
    attend(first, last, RowsOfPass::all, shared);
  }
  // Recomputes the rows of one KV head that exceeded the error bound.
  void recompute(std::int64_t kv, const SharedMemory& shared) const {
    const AttentionJob::Keys seen = seen_by_uncertain(kv, shared);
    if (seen.begin >= seen.end) return;
    pack(kv, kv + 1, seen, shared.rest());
    attend(kv, kv + 1, RowsOfPass::uncertain, shared);
  }

 private:
  // Rows of a block: fewer where threads would have none otherwise.
  static std::int64_t block_rows(const AttentionMethod& method, const AttentionJob& job,
                                 int threads) {
    const std::int64_t width = method.query_block(),
                       all = job.batches * job.heads * blocks(job.queries, width);
    if (threads == 1) return kQueryBlocks * width;
    return std::clamp<std::int64_t>(all / (2 * threads), 1, kQueryBlocks) * width;
  }

  static constexpr int kPartsOfThread = 4;
  [[nodiscard]] int parts() const { return threads_ > 1 ? threads_ * kPartsOfThread : 1; }

  // The number of blocks where all of them take as long, else 0.
  [[nodiscard]] std::int64_t equal_blocks(std::int64_t kv_heads) const {
    if (job_.ranges != nullptr || job_.left >= 0 || job_.right >= 0 || job_.key_lengths != nullptr)
      return 0;
    return kv_heads * (job_.heads / job_.kv_heads) * blocks(job_.queries, block_rows_);
  }
  // Which part takes a block. Of equal blocks a thread gets those of the same heads, whose packed
  // tiles its caches have. With a causal mask later ones take longer: neighbours go to different
  // threads.
  [[nodiscard]] std::int64_t part_of(std::int64_t unit, std::int64_t units) const {
    if (units != 0) return unit * parts() / units;
    const std::int64_t place = unit % parts();
    return place % threads_ * kPartsOfThread + place / threads_;
  }

  // The keys that any of those rows sees, from the first to one past the last.
  [[nodiscard]] AttentionJob::Keys seen_by_uncertain(std::int64_t kv,
                                                     const SharedMemory& shared) const {
    const std::int64_t batch = kv / job_.kv_heads, group = job_.heads / job_.kv_heads,
                       head = kv % job_.kv_heads * group;
    AttentionJob::Keys seen{job_.keys, 0};
    for (std::int64_t h = head; h < head + group; ++h) {
      const std::uint8_t* const first = shared.uncertain(batch, h);
      const std::uint8_t* const last = first + job_.queries;
      for (const std::uint8_t* at = first; (at = std::find(at, last, 1)) != last; ++at) {
        const AttentionJob::Keys keys = job_.keys_of(batch, at - first);
        seen = {std::min(seen.begin, keys.begin), std::max(seen.end, keys.end)};
      }
    }
    return seen;
  }

  // Packed V has a factor, and weights are more than 1: sums of values near the largest f32 are
  // kept in a larger unit, the same for all rows of the head, whatever they see.
  [[nodiscard]] float value_unit(std::int64_t batch, const std::byte* tiles) const {
    if (method_.weigh_type == PackedType::f32) return 1.0F;
    constexpr float kLarge = 0x1p+80F, kUnit = 0x1p+60F;
    for (std::int64_t tile = 0; tile < blocks(keys_in(job_, batch), method_.tile_keys); ++tile)
      if (tile_at(layout_, tiles + tile * layout_.bytes).factor > kLarge) return kUnit;
    return 1.0F;
  }

  // Packs the tiles that have any of the keys `seen`.
  void pack(std::int64_t first, std::int64_t last, const AttentionJob::Keys& seen,
            std::byte* memory) const {
    parallel_units((last - first) * tiles_, threads_, [&](std::int64_t unit) {
      const std::int64_t head = first + unit / tiles_, tile = unit % tiles_;
      const std::int64_t batch = head / job_.kv_heads, kv_head = head % job_.kv_heads;
      const std::int64_t key = tile * method_.tile_keys,
                         count = std::min(method_.tile_keys, keys_in(job_, batch) - key);
      if (count <= 0 || key >= seen.end || key + count <= seen.begin) return;
      const GemmOperand keys_of_head = job_.k.at(batch, kv_head),
                        values_of_head = job_.v.at(batch, kv_head);
      const AttentionRows k(isa_, keys_of_head, job_.values, score_factoring(method_)),
          v(isa_, values_of_head, job_.values, weigh_factoring(method_));
      const CodedRows coded_k(isa_, method_, keys_of_head), coded_v(isa_, method_, values_of_head);
      pack_tile(method_, layout_, k, coded_k, v, coded_v, key, count,
                memory + unit * layout_.bytes);
    });
  }

  void attend(std::int64_t first, std::int64_t last, RowsOfPass which,
              const SharedMemory& shared) const {
    std::byte* const memory = shared.rest();
    const bool checks = which == RowsOfPass::all && is_checked(method_),
               keeps_unit = most_precise(method_).weigh_type != PackedType::f32;
    const AttentionEpilogue epilogue(isa_, job_, method_.weight_factor);
    const std::int64_t units = which == RowsOfPass::all ? equal_blocks(last - first) : 0;
    parallel_for(parts(), threads_, [&](int part) {
      const FpEnvGuard guard;
      const EnteredMethod entered(method_);
      const AttentionScratch scratch = attention_scratch(
          method_, layout_, memory + together_ * head_bytes_ + part * scratch_bytes_);
      // Consecutive ranges of a head share blocks, so that single rows do not waste a query block.
      std::int64_t unit = 0;
      const Ranges ranges{job_};
      BlockRows rows;
      const auto flush = [&] {
        if (rows.count > 0 && part_of(unit++, units) == part) {
          const std::int64_t kv = rows.batch * job_.kv_heads + job_.kv_head(rows.head);
          // Values in the larger unit are too large for sums in f32.
          const float value_unit = shared.value_unit(kv);
          const bool marks = checks && (value_unit == 1.0F || keeps_unit);
          attend_block({isa_, method_, job_, layout_, epilogue, memory + (kv - first) * head_bytes_,
                        value_unit, static_cast<double>(shared.random_walk(kv)),
                        marks ? shared.uncertain(rows.batch, rows.head) : nullptr},
                       rows, scratch);
        }
        rows.count = 0;
      };
      for (std::int64_t i = 0; i < ranges.count(); ++i) {
        const AttentionRange range = ranges.at(i);
        const std::int64_t kv = ranges.kv_index(range);
        if (kv < first || kv >= last) continue;
        if (range.batch != rows.batch || range.head != rows.head) flush();
        rows.batch = range.batch;
        rows.head = range.head;
        const std::uint8_t* const uncertain = shared.uncertain(range.batch, range.head);
        const std::int64_t end = range.first + range.count;
        for (std::int64_t row = range.first; row < end; ++row) {
          if (which == RowsOfPass::uncertain && uncertain[row] == 0) continue;
          if (which == RowsOfPass::all && rows.count == 0) {  // whole blocks of other parts
            for (; row + block_rows_ <= end && part_of(unit, units) != part; row += block_rows_)
              ++unit;
            if (row == end) break;
          }
          rows.row[rows.count++] = row;
          if (rows.count == block_rows_) flush();
        }
      }
      flush();
    });
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const AttentionJob& job_;
  TileLayout layout_;
  std::int64_t tiles_, block_rows_, head_bytes_, scratch_bytes_, together_ = 1;
  int threads_ = 1;
};

}  // namespace

void attend(const Isa& isa, const AttentionMethod& method, const Exec& exec,
            const AttentionJob& job) {
  if (job.oblivious) return attend_obliviously(isa, exec, job);
  if (is_decode(method, job)) return attend_decode(isa, method, exec, job);
  const std::int64_t heads = job.batches * job.kv_heads;
  const SharedMemory shared(job, exec.workspace.data());
  shared.clear_uncertain();
  const auto method_of = [&](std::int64_t kv) {
    const HeadMethod found = method_for(isa, method, exec, job, kv);
    shared.random_walk(kv) = static_cast<float>(found.random_walk);
    return found.method;
  };
  const AttentionMethod* next = heads > 0 ? method_of(0) : nullptr;
  for (std::int64_t first = 0; first < heads;) {
    const AttentionMethod* const now = next;
    const Driver driver(isa, *now, exec, job);
    std::int64_t last = first + 1;
    while (last < heads && (next = method_of(last)) == now && last - first < driver.together())
      ++last;
    driver.run(first, last, shared);
    if (is_checked(*now)) {
      const Driver precise(isa, most_precise(*now), exec, job);
      for (std::int64_t kv = first; kv < last; ++kv) precise.recompute(kv, shared);
    }
    first = last;
  }
}

std::int64_t attention_workspace(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                                 const AttentionJob& job) {
  if (job.oblivious) return oblivious_attention_workspace(exec, job);
  if (is_decode(method, job)) return decode_workspace(job);
  std::int64_t bytes = 0;
  for (const AttentionMethod* one = &method; one != nullptr; one = one->precise)
    bytes = std::max(bytes, Driver(isa, *one, exec, job).workspace());
  return SharedMemory(job, nullptr).size() + bytes;
}

}  // namespace octavo::cpu
