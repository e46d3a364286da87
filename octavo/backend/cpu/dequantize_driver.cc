// Codes with scales to values: pieces of rows, decoded, scaled, and narrowed where 16 bits are
// asked for.
#include <algorithm>
#include <bit>

#include "octavo/backend/cpu/masks.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/share.h"
#include "octavo/backend/cpu/span.h"
#include "octavo/backend/cpu/tile_values.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// To nearest even; NaN becomes quiet and keeps its sign. The integer way, which compilers
// vectorise.
void narrow_to_bf16(const float* from, std::byte* to, std::int64_t n) {
  auto* out = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16 & 0x8000u) | 0x7FC0u;
    const std::uint32_t is_nan = mask_of((bits & 0x7FFFFFFFu) > 0x7F800000u);
    out[i] = static_cast<std::uint16_t>(select(is_nan, quiet, rounded));
  }
}

}  // namespace

void dequantize_matrix(const Isa& isa, const Exec& exec, const QuantizedMatrix& from,
                       const Matrix& values) {
  const std::int64_t rows = values.rows, cols = values.cols;
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kStage - 1) / kStage, units = rows * per_row;
  const int threads = useful_threads(exec, rows * cols);
  // To f16 as to a format of its own, rounded to nearest even, beyond the range Inf.
  const EncodePolicy policy{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  const Encoder encoder = make_encoder(f16_format, policy, DType::f32);
  const EncodeSpan encode = isa.encode(encoder);
  const bool direct = is_contiguous(values);
  share_units(units, threads, [&](std::int64_t unit) {
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
      if (values.dtype == DType::bf16) {
        narrow_to_bf16(staged, out, n);
      } else {
        encode(encoder, staged, out, n, 0);
      }
    }
    if (!direct) scatter(values, row, col, n, out);
  });
}

}  // namespace octavo::cpu
