// Makes the plan of a forward kernel: operands that it cannot read as they are, tensor maps, and
// work tiles.
#include "octavo/backend/cuda/attention/forward/forward.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/backend/cuda/attention/forward/forward_again.h"
#include "octavo/backend/cuda/attention/forward/forward_choice.h"
#include "octavo/backend/cuda/attention/forward/forward_prepare.h"
#include "octavo/backend/cuda/hopper/tensor_map.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

// Keys and values that a group of heads reads at a time, to stay in L2.
constexpr double kGroupBytes = 24e6;
constexpr std::int64_t kPadding = 128;  // of keys in prepared operands

std::int64_t row_blocks(const ForwardChoice& choice, const AttentionJob& job) {
  const int rows = forward_tile(choice).rows;
  return (job.queries + rows - 1) / rows;
}
std::int64_t work_count(const ForwardChoice& choice, const AttentionJob& job) {
  return job.ranges != nullptr ? job.range_count * kRangeParts
                               : row_blocks(choice, job) * job.heads * job.batches;
}

// Scores of `balanced` are off by more than its weights, and weights of `fast` are e4m3.
bool has_row_doubts(const ForwardChoice& choice) {
  return choice.form == ForwardForm::bf16 || choice.form == ForwardForm::strict;
}

// Offsets into the workspace. Adding them up twice, without memory first, gives its size.
class Layout {
 public:
  Layout(const ForwardChoice& choice, const AttentionJob& job) {
    const std::int64_t heads = job.batches * job.heads, kv_heads = job.batches * job.kv_heads,
                       depth = job.q.first.cols(), width = job.v.first.cols();
    padded_keys = (job.keys + kPadding - 1) / kPadding * kPadding;
    if (choice.is_uneven) {
      taken = take(sizeof(int));
      doubts = take(heads * job.queries);
      cleared = bytes_;
    }
    if (has_row_doubts(choice)) row_doubts = take(heads * job.queries);
    if (choice.is_uneven && job.ranges != nullptr) cleared = bytes_;  // rows that no range has
    if (choice.copies_q) q = take(heads * job.queries * depth * 2);
    if (choice.copies_k) k = take(kv_heads * job.keys * depth * 2);
    if (choice.copies_v)
      v = take(choice.form == ForwardForm::fast ? kv_heads * padded_keys * width
                                                : kv_heads * job.keys * width * 2);
    if (choice.key_scales) {
      key_scales = take(kv_heads * padded_keys * 4);
      key_scale_most = take(kv_heads * 4);
    }
    if (choice.copies_q_scales) q_scales = take(heads * job.queries * 4);
    if (choice.copies_v_scales) v_scales = take(kv_heads * width * 4);
  }
  std::int64_t taken = 0, doubts = 0, row_doubts = 0,
               cleared = 0;  // of what is zero at first, the end
  std::int64_t q = 0, k = 0, v = 0, key_scales = 0, key_scale_most = 0, q_scales = 0, v_scales = 0,
               padded_keys = 0;
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  std::int64_t bytes_ = 0;
};

AttentionOperand dense_bf16(void* data, const AttentionOperand& like, std::int64_t heads) {
  const std::int64_t rows = like.first.rows(), cols = like.first.cols();
  AttentionOperand made{.batch_pitch = heads * rows * cols * 2, .head_pitch = rows * cols * 2};
  made.first.values = {.data = data,
                       .dtype = DType::bf16,
                       .rows = rows,
                       .cols = cols,
                       .row_pitch = cols * 2,
                       .col_stride = 2};
  return made;
}

ForwardScales scales_in_place(const AttentionOperand& operand, bool of_rows) {
  const QuantizedMatrix& q = operand.first.quantized;
  constexpr std::int64_t kEach = sizeof(float);
  const bool several = (of_rows ? q.scales.rows : q.scales.cols) > 1;
  return {.first = static_cast<const float*>(q.scales.data),
          .batch = operand.scale_batch_pitch / kEach,
          .head = operand.scale_head_pitch / kEach,
          .step = several ? static_cast<int>((of_rows ? q.scales.row_pitch : q.scales.col_stride) /
                                             kEach)
                          : 0};
}

