// Shared by all accumulators of the reference GEMM: where runs of products end, and the epilogue of
// a sum.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/backend/gemm_job.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/produced_internal.h"

namespace octavo::reference {

// The end of the run of products that k is in: with the scale of an operand, and at multiples of
// `most`.
inline std::int64_t run_end(const GemmJob& job, std::int64_t k, std::int64_t most) {
  std::int64_t end = std::min(job.a.cols(), (k / most + 1) * most);
  for (const GemmOperand* operand : {&job.a, &job.b}) {
    if (!operand->is_quantized()) continue;
    const std::int64_t tile = tile_extent(operand->quantized.tile.cols, job.a.cols());
    end = std::min(end, (k / tile + 1) * tile);
  }
  return end;
}

// The epilogue: bias, activation and residual in f64, rounded once to the output type.
inline void epilogue(const GemmJob& job, std::int64_t row, std::int64_t col, double sum) {
  if (job.bias.data != nullptr) sum += load_value(job.bias, 0, col);
  if (job.activation) sum = activated(*job.activation, sum);
  if (job.residual.data != nullptr) sum += load_value(job.residual, row, col);
  store_value(job.out, row, col, sum);
}

// GEMM with the accumulator of Hopper's FP8 tensor cores; reference_hopper.cc
void gemm_hopper(const GemmJob& job);
// GEMM with the sums of AMX's bf16 tiles; reference_amx.cc
void gemm_amx(const GemmJob& job);

}  // namespace octavo::reference
