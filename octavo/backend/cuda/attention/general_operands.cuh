// What the general attention kernel works on: its tile shapes, its plan, the operands' elements,
// and the shared memory of a block.
#pragma once

#include "octavo/backend/cuda/attention/general.h"
#include "octavo/backend/cuda/attention/general_rows.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256, kDepth = 16;
template <typename Real>
struct Shape;
template <>
struct Shape<float> {
  static constexpr int kSide = 64, kWidth = 128, kRun = 4;
};
template <>
struct Shape<double> {
  static constexpr int kSide = 32, kWidth = 64, kRun = 2;
};

// A job whose operands are values; of rows that are done again they may be codes.
struct GeneralPlan {
  AttentionJob job;
  GeneralRows rows;
  bool to_bf16[3];  // Q, K and V
  std::int64_t tiles = 0;
};

// Rows of the results [first, last) of one head.
struct RowTile {
  std::int64_t batch = 0, head = 0, first = 0, last = 0;
};

__device__ __forceinline__ float multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double multiply_add(double a, double b, double c) {
  return __fma_rn(a, b, c);
}

// An element as a job's sums take it. Codes are decoded where they are, which is slow, only for
// rows that are few.
template <bool kCodes, typename Real>
__device__ __forceinline__ void load_element(const GemmOperand& of, std::int64_t row,
                                             std::int64_t col, bool to_bf16, Real& number) {
  if constexpr (kCodes) {
    if (of.is_quantized()) {
      number = static_cast<Real>(dequantized(of.quantized, row, col));
      return;
    }
  }
  load_number(of.values, row, col, to_bf16, number);
}

template <typename Real>
struct Tiles {
  static constexpr int kSide = Shape<Real>::kSide, kWidth = Shape<Real>::kWidth,
                       kPitch = kSide + 16 / sizeof(Real);
  union {
    struct {
      Real q[kDepth][kPitch], k[kDepth][kPitch];
    } scores;
    Real v[kDepth][kWidth];
  };
  Real p[kSide][kPitch];  // [key][row]; -0 where a row does not see the key, or drops it
};

}  // namespace
}  // namespace octavo::cuda
