// Decode attention: the driver of split-KV. Keys of a head are split at a fixed length, each split
// runs on one thread, and partial results are merged in order of the keys, so that the number of
// threads changes nothing. Rows over the error bound (attention_error_bound.h) are recomputed, with
// scores in f32 and by a more precise method.
#include "octavo/backend/cpu/attention/attention_decode.h"

#include <algorithm>
#include <cmath>

#include "octavo/backend/cpu/attention/attention_block.h"
#include "octavo/backend/cpu/attention/attention_decode_split.h"
#include "octavo/backend/cpu/attention/attention_error_bound.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kSplitKeys = 1024;
static_assert(kSplitKeys % kDecodeKeys == 0);

// The two steps (splits, then merge and epilogue) and the memory between them: partial results of
// every split, and the rows to be recomputed.
class DecodeCall {
 public:
  DecodeCall(const AttentionJob& job, std::byte* memory)
      : job_(job),
        heads_(job.batches * job.kv_heads),
        splits_(blocks(job.keys, kSplitKeys)),
        rows_(decode_rows_of_head(job)),
        step_(decode_row_floats(job)),
        memory_(memory) {}

  [[nodiscard]] std::int64_t workspace() const { return partial_bytes() + heads_ * rows_; }

  void run(const Isa& isa, const AttentionMethod& method, int threads) const {
    std::uint8_t *const first = uncertain(0), *const last = uncertain(heads_);
    std::fill(first, last, std::uint8_t{0});
    attend(isa, method, threads, RowsOfPass::all);
    epilogue(isa, method, threads, RowsOfPass::all);
    if (std::find(first, last, 1) == last) return;
    attend(isa, most_precise(method), threads, RowsOfPass::uncertain);
    epilogue(isa, method, threads, RowsOfPass::uncertain);
  }

 private:
  [[nodiscard]] std::int64_t partial_bytes() const { return heads_ * splits_ * rows_ * step_ * 4; }
  [[nodiscard]] float* partials(std::int64_t head, std::int64_t split) const {
    return reinterpret_cast<float*>(memory_) + (head * splits_ + split) * rows_ * step_;
  }
  // [rows] of a KV head.
  [[nodiscard]] std::uint8_t* uncertain(std::int64_t head) const {
    return reinterpret_cast<std::uint8_t*>(memory_) + partial_bytes() + head * rows_;
  }

  void attend(const Isa& isa, const AttentionMethod& method, int threads, RowsOfPass which) const {
    parallel_units(heads_ * splits_, threads, [&](std::int64_t unit) {
      const std::int64_t head = unit / splits_, batch = head / job_.kv_heads;
      const std::uint8_t* const only = which == RowsOfPass::all ? nullptr : uncertain(head);
      if (only != nullptr && std::find(only, only + rows_, 1) == only + rows_) return;
      const std::int64_t split = unit % splits_, first = split * kSplitKeys;
      const EnteredMethod entered(method);
      attend_split(isa, method, job_,
                   {.batch = batch,
                    .kv_head = head % job_.kv_heads,
                    .first = first,
                    .last = std::max(first, std::min(keys_in(job_, batch), first + kSplitKeys)),
                    .only = only},
                   partials(head, split));
    });
  }

  void epilogue(const Isa& isa, const AttentionMethod& method, int threads,
                RowsOfPass which) const {
    const AttentionEpilogue epilogue(isa, job_, 1.0F);
    const std::int64_t group = job_.heads / job_.kv_heads;
    const auto depth = static_cast<double>(job_.q.first.cols());
    const bool half_scores = method.decode_kernels(job_.k.first)->packed_type == PackedType::f16,
               short_weights = method.decode_kernels(job_.v.first)->packed_type == PackedType::bf16,
               checks = which == RowsOfPass::all && (half_scores || short_weights);
    const RowErrors errors{.aligned = half_scores ? decode_aligned_sigma(depth) : 0.0,
                           .weights = short_weights ? 0x1p-9 : 0.0};
    parallel_units(heads_ * rows_, threads, [&](std::int64_t unit) {
      const std::int64_t head = unit / rows_, r = unit % rows_;
      if (which == RowsOfPass::uncertain && uncertain(head)[r] == 0) return;
      float* const first = partials(head, 0) + r * step_;
      DecodePartial none{};
      const float zero = 0.0F;
      for (std::int64_t split = 1; split < splits_; ++split)
        merge_split(first, partials(head, split) + r * step_, job_.v.first.cols());
      const DecodePartial& state =
          splits_ > 0 ? *reinterpret_cast<const DecodePartial*>(first) : none;
      RowErrors of_row = errors;
      if (half_scores)
        of_row.random_walk = decode_random_walk_sigma(depth) * static_cast<double>(state.norms);
      const std::int64_t batch = head / job_.kv_heads,
                         query_head = head % job_.kv_heads * group + r / job_.queries,
                         row = r % job_.queries;
      const RowSums sums{state.top, state.base, state.sum,
                         splits_ > 0 ? first + kDecodeHeader : &zero, splits_ > 0 ? 1 : 0};
      if (checks &&
          exceeds_error_bound(
              weights_after(state, epilogue.sum_with_sink(batch, query_head, row, sums)), of_row)) {
        uncertain(head)[r] = 1;
        return;
      }
      epilogue(batch, query_head, row, sums);
    });
  }

  // `sum`: with the sink.
  static RowWeights weights_after(const DecodePartial& state, float sum) {
    return weights_of({.top = state.top,
                       .base = state.base,
                       .sum = sum,
                       .weight_squares = state.weight_squares,
                       .score = std::abs(state.top)});
  }

  const AttentionJob& job_;
  std::int64_t heads_, splits_, rows_, step_;
  std::byte* memory_;
};

}  // namespace

bool is_decode(const AttentionMethod& method, const AttentionJob& job) {
  const auto fits = [&](const GemmOperand& operand) {
    return operand.cols() % 16 == 0 && method.decode_kernels(operand) != nullptr;
  };
  return method.decode_kernels != nullptr && job.ranges == nullptr && job.bias.first == nullptr &&
         !job.dropout.exists() && decode_rows_of_head(job) <= kMaxDecodeRows &&
         decode_rows_of_head(job) > 0 && fits(job.k.first) && fits(job.v.first);
}

std::int64_t decode_workspace(const AttentionJob& job) {
  return DecodeCall(job, nullptr).workspace();
}

void attend_decode(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                   const AttentionJob& job) {
  DecodeCall(job, exec.workspace.data()).run(isa, method, std::max(1, exec.threads));
}

}  // namespace octavo::cpu