CUtensorMap map_of(const AttentionOperand& operand, std::int64_t heads, std::int64_t batches,
                   int box_bytes, int box_rows) {
  return tensor_map_of_heads(operand.first.elements(), heads, operand.head_pitch, batches,
                             operand.batch_pitch, box_bytes, box_rows);
}

// Several heads at a time where each has less to read than L2 holds.
int head_group(const AttentionJob& job) {
  const double bytes = static_cast<double>(job.keys) *
                       static_cast<double>(job.q.first.cols() + job.v.first.cols()) * 2.0 /
                       static_cast<double>(job.heads / job.kv_heads);
  const auto all = static_cast<double>(job.batches * job.heads);
  return static_cast<int>(std::clamp(kGroupBytes / bytes, 1.0, all));
}

bool stores_pairs(const AttentionOperand& out) {
  const Matrix& matrix = out.first.values;
  const auto fits = [](std::int64_t pitch) { return pitch % 8 == 0; };
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 8 == 0 && fits(matrix.row_pitch) &&
         fits(out.head_pitch) && fits(out.batch_pitch) &&
         matrix.cols % (matrix.dtype == DType::f32 ? 2 : 4) == 0;
}

void prepare_v(const Exec& exec, const ForwardChoice& choice, const AttentionJob& job,
               const Layout& layout, std::byte* memory, ForwardPlan& plan) {
  const ForwardTile tile = forward_tile(choice);
  AttentionOperand v = job.v;
  if (choice.form == ForwardForm::fast) {
    void* const to = memory + layout.v;
    values_in_fragment_order(exec, job.v, job.batches, job.kv_heads, job.key_lengths,
                             layout.padded_keys, to);
    const std::int64_t width = job.v.first.cols();
    v = {.batch_pitch = job.kv_heads * width * layout.padded_keys,
         .head_pitch = width * layout.padded_keys};
    v.first.values = {.data = to,
                      .dtype = DType::code,
                      .format = job.v.first.quantized.codes.format,
                      .rows = width,
                      .cols = layout.padded_keys,
                      .row_pitch = layout.padded_keys,
                      .col_stride = 1};
    plan.v = map_of(v, job.kv_heads, job.batches, tile.keys, choice.depth);
    return;
  }
  if (choice.copies_v) {
    v = dense_bf16(memory + layout.v, job.v, job.kv_heads);
    to_dense_bf16(exec, job.v, job.batches, job.kv_heads, job.key_lengths, v.first.values.data);
  }
  plan.v = map_of(v, job.kv_heads, job.batches, 128, tile.keys);
}

void prepare_scales(const Exec& exec, const ForwardChoice& choice, const AttentionJob& job,
                    const Layout& layout, std::byte* memory, ForwardPlan& plan) {
  if (job.v.first.is_quantized()) {
    plan.v_scales = scales_in_place(job.v, false);
    if (choice.copies_v_scales) {
      auto* const to = reinterpret_cast<float*>(memory + layout.v_scales);
      const std::int64_t width = job.v.first.cols();
      dense_scales(exec, job.v, job.batches, job.kv_heads, false, to);
      plan.v_scales = {.first = to, .batch = job.kv_heads * width, .head = width, .step = 1};
    }
  }
  if (choice.form == ForwardForm::bf16) return;
  plan.q_scales = scales_in_place(job.q, true);
  plan.k_scales = scales_in_place(job.k, true);
  if (choice.copies_q_scales) {
    auto* const to = reinterpret_cast<float*>(memory + layout.q_scales);
    dense_scales(exec, job.q, job.batches, job.heads, true, to);
    plan.q_scales = {.first = to, .batch = job.heads * job.queries, .head = job.queries, .step = 1};
  }
  if (!choice.key_scales) return;
  auto* const most = reinterpret_cast<float*>(memory + layout.key_scale_most);
  plan.key_scales = memory + layout.key_scales;
  plan.key_scale_most = most;
  key_scales(exec, job.k, has_plain_scales(job.k, true) ? plan.k_scales : ForwardScales{},
             job.batches, job.kv_heads, job.key_lengths, layout.padded_keys,
             memory + layout.key_scales, choice.form == ForwardForm::fast ? most : nullptr);
}

