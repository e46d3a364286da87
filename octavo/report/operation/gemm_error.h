// measure_gemm_error(): the error of a product against that of the unquantized values, split into
// the part of quantization and the part of accumulation. Every number is defined in
// docs/numerics/metrics.md.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/ops/gemm.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Distance between an exact product x and its replacement y.
struct ProductDistance {
  double relative_l2 = 0;  // ||y - x|| / ||x||
  double max_abs = 0;      // the largest |y - x|
  double cosine = 1;
  bool operator==(const ProductDistance&) const = default;
};

struct GemmError {
  std::int64_t elements = 0;
  std::int64_t not_finite = 0;     // in one of the three products; left out of all else
  ProductDistance quantization{};  // from A B^T to that of the operands as they were multiplied
  ProductDistance accumulation{};  // from there to what was computed
  ProductDistance total{};         // from A B^T to what was computed
  bool operator==(const GemmError&) const = default;
};

struct GemmErrorOptions {
  int threads = 0;  // 0: all cores the thread pool has; results do not depend on it
};

// `a` [M, K] and `b` [N, K] are the values as they were, `a_used` and `b_used` what was multiplied,
// and `result` [M, N] the product of those, before bias, activation and residual. Exact products
// are those of f64 sums, made for some rows at a time. On the CPU.
[[nodiscard]] OCTAVO_API GemmError measure_gemm_error(const View& a, const View& b,
                                                      const Operand& a_used, const Operand& b_used,
                                                      const View& result,
                                                      const GemmErrorOptions& options = {});

}  // namespace octavo
