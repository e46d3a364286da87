// The GEMM epilogue: from f32 sums to the result, with bias, activation, residual and the output
// type.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/narrow.h"

namespace octavo::cpu {

class GemmEpilogue {
 public:
  GemmEpilogue(const Isa& isa, const GemmJob& job);
  // Finishes part of a row; sums[0] is element (row, col).
  void operator()(std::int64_t row, std::int64_t col, std::int64_t cols, const float* sums) const;

 private:
  [[nodiscard]] const Matrix* only_addend() const;
  void store(std::int64_t row, std::int64_t col, std::int64_t n, const float* values) const;

  const Isa& isa_;
  const GemmJob& job_;
  Narrower narrow_;
};

}  // namespace octavo::cpu
