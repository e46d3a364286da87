// Prepares operands of the forward kernels (forward_prepare.cuh), host side.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda/attention/forward/forward_plan.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// V of e4m3 codes as [batches, heads, cols, padded rows] in fragment order; padded rows are a
// multiple of 128.
void values_in_fragment_order(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                              std::int64_t heads, const std::int64_t* lengths,
                              std::int64_t padded_rows, void* to);
// Dense bf16 [batches, heads, rows, cols]: values rounded, or codes without their scales. Rows
// beyond `lengths`, if given, are zeros.
void to_dense_bf16(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                   std::int64_t heads, const std::int64_t* lengths, void* to);
// Scales of keys in fragment order, [batches, heads, padded rows]: in f32, or, where `most` is
// given, in f16 relative to the largest finite one of a head, which goes there. `plain`: where they
// are, if they are f32.
void key_scales(const Exec& exec, const AttentionOperand& from, const ForwardScales& plain,
                std::int64_t batches, std::int64_t heads, const std::int64_t* lengths,
                std::int64_t padded_rows, void* to, float* most);
// Scales as dense f32: [batches, heads, rows], or [batches, heads, cols].
void dense_scales(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                  std::int64_t heads, bool of_rows, float* to);
// log_sum_exp += softmax_scale q key_shift, of rows that see a key.
void add_key_shift(const Exec& exec, const AttentionJob& job);

}  // namespace octavo::cuda
