// Keys of a head are cut into pieces of a fixed length, each done by one thread; pieces are added
// up in their order, so that threads change nothing. Rows that come out doubtful
// (attention_error_bound.h) are done again, with scores in f32 and by a finer method.
#include "octavo/backend/cpu/attention/attention_decode.h"

#include <algorithm>
#include <cmath>

#include "octavo/backend/cpu/attention/attention_block.h"
#include "octavo/backend/cpu/attention/attention_decode_split.h"
#include "octavo/backend/cpu/attention/attention_error_bound.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;
static_assert(kPiece % kFewKeys == 0);

// Two steps, and memory between them: partials of every piece, and which rows are to be done again.
class FewCall {
 public:
  FewCall(const AttentionJob& job, std::byte* memory)
      : job_(job),
        heads_(job.batches * job.kv_heads),
        pieces_(blocks(job.keys, kPiece)),
        rows_(few_rows_of_head(job)),
        step_(few_row_floats(job)),
        memory_(memory) {}

  [[nodiscard]] std::int64_t workspace() const { return partial_bytes() + heads_ * rows_; }

  void run(const Isa& isa, const AttentionMethod& method, int threads) const {
    std::uint8_t *const first = doubtful(0), *const last = doubtful(heads_);
    std::fill(first, last, std::uint8_t{0});
    attend(isa, method, threads, RowsOfPass::all);
    finish(isa, method, threads, RowsOfPass::all);
    if (std::find(first, last, 1) == last) return;
    attend(isa, most_precise(method), threads, RowsOfPass::doubtful);
    finish(isa, method, threads, RowsOfPass::doubtful);
  }

 private:
  [[nodiscard]] std::int64_t partial_bytes() const { return heads_ * pieces_ * rows_ * step_ * 4; }
  [[nodiscard]] float* partials(std::int64_t head, std::int64_t piece) const {
    return reinterpret_cast<float*>(memory_) + (head * pieces_ + piece) * rows_ * step_;
  }
  // [rows] of a head of keys.
  [[nodiscard]] std::uint8_t* doubtful(std::int64_t head) const {
    return reinterpret_cast<std::uint8_t*>(memory_) + partial_bytes() + head * rows_;
  }

  void attend(const Isa& isa, const AttentionMethod& method, int threads, RowsOfPass which) const {
    share_units(heads_ * pieces_, threads, [&](std::int64_t unit) {
      const std::int64_t head = unit / pieces_, batch = head / job_.kv_heads;
      const std::uint8_t* const only = which == RowsOfPass::all ? nullptr : doubtful(head);
      if (only != nullptr && std::find(only, only + rows_, 1) == only + rows_) return;
      const std::int64_t piece = unit % pieces_, first = piece * kPiece;
      attend_piece(isa, method, job_,
                   {.batch = batch,
                    .kv_head = head % job_.kv_heads,
                    .first = first,
                    .last = std::max(first, std::min(keys_in(job_, batch), first + kPiece)),
                    .only = only},
                   partials(head, piece));
    });
  }

  void finish(const Isa& isa, const AttentionMethod& method, int threads, RowsOfPass which) const {
    const AttentionFinish finish(isa, job_, 1.0F);
    const std::int64_t group = job_.heads / job_.kv_heads;
    const auto depth = static_cast<double>(job_.q.first.cols());
    const bool half_scores = method.few(job_.k.first)->lane == Lane::f16,
               short_weights = method.few(job_.v.first)->lane == Lane::bf16,
               looks = which == RowsOfPass::all && (half_scores || short_weights);
    const RowErrors errors{.aligned = half_scores ? few_aligned_sigma(depth) : 0.0,
                           .weights = short_weights ? 0x1p-9 : 0.0};
    share_units(heads_ * rows_, threads, [&](std::int64_t unit) {
      const std::int64_t head = unit / rows_, r = unit % rows_;
      if (which == RowsOfPass::doubtful && doubtful(head)[r] == 0) return;
      float* const first = partials(head, 0) + r * step_;
      FewPartial none{};
      const float zero = 0.0F;
      for (std::int64_t piece = 1; piece < pieces_; ++piece)
        add_piece(first, partials(head, piece) + r * step_, job_.v.first.cols());
      const FewPartial& state = pieces_ > 0 ? *reinterpret_cast<const FewPartial*>(first) : none;
      RowErrors of_row = errors;
      if (half_scores) of_row.walked = few_walked_sigma(depth) * static_cast<double>(state.norms);
      if (looks && is_doubtful(weights_after(state), of_row)) {
        doubtful(head)[r] = 1;
        return;
      }
      finish(head / job_.kv_heads, head % job_.kv_heads * group + r / job_.queries,
             r % job_.queries,
             {state.top, state.base, state.sum, pieces_ > 0 ? first + kFewHeader : &zero,
              pieces_ > 0 ? 1 : 0});
    });
  }

  static RowWeights weights_after(const FewPartial& state) {
    return weights_of({.top = state.top,
                       .base = state.base,
                       .sum = state.sum,
                       .weight_squares = state.weight_squares,
                       .score = std::abs(state.top)});
  }

  const AttentionJob& job_;
  std::int64_t heads_, pieces_, rows_, step_;
  std::byte* memory_;
};

}  // namespace

bool is_few(const AttentionMethod& method, const AttentionJob& job) {
  const auto fits = [&](const GemmOperand& operand) {
    return operand.cols() % 16 == 0 && method.few(operand) != nullptr;
  };
  return method.few != nullptr && job.ranges == nullptr && job.bias.first == nullptr &&
         few_rows_of_head(job) <= kMostFewRows && few_rows_of_head(job) > 0 && fits(job.k.first) &&
         fits(job.v.first);
}

std::int64_t few_workspace(const AttentionJob& job) { return FewCall(job, nullptr).workspace(); }

void attend_few(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                const AttentionJob& job) {
  FewCall(job, exec.workspace.data()).run(isa, method, std::max(1, exec.threads));
}

}  // namespace octavo::cpu
