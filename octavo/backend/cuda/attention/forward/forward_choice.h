// Which forward kernel takes a job, and which operands are prepared for it.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/backend/cuda/attention/forward/forward_plan.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

struct ForwardChoice {
  ForwardForm form = ForwardForm::bf16;
  int depth = 128;                                            // that the kernel pads head sizes to
  bool key_scales = false;                                    // keys have scales of their own
  bool copies_q = false, copies_k = false, copies_v = false;  // to dense bf16
  bool copies_q_scales = false, copies_v_scales = false;      // to dense f32
  bool is_uneven = false;                                     // rows see different numbers of keys
};

[[nodiscard]] std::optional<ForwardChoice> forward_choice(const AttentionJob& job);

// Rows and keys of a tile of the kernel.
struct ForwardTile {
  int rows = 0, keys = 0, line_bytes = 0;
};
[[nodiscard]] ForwardTile forward_tile(const ForwardChoice& choice);

// Whether kernels can read scales of rows (or of columns) where they are: f32, one for each or for
// all.
[[nodiscard]] bool has_plain_scales(const AttentionOperand& operand, bool of_rows);
// Whether TMA reads the matrices where they are.
[[nodiscard]] bool fits_heads_map(const AttentionOperand& operand, std::int64_t heads,
                                  std::int64_t batches);

// One for each form, in a file of its own.
void launch_forward_bf16(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice);
void launch_forward_strict(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice);
void launch_forward_balanced(const Exec& exec, const ForwardPlan& plan,
                             const ForwardChoice& choice);
void launch_forward_fast(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice);

}  // namespace octavo::cuda
