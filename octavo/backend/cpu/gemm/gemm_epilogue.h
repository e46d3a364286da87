// From f32 sums to the result: bias, activation, residual, and the type of the output.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/narrow.h"

namespace octavo::cpu {

class GemmEpilogue {
 public:
  GemmEpilogue(const Isa& isa, const GemmJob& job);
  // sums[0] belongs to (row, col).
  void operator()(std::int64_t row, std::int64_t col, std::int64_t cols, const float* sums) const;

 private:
  [[nodiscard]] const Matrix* only_addend() const;
  void store(std::int64_t row, std::int64_t col, std::int64_t n, const float* values) const;

  const Isa& isa_;
  const GemmJob& job_;
  Narrower narrow_;
};

}  // namespace octavo::cpu
