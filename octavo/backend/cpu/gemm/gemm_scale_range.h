// Where the scales of a product may be applied: to elements, exactly, or to sums of runs, without
// overflow or lost bits. Decided from the exponents of elements and scales, which are scanned once.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// The exponent range of numbers that are not zero, Inf or NaN (those pass through any product
// unchanged): 2^low <= |x| < 2^(high + 1), or empty.
struct Exponents {
  int low = 0, high = 0;
  bool any = false;

  void add(int least, int most);
};

class GemmScaleRange {
 public:
  GemmScaleRange(const GemmJob& job, int threads) : job_(job), threads_(threads) {}

  // May sums of `run` products be multiplied by the scales of B and then of A that are not applied
  // to elements? Those are of the type that panels have.
  bool may_scale_sums(std::int64_t run, AppliedScales to_a, AppliedScales to_b, PackedType type);

  // Are the elements of both operands, times the scales that change along K, exact in bf16?
  bool applies_exactly() { return applies_exactly(PanelOf::a) && applies_exactly(PanelOf::b); }
  bool applies_exactly(PanelOf side);

 private:
  // Exponent ranges of an operand: of packed elements, and of the scale applied to accumulators.
  struct Factors {
    Exponents elements, scale;
  };
  Factors factors(PanelOf side, AppliedScales applied, PackedType type);
  const Exponents& tile_scales(PanelOf side);

  const GemmJob& job_;
  int threads_;
  std::optional<Exponents> scales_[2];
};

}  // namespace octavo::cpu
