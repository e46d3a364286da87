// Stores rows of f32 into a matrix of f64, f32, f16 or bf16 of any strides.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/narrow.h"

namespace octavo::cpu {

class RowStore {
 public:
  RowStore(const Isa& isa, DType to) : narrow_(isa, to) {}
  // All columns of a row, at most kMaxHeadSize (attention.h).
  void operator()(const Matrix& to, std::int64_t row, const float* values) const;

 private:
  Narrower narrow_;
};

}  // namespace octavo::cpu
