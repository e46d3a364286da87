// Operands of a product as lanes: rows of values or codes, a piece at a time, in the type that is
// multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm.h"
#include "octavo/backend/cpu/span.h"

namespace octavo::cpu {

// Which scales are multiplied into the lanes; the others are left to scales().
enum class Fold : std::uint8_t {
  none,
  tiles,  // those that change along K: exact in bf16 where folds_exactly says so
  all,    // rounded once; f32 lanes only
};

class OperandLanes {
 public:
  OperandLanes(const Isa& isa, const GemmOperand& operand, const GemmMethod& method, Fold fold);

  [[nodiscard]] std::int64_t rows() const { return operand_.rows(); }

  // n lanes from (row, k) on, at most kMostDepth, k a multiple of 8. Into `stage`, unless memory
  // has them as they are wanted.
  const std::byte* piece(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // The codes themselves, of formats of one byte and more.
  const std::byte* codes(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // What the lanes of each run of a piece are multiplied by: out[i * pitch] for run i.
  void scales(std::int64_t row, std::int64_t k, std::int64_t run, std::int64_t runs, float* out,
              std::int64_t pitch) const;

 private:
  const std::byte* f32_piece(std::int64_t row, std::int64_t k, std::int64_t n,
                             std::byte* stage) const;
  [[nodiscard]] float level() const;  // the second level of scales

  const Isa& isa_;
  const GemmOperand& operand_;
  const GemmMethod& method_;
  Fold fold_;
  Decoder decoder_{};
  DecodeSpan decode_ = nullptr;
  std::int64_t tile_rows_ = 1, tile_cols_ = 1;
  float unit_ = 1.0F;  // what a lane of 1 stands for, before scales
};

}  // namespace octavo::cpu
