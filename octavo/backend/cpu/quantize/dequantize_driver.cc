// The dequantize driver: pieces of rows are decoded, scaled, and narrowed where 16 bits are asked
// for.
#include <algorithm>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/quantize/tile_values.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {

void dequantize_matrix(const Isa& isa, const Exec& exec, const QuantizedMatrix& from,
                       const Matrix& values) {
  const std::int64_t rows = values.rows, cols = values.cols;
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kStage - 1) / kStage, units = rows * per_row;
  const int threads = useful_threads(exec, rows * cols);
  const Narrower narrow(isa, values.dtype);
  const bool direct = is_contiguous(values);
  parallel_units(units, threads, [&](std::int64_t unit) {
    alignas(64) std::byte wide[kStage * 8], codes[kStage * 2];
    const std::int64_t row = unit / per_row, col = unit % per_row * kStage;
    const std::int64_t n = std::min(kStage, cols - col);
    std::byte* out = direct ? element(values, row, col) : wide;
    if (values.dtype == DType::f64) {
      dequantize_piece(isa, from, row, col, n, reinterpret_cast<double*>(out));
    } else if (values.dtype == DType::f32) {
      dequantize_piece(isa, from, row, col, n, reinterpret_cast<float*>(out));
    } else {
      auto* staged = reinterpret_cast<float*>(wide);
      dequantize_piece(isa, from, row, col, n, staged);
      out = direct ? out : codes;
      narrow(staged, out, n);
    }
    if (!direct) scatter(values, row, col, n, out);
  });
}

}  // namespace octavo::cpu
