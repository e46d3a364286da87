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

  // Where sums are the result as they are, f32 in rows without gaps: where they may be summed.
  // pitch() is the distance of rows there, in elements.
  [[nodiscard]] bool is_plain_f32() const;
  [[nodiscard]] float* place_of(std::int64_t row, std::int64_t col) const;
  [[nodiscard]] std::int64_t pitch() const;

 private:
  [[nodiscard]] bool is_plain() const;
  [[nodiscard]] const Matrix* only_addend() const;
  void store(std::int64_t row, std::int64_t col, std::int64_t n, const float* values) const;

  const Isa& isa_;
  const GemmJob& job_;
  Narrower narrow_;
};

}  // namespace octavo::cpu
