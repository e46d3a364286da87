#include "octavo/backend/cpu/quantize/tile_values.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/hadamard.h"

namespace octavo::cpu {
namespace {

template <typename Real>
constexpr DType kDType = std::is_same_v<Real, float> ? DType::f32 : DType::f64;

// Contiguous values of any type as Real.
template <typename Real>
const Real* as_real(const Isa& isa, DType dtype, const void* values, std::int64_t n, Real* stage) {
  if (dtype == kDType<Real>) return static_cast<const Real*>(values);
  if constexpr (std::is_same_v<Real, float>) {
    if (dtype == DType::bf16) {
      widen_bf16(isa, values, stage, n);
      return stage;
    }
  }
  const Decoder decoder{.format = dtype == DType::f16 ? f16_format : bf16_format,
                        .target = kDType<Real>};
  isa.decode(decoder)(decoder, values, stage, n);
  return stage;
}

template <typename Real>
void dequantize_any(const Isa& isa, const QuantizedMatrix& from, std::int64_t row, std::int64_t col,
                    std::int64_t n, Real* out) {
  const std::int64_t tile_rows = tile_extent(from.tile.rows, from.codes.rows),
                     tile_cols = tile_extent(from.tile.cols, from.codes.cols);
  alignas(64) std::byte codes[kStage * 2 + 16];
  alignas(64) float scales[kStage];
  // A packed row is entered at multiples of eight.
  const std::int64_t lead = from.codes.packed ? col % 8 : 0;
  alignas(64) Real decoded[kStage + 8];
  const Decoder decoder{.format = from.codes.format, .target = kDType<Real>};
  isa.decode(decoder)(decoder, gather(from.codes, row, col - lead, n + lead, codes), decoded,
                      n + lead);
  const std::int64_t first = col / tile_cols, last = (col + n - 1) / tile_cols;
  load_scales(isa, from.scales, row / tile_rows, first, last - first + 1, scales);
  const bool two_levels = from.tensor_scale != nullptr;
  const Real tensor_scale = two_levels ? static_cast<Real>(*from.tensor_scale) : Real{1};
  const bool tensor_nan = tensor_scale != tensor_scale;
  using Bits = std::conditional_t<std::is_same_v<Real, float>, std::uint32_t, std::uint64_t>;
  const auto nan = std::bit_cast<Bits>(static_cast<Real>(std::bit_cast<float>(0x7FC00000u)));
  const Real* in = decoded + lead;
  for (std::int64_t done = 0, t = 0; done < n; ++t) {
    const std::int64_t end = std::min(n, (first + t + 1) * tile_cols - col);
    const auto scale = static_cast<Real>(scales[t]);
    // NaN scales decode to one NaN, whatever the codes; a mask, because scales are data.
    const Bits is_nan = Bits{0} - static_cast<Bits>((scale != scale) | tensor_nan);
    for (std::int64_t i = done; i < end; ++i) {
      Real product = in[i] * scale;
      if (two_levels) product *= tensor_scale;
      // Inf times zero has a sign that depends on the processor.
      const Bits made = Bits{0} - static_cast<Bits>((product != product) & (in[i] == in[i]));
      const Bits one = is_nan | made;
      out[i] = std::bit_cast<Real>((std::bit_cast<Bits>(product) & ~one) | (nan & one));
    }
    done = end;
  }
}

}  // namespace

void dequantize_piece(const Isa& isa, const QuantizedMatrix& from, std::int64_t row,
                      std::int64_t col, std::int64_t n, float* out) {
  if (fits_f32(from.codes.format)) return dequantize_any<float>(isa, from, row, col, n, out);
  alignas(64) double exact[kStage];
  dequantize_any<double>(isa, from, row, col, n, exact);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(exact[i]);
}
void dequantize_piece(const Isa& isa, const QuantizedMatrix& from, std::int64_t row,
                      std::int64_t col, std::int64_t n, double* out) {
  dequantize_any<double>(isa, from, row, col, n, out);
}

template <typename Real>
TileValues<Real>::TileValues(const Isa& isa, const QuantizeJob& job, bool transposed)
    : isa_(isa),
      source_(job.source),
      values_(job.source.values),
      transposed_(transposed),
      hadamard_(transposed ? job.hadamard_columnwise : job.hadamard_rowwise),
      to_bf16_(job.hadamard_to_bf16),
      direct_(false),
      signs_(job.hadamard_signs),
      rows_(job.source.rows()),
      cols_(job.source.cols()) {
  if (transposed) {
    std::swap(rows_, cols_);
    std::swap(values_.rows, values_.cols);
    std::swap(values_.row_pitch, values_.col_stride);
  }
  direct_ = !source_.is_quantized() && !hadamard_ && is_contiguous(values_);
}

template <typename Real>
const Real* TileValues<Real>::plain(std::int64_t row, std::int64_t col, std::int64_t n,
                                    Real* stage) const {
  if (source_.is_quantized()) {
    if (!transposed_) {
      dequantize_piece(isa_, source_.quantized, row, col, n, stage);
    } else {
      for (std::int64_t i = 0; i < n; ++i)
        dequantize_piece(isa_, source_.quantized, col + i, row, 1, stage + i);
    }
    return stage;
  }
  alignas(64) std::byte gathered[kStageRoom * 8];
  const void* values = gather(values_, row, col, n, gathered);
  const Real* real = as_real(isa_, values_.dtype, values, n, stage);
  if (static_cast<const void*>(real) == gathered) {
    std::memcpy(stage, real, static_cast<std::size_t>(n) * sizeof(Real));
    return stage;
  }
  return real;
}

template <typename Real>
const Real* TileValues<Real>::piece(std::int64_t row, std::int64_t col, std::int64_t n,
                                    Real* stage) const {
  if constexpr (std::is_same_v<Real, float>) {
    if (hadamard_) {
      // Whole groups, as far as the row has them.
      const std::int64_t lead = col % kHadamardSize, start = col - lead;
      const std::int64_t end =
          std::min(cols_, (col + n + kHadamardSize - 1) / kHadamardSize * kHadamardSize);
      const float* wide = plain(row, start, end - start, stage);
      if (wide != stage) std::copy_n(wide, end - start, stage);
      for (std::int64_t i = 0; i + kHadamardSize <= end - start; i += kHadamardSize)
        hadamard16(stage + i, signs_, to_bf16_);
      return stage + lead;
    }
  }
  return plain(row, col, n, stage);
}

template class TileValues<float>;
template class TileValues<double>;

}  // namespace octavo::cpu
