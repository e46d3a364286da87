// The values a quantizer works on, piece by piece as f32 (or f64 where the source is): from values
// of any type and strides, from codes with scales, from the transpose, and Hadamard-transformed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {

// Room for a stage and the Hadamard groups that its ends cut.
inline constexpr std::int64_t kStageRoom = kStage + 2 * 16;

// A rectangle of a matrix.
struct Area {
  std::int64_t row, col, rows, cols;
};

// f32 from codes with scales: scale times value, rounded once; NaN where the scale is NaN.
void dequantize_piece(const Isa&, const QuantizedMatrix& from, std::int64_t row, std::int64_t col,
                      std::int64_t n, float* out);
// The same, exact.
void dequantize_piece(const Isa&, const QuantizedMatrix& from, std::int64_t row, std::int64_t col,
                      std::int64_t n, double* out);

template <typename Real>
class TileValues {
 public:
  TileValues(const Isa& isa, const QuantizeJob& job, bool transposed);

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }

  // The values in place, where they are contiguous and of this type; else null.
  [[nodiscard]] const void* direct(std::int64_t row, std::int64_t col) const {
    return direct_ ? element(values_, row, col) : nullptr;
  }
  [[nodiscard]] bool is_direct() const { return direct_; }
  [[nodiscard]] DType dtype() const { return values_.dtype; }

  // At most kStage elements from (row, col) on; `stage` has kStageRoom, and is used only where the
  // source cannot be read in place.
  const Real* piece(std::int64_t row, std::int64_t col, std::int64_t n, Real* stage) const;

 private:
  const Real* plain(std::int64_t row, std::int64_t col, std::int64_t n, Real* stage) const;

  const Isa& isa_;
  const QuantizeSource& source_;
  Matrix values_{};  // swapped rows and columns, where transposed
  bool transposed_;
  bool hadamard_, to_bf16_;
  bool direct_;
  std::uint16_t signs_;
  std::int64_t rows_, cols_;
};

}  // namespace octavo::cpu
