// Operands of a product as lanes: rows of values or codes, a piece at a time, in the type that is
// multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Which scales are multiplied into the lanes; the others are left to scales().
enum class AppliedScales : std::uint8_t {
  none,
  tiles,  // those that change along K: exact in bf16 where applies_scales_exactly says so
  all,    // rounded once; f32 lanes only
};

class GemmOperandRows {
 public:
  GemmOperandRows(const Isa& isa, const GemmOperand& operand, const GemmMethod& method,
                  AppliedScales applied_scales);

  [[nodiscard]] std::int64_t rows() const { return operand_.rows(); }

  // n lanes from (row, k) on, at most kMaxKc, k a multiple of 8. Into `stage`, unless memory
  // has them as they are wanted.
  const std::byte* piece(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // Rows at once, as a panel: [n][count]. False: nothing was done, rows must be taken one by one.
  // Codes are decoded, and scaled where lanes are, in registers; of values whose columns lie one
  // after the other in memory a line is fetched once for all of them, not once for each.
  bool pack(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
            std::byte* panel) const;

  // Are they values in f32 lanes, with an element's neighbour in the next row beside it in memory?
  [[nodiscard]] bool in_columns() const { return in_columns_; }
  // Then: elements k of n rows, at most kMaxKc.
  const float* column(std::int64_t first_row, std::int64_t k, std::int64_t n, float* stage) const;

  // The codes themselves, of formats of one byte and more.
  const std::byte* codes(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // What the lanes of each run of a piece are multiplied by: out[i * pitch] for run i.
  void scales(std::int64_t row, std::int64_t k, std::int64_t run, std::int64_t runs, float* out,
              std::int64_t pitch) const;

 private:
  bool pack_codes(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                  std::byte* panel) const;
  // Values as f32; f32 itself is left where it is.
  const float* widened(const void* values, std::int64_t n, float* stage) const;
  const std::byte* f32_piece(std::int64_t row, std::int64_t k, std::int64_t n,
                             std::byte* stage) const;
  [[nodiscard]] float level() const;  // the second level of scales

  const Isa& isa_;
  const GemmOperand& operand_;
  const GemmMethod& method_;
  AppliedScales applied_scales_;
  Decoder decoder_{};
  DecodeSpan decode_ = nullptr;
  PackCodes pack_codes_ = nullptr;
  bool in_columns_ = false;
  std::int64_t tile_rows_ = 1, tile_cols_ = 1;
  float unit_ = 1.0F;  // what a lane of 1 stands for, before scales
};

}  // namespace octavo::cpu
