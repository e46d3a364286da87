// Grouped GEMM: the group that a unit belongs to.
#pragma once

#include "octavo/backend/cuda/gemm/gemm_plan.h"

namespace octavo::cuda {

// Binary search for the last group whose first_unit is not after `unit`.
__device__ __forceinline__ int group_at(const PlanGroup* groups, int count, int unit) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (__ldg(&groups[middle].first_unit) <= unit ? low : high) = middle;
  }
  return low;
}

}  // namespace octavo::cuda
