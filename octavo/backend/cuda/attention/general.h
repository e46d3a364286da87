// General attention: every job that the kernel interface can say, without tensor cores. It is rungs
// `f32` and `exact` of a device, and whatever faster kernels refuse.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// What the general kernel can do beside a job.
struct GeneralRows {
  // If given: [batches, heads, count], dense: row i of the results (out, log_sum_exp,
  // largest_weight) is this row of Q, of the mask and of the bias. Ranges are ignored.
  const std::int64_t* positions = nullptr;
  std::int64_t count = 0;
  // If given: [batches, heads, rows of the results]: the sum of squared weights.
  float* squares = nullptr;
};

void attention_general(const Exec& exec, const AttentionJob& job, const GeneralRows& rows = {});

// Rows that another kernel could not do: counts[batch, head, row], of which nearly all are zero, is
// the number of rows from that one on. Sums are in f32; ranges are ignored.
void attention_general_again(const Exec& exec, const AttentionJob& job, const std::uint8_t* counts);

// Codes as dense values, [batches, heads, rows, cols] of f32 or f64: scale times code, rounded
// once.
void decode_operand(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                    std::int64_t heads, DType to, void* values);

}  // namespace octavo::cuda