void launch(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice) {
  switch (choice.form) {
    case ForwardForm::bf16:
      return launch_forward_bf16(exec, plan, choice);
    case ForwardForm::strict:
      return launch_forward_strict(exec, plan, choice);
    case ForwardForm::balanced:
      return launch_forward_balanced(exec, plan, choice);
    case ForwardForm::fast:
      return launch_forward_fast(exec, plan, choice);
  }
}

}  // namespace

bool attention_forward_offered(const AttentionJob& job) { return forward_choice(job).has_value(); }

std::int64_t attention_forward_workspace(const Exec&, const AttentionJob& job) {
  const std::optional<ForwardChoice> choice = forward_choice(job);
  return choice ? Layout(*choice, job).bytes() : 0;
}

void attention_forward(const Exec& exec, const AttentionJob& job) {
  const ForwardChoice choice = forward_choice(job).value();
  if (job.ranges != nullptr && job.range_count == 0) return;
  const Layout layout(choice, job);
  const Scratch scratch(exec, static_cast<std::size_t>(layout.bytes()));
  auto* const memory = scratch.as<std::byte>();
  const ForwardTile tile = forward_tile(choice);
  ForwardPlan plan;
  plan.job = job;
  AttentionOperand q = job.q, k = job.k;
  if (choice.copies_q) {
    q = dense_bf16(memory + layout.q, job.q, job.heads);
    to_dense_bf16(exec, job.q, job.batches, job.heads, nullptr, q.first.values.data);
  }
  if (choice.copies_k) {
    k = dense_bf16(memory + layout.k, job.k, job.kv_heads);
    to_dense_bf16(exec, job.k, job.batches, job.kv_heads, job.key_lengths, k.first.values.data);
  }
  plan.q = map_of(q, job.heads, job.batches, tile.line_bytes, tile.rows);
  plan.k = map_of(k, job.kv_heads, job.batches, tile.line_bytes, tile.keys);
  prepare_v(exec, choice, job, layout, memory, plan);
  prepare_scales(exec, choice, job, layout, memory, plan);
  plan.padded_keys = layout.padded_keys;
  plan.row_blocks = static_cast<int>(row_blocks(choice, job));
  plan.head_group = head_group(job);
  plan.heads_per_kv = static_cast<int>(job.heads / job.kv_heads);
  plan.work_count = static_cast<int>(work_count(choice, job));
  plan.stores_pairs = stores_pairs(job.out);
  plan.score_unit = static_cast<float>(job.softmax_scale * std::numbers::log2e);
  if (choice.is_uneven) {
    plan.taken = reinterpret_cast<int*>(memory + layout.taken);
    plan.doubts = reinterpret_cast<std::uint8_t*>(memory + layout.doubts);
    OCTAVO_CUDA_CHECK(
        cudaMemsetAsync(memory, 0, static_cast<std::size_t>(layout.cleared), stream_of(exec)));
  }
  if (has_row_doubts(choice))
    plan.row_doubts = reinterpret_cast<std::uint8_t*>(memory + layout.row_doubts);
  launch(exec, plan, choice);
  if (plan.doubts != nullptr || plan.row_doubts != nullptr) attention_rows_again(exec, plan);
  if (job.key_shift != nullptr && job.log_sum_exp != nullptr) add_key_shift(exec, job);
}

}  // namespace octavo::cuda
