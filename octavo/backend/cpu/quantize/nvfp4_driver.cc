#include "octavo/backend/cpu/quantize/nvfp4_driver.h"

#include <algorithm>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 8192;  // elements of a row per call: much more work than its setup

bool takes_policy(const Isa& isa, AmaxPolicy policy) {
  if (policy == AmaxPolicy::max) return true;
  if (policy == AmaxPolicy::mse) return isa.fp4_searches;
  return isa.fp4_searches_more &&
         (policy == AmaxPolicy::four_over_six || policy == AmaxPolicy::wmse);
}

bool is_plain(const QuantizeJob& job) {
  const ScaleSpec& scale = job.scale;
  return scale.format == ScaleFormat::e4m3_f32 && scale.rule == ScaleRule::f32 &&
         scale.non_finite == NonFinite::poison && scale.arith == Arith::octavo &&
         scale.margin == 0 && scale.min_amax == 0.0F && job.given_amax == nullptr &&
         job.given_inv_scale == nullptr && job.counts == nullptr && !job.hadamard_rowwise &&
         !job.source.is_quantized() && job.encode.rounding == Rounding::nearest_even &&
         job.encode.overflow == Overflow::saturate;
}

bool fits(const QuantizedMatrix& to) {
  return to.tile == Tile{1, kFp4Tile} && to.codes.format == e2m1fn && to.codes.packed &&
         to.scales.col_stride == 1 && to.tensor_scale != nullptr;
}

}  // namespace

Fp4SpecialScales fp4_special_scales(float tensor_scale) {
  const ScaleSpec spec{.format = ScaleFormat::e4m3_f32};
  return {zero_scale(spec, tensor_scale).bits, poisoned_scale(spec.format).bits};
}

bool quantize_fp4(const Isa& isa, const Exec& exec, const QuantizeJob& job) {
  const Matrix& values = job.source.values;
  const QuantizedMatrix& to = job.rowwise;
  if (isa.fp4 == nullptr || !takes_policy(isa, job.policy) || !to.wanted() ||
      job.columnwise.wanted() || !is_plain(job) || !fits(to) || !is_contiguous(values))
    return false;
  const Fp4Rows kernel = isa.fp4(values.dtype);
  if (kernel == nullptr) return false;

  // Contiguous rows of whole tiles are treated as one long row; not where columns have weights.
  const auto follows = [&](const Matrix& matrix, std::int64_t row_bytes) {
    return matrix.rows <= 1 || matrix.row_pitch == row_bytes;
  };
  std::int64_t rows = values.rows, cols = values.cols;
  if (job.column_weights == nullptr && cols % kFp4Tile == 0 &&
      follows(values, cols * bytes_of(values)) && follows(to.codes, cols / 2) &&
      follows(to.scales, cols / kFp4Tile)) {
    cols *= rows;
    rows = 1;
  }
  Fp4Tiles tiles{.tensor_scale = *to.tensor_scale, .policy = job.policy};
  const auto of_code = two_level_scales(job.scale, tiles.tensor_scale);
  if (job.policy != AmaxPolicy::max) tiles.searched = of_code.data();
  const std::int64_t per_row = (cols + kPiece - 1) / kPiece;
  parallel_units(rows * per_row, useful_threads(exec, rows * cols), [&](std::int64_t unit) {
    const std::int64_t row = unit / per_row, col = unit % per_row * kPiece;
    Fp4Tiles of_columns = tiles;
    if (job.column_weights != nullptr) of_columns.weights = job.column_weights + col;
    kernel(of_columns, element(values, row, col),
           reinterpret_cast<std::uint8_t*>(element(to.codes, row, col)),
           reinterpret_cast<std::uint8_t*>(element(to.scales, row, col / kFp4Tile)),
           std::min(kPiece, cols - col));
  });
  return true;
}

}  // namespace octavo::cpu
