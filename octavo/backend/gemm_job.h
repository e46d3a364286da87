// A GEMM as plain data for the kernel interface (kernels.h): out = activation(A B^T + bias) +
// residual, where A is [M, K] and B is [N, K]. docs/numerics/gemm.md defines what each accumulator
// computes and bounds its error.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/backend/producer.h"
#include "octavo/format/decode.h"
#include "octavo/tensor/quantized_view.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The accumulator: what sums of products are kept in.
enum class Accumulator : std::uint8_t {
  f32,
  // Runs of at most 128 products in f16, promoted to f32: twice as fast where the CPU has f16, less
  // exact.
  f16,
  f64,         // the exact product, nearly; reference and devices
  hopper_fp8,  // the accumulator of Hopper's FP8 tensor cores, bit for bit; Hopper and reference
  amx_bf16,    // the sums of AMX's bf16 tiles (TDPBF16PS), bit for bit; reference
  // The fastest accumulator of the operands' device that is no less exact than hopper_fp8 promoted
  // every 128 products: that one on Hopper where operands are FP8 or MX (of FP8, FP6 or FP4), by
  // octavo's kernels or cuBLASLt, else f32.
  native,
};

// [rows, K]: values, or codes with scales.
struct GemmOperand {
  Matrix values{};
  QuantizedMatrix quantized{};
  // The f16 accumulator: the largest magnitude among the codes, without scales, or an upper bound.
  // 0: unknown.
  double largest_code = 0.0;

  [[nodiscard]] constexpr bool is_quantized() const { return quantized.wanted(); }
  [[nodiscard]] constexpr const Matrix& elements() const {
    return is_quantized() ? quantized.codes : values;
  }
  [[nodiscard]] constexpr std::int64_t rows() const { return elements().rows; }
  [[nodiscard]] constexpr std::int64_t cols() const { return elements().cols; }
};

// The f16 accumulator: kF16Run products are summed in f16, and codes are multiplied by a power of
// two such that no sum of that length overflows and small ones are far from f16's smallest. The
// factor changes no bit of a sum, except where f16 overflows or is subnormal.
inline constexpr std::int64_t kF16Run = 128;
constexpr double f16_factor(const GemmOperand& operand) {
  constexpr double kLargest = 16.0;     // 16 * 16 * 128 is below 65504
  constexpr double kMaxFactor = 128.0;  // times 2^8, which decoding e4m3 takes, is an f16
  if (!operand.is_quantized()) return 1.0;
  const double largest =
      operand.largest_code > 0.0 ? operand.largest_code : max_value(operand.quantized.codes.format);
  double factor = kMaxFactor;
  while (largest * factor > kLargest) factor /= 2;
  return factor;
}

// Does bf16 hold every number of a format of codes, with room below for the product of two, so that
// none is subnormal?
constexpr bool fits_bf16(const Format& format) {
  constexpr int kSmallest = -60;
  return format.bits() <= 8 && format.mantissa_bits <= 7 &&
         format.min_step_exponent() >= kSmallest && max_value(format) < 0x1p+60;
}

// One group of a grouped GEMM, by its first rows: `rows` rows of A by as many rows of B as the
// result has columns.
struct GemmGroup {
  std::int64_t a_row = 0, rows = 0, b_row = 0, out_row = 0;
};

struct GemmJob {
  GemmOperand a{}, b{};
  Matrix out{};  // M x N of f32, f16 or bf16; of f64 where the accumulator is
  Accumulator accumulator = Accumulator::f32;
  // hopper_fp8: the sum is promoted to f32 after this many products; a multiple of 32, or 0 for
  // never. It is promoted wherever scales change, too.
  std::int64_t promote_every = 128;

  Matrix bias{};                             // 1 x N values, or no data
  std::optional<ProducerKind> activation{};  // not a norm
  Matrix residual{};                         // M x N values, or no data

  // None: all of A by all of B. Rows of the result that are in no group are not written. Only a
  // backend that offers grouped jobs (gemm_offered) gets one; others get one job per group.
  const GemmGroup* groups = nullptr;
  std::int64_t group_count = 0;

  // If given, and MX operands are exponent-aligned first (native): incremented by the number of
  // elements that this changed.
  unsigned long long* aligned = nullptr;

  // A group of a grouped GEMM that runs as a job of its own: its sums must have the order that they
  // would have in the grouped job.
  bool is_group = false;

  // No branch and no address depends on elements, scales, bias or residual: what could be found out
  // about them is not looked at.
  bool oblivious = false;
};

}  // namespace octavo
