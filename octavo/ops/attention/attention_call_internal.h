// A checked attention call: operands as [B, H, rows, cols] stacks of matrices for the kernels, and
// the part of the kernel job that all rungs share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/attention_norms_job.h"
#include "octavo/exec/place_internal.h"
#include "octavo/ops/attention/attention.h"

namespace octavo {

// Any of Q, K, V, the output and its gradients, with missing leading dimensions put in.
class AttentionStack {
 public:
  AttentionStack() = default;
  // Throws where this cannot be one. `name` is "Q", "K", ...
  AttentionStack(const Operand& operand, std::string_view op, std::string_view name);

  [[nodiscard]] std::int64_t batches() const { return elements_.shape[0]; }
  [[nodiscard]] std::int64_t heads() const { return elements_.shape[1]; }
  [[nodiscard]] std::int64_t rows() const { return elements_.shape[2]; }
  [[nodiscard]] std::int64_t cols() const { return elements_.shape[3]; }
  [[nodiscard]] int rank() const { return rank_; }                  // as it was given
  [[nodiscard]] const View& elements() const { return elements_; }  // of four dimensions
  [[nodiscard]] bool is_quantized() const { return is_quantized_; }
  [[nodiscard]] AttentionOperand operand() const;
  // Every nth row; all rows where that would split tiles of scales.
  [[nodiscard]] AttentionStack every(std::int64_t n) const;
  void add_views(std::vector<NamedView>& views) const;

 private:
  std::string_view name_;
  int rank_ = 0;
  View elements_{}, scales_{}, tensor_scale_{};
  Tile tile_{};
  bool is_quantized_ = false;
};

// How the quantizers of a call run.
[[nodiscard]] QuantizeOptions quantize_options(const AttentionOptions& options);

[[nodiscard]] bool is_f16_or_codes(const AttentionStack& stack);

struct AttentionCall {
  AttentionCall(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options, std::string_view op);

  // The part common to all rungs: shapes, mask, softmax scale. Operands and results are not set
  // yet.
  [[nodiscard]] AttentionJob job() const;
  [[nodiscard]] Shape out_shape() const;  // as the caller has it
  // Keys of a batch, or the most that a row of the block table holds.
  [[nodiscard]] std::int64_t keys() const {
    return options.block_table.exists() ? options.block_table.columns * k.rows() : k.rows();
  }
  // Does this rung read K and V as they are, without a copy in another form?
  [[nodiscard]] bool takes_as_given(AttentionRung rung) const;
  // The caller's ranges, or all rows, split at multiples of `rows`.
  [[nodiscard]] std::vector<AttentionRange> ranges_of(std::int64_t rows) const;
  // Multiply-adds, to choose the number of threads.
  [[nodiscard]] std::int64_t work() const;
  [[nodiscard]] bool is_empty() const;  // no row to write
  // Does the output depend on more than differences of scores? Then K must not be smoothed.
  [[nodiscard]] bool sees_level() const {
    return options.soft_cap != 0.0 || options.sinks.data != nullptr;
  }
  void add_views(std::vector<NamedView>& views) const;

  Operand q_operand, k_operand, v_operand;
  AttentionStack q, k, v;
  const AttentionOptions& options;
};

// Runs a job on the backend that offers it, with the workspace that it asks for.
void run_attention(const Exec& exec, const AttentionOptions& options, const AttentionJob& job);
void run_attention_backward(const Exec& exec, const AttentionOptions& options,
                            const AttentionBackwardJob& job);
void run_attention_prepare(const Exec& exec, const AttentionOptions& options,
                           const AttentionPrepareJob& job);
void run_attention_statistics(const Exec& exec, const AttentionOptions& options,
                              const AttentionStatisticsJob& job);
void run_attention_norms(const Exec& exec, const AttentionOptions& options,
                         const AttentionNormsJob& job);
// How far the kernels that run_attention takes may be off; nothing, or an error, where no bound of
// them is derived.
[[nodiscard]] std::optional<AttentionRounding> known_rounding(const Exec& exec,
                                                              const AttentionOptions& options,
                                                              const AttentionJob& job);
[[nodiscard]] AttentionRounding attention_rounding(const Exec& exec,
                                                   const AttentionOptions& options,
                                                   const AttentionJob& job);

}  // namespace octavo
