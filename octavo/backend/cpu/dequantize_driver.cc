// Codes with scales to values: pieces of rows, decoded, scaled, and narrowed where 16 bits are
// asked for.
#include <algorithm>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/span.h"
#include "octavo/backend/cpu/tile_values.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/thread_pool.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

void dequantize_matrix(const Isa& isa, const Exec& exec, const QuantizedMatrix& from,
                       const Matrix& values) {
  constexpr std::int64_t kPerThread = 32 * 1024;
  const std::int64_t rows = values.rows, cols = values.cols;
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kStage - 1) / kStage, units = rows * per_row;
  const std::int64_t threads =
      std::max<std::int64_t>(1, std::min<std::int64_t>(exec.threads, rows * cols / kPerThread));
  const int parts = static_cast<int>(threads <= 1 ? 1 : std::min(units, threads * 4));
  // To 16 bits as formats of their own, rounded to nearest even, beyond the range Inf.
  const Format narrow = values.dtype == DType::f16 ? f16_format : bf16_format;
  const EncodePolicy policy{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  const Encoder encoder = make_encoder(narrow, policy, DType::f32);
  const EncodeSpan encode = isa.encode(encoder);
  const bool direct = is_contiguous(values);
  parallel_for(parts, static_cast<int>(threads), [&](int part) {
    const FpEnvGuard guard;
    alignas(64) std::byte wide[kStage * 8], codes[kStage * 2];
    for (std::int64_t u = units * part / parts; u < units * (part + 1) / parts; ++u) {
      const std::int64_t row = u / per_row, col = u % per_row * kStage;
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
        encode(encoder, staged, out, n, 0);
      }
      if (!direct) scatter(values, row, col, n, out);
    }
  });
}

}  // namespace octavo::cpu
