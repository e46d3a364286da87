// A product as plain data that crosses the kernel door: out = activation(A B^T + bias) + residual,
// where A is [M, K] and B is [N, K]. docs/numerics/gemm.md says what each accumulator computes and
// how far it may be from the exact product.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/backend/producer.h"
#include "octavo/format/decode.h"
#include "octavo/tensor/quantized_view.h"
#include "octavo/tensor/view.h"

namespace octavo {

// What a sum is kept in.
enum class Accumulator : std::uint8_t {
  f32,
  // Runs of at most 128 products in f16, runs in f32: twice as fast where the CPU has f16, less
  // exact.
  f16,
  f64,         // the exact product, nearly; reference and devices
  hopper_fp8,  // what the FP8 tensor cores of Hopper keep, bit for bit; they and reference
  // The fastest that the place of the operands has and that keeps no less than hopper_fp8 promoted
  // every 128 products: that on Hopper where operands are FP8 or MX of FP8, else f32.
  native,
};

// [rows, K]: values, or codes with scales.
struct GemmOperand {
  Matrix values{};
  QuantizedMatrix quantized{};
  // The f16 accumulator: the largest magnitude among the codes, without scales, or a larger one.
  // 0: nobody looked.
  double largest_code = 0.0;

  [[nodiscard]] constexpr bool is_quantized() const { return quantized.wanted(); }
  [[nodiscard]] constexpr const Matrix& elements() const {
    return is_quantized() ? quantized.codes : values;
  }
  [[nodiscard]] constexpr std::int64_t rows() const { return elements().rows; }
  [[nodiscard]] constexpr std::int64_t cols() const { return elements().cols; }
};

// The f16 accumulator: products are summed in f16 for so long, and codes are multiplied by a power
// of two such that no sum of that length overflows and small ones are far from f16's smallest.
// Which one it is changes no bit of a sum, but where f16 overflows or is subnormal.
inline constexpr std::int64_t kF16Run = 128;
constexpr double f16_factor(const GemmOperand& operand) {
  constexpr double kLargest = 16.0;      // 16 * 16 * 128 is below 65504
  constexpr double kMostFactor = 128.0;  // times 2^8, which decoding e4m3 takes, is an f16
  if (!operand.is_quantized()) return 1.0;
  const double largest =
      operand.largest_code > 0.0 ? operand.largest_code : max_value(operand.quantized.codes.format);
  double factor = kMostFactor;
  while (largest * factor > kLargest) factor /= 2;
  return factor;
}

// One of several products in a job, by the rows where it begins: so many rows of A by as many rows
// of B as the result has columns.
struct GemmGroup {
  std::int64_t a_row = 0, rows = 0, b_row = 0, out_row = 0;
};

struct GemmJob {
  GemmOperand a{}, b{};
  Matrix out{};  // M x N of f32, f16 or bf16; of f64 where the accumulator is
  Accumulator accumulator = Accumulator::f32;
  // hopper_fp8: after so many products the sum goes to an f32 one; a multiple of 32, or 0 for
  // never. Where scales change, it does in any case.
  std::int64_t promote_every = 128;

  Matrix bias{};                             // 1 x N values, or no data
  std::optional<ProducerKind> activation{};  // not a norm
  Matrix residual{};                         // M x N values, or no data

  // None: all of A by all of B. Rows of the result that are in no group stay as they were. Only who
  // offers such a job is asked to do it; others get its groups one by one.
  const GemmGroup* groups = nullptr;
  std::int64_t group_count = 0;

  // If given, and MX operands are multiplied with other exponents (native): grows by the number of
  // elements that this changed.
  unsigned long long* aligned = nullptr;

  // One of several products that were asked for together and could not be groups of one job: its
  // sums are to have the order that they would have there.
  bool is_group = false;
};

}  // namespace octavo
