#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/backend/cpu/quantize/tile_values.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode_edges.h"

namespace octavo::cpu {
namespace {

// Codes of a format as integers in units of its smallest value.
using IntegerTable = std::array<std::int8_t, 64>;
template <const Format& kFormat>
constexpr IntegerTable integer_table() {
  IntegerTable table{};
  for (std::uint32_t code = 0; code < 1u << kFormat.bits(); ++code)
    table[code] = static_cast<std::int8_t>(decode(kFormat, code) / decode(kFormat, 1u));
  return table;
}

// f32 to bf16 for values that are exact in it.
void take_upper_halves(const float* values, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
}

void scale_values(float* values, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
}

}  // namespace

const std::int8_t* integers_of(const Format& format) {
  static constexpr IntegerTable kE2m1 = integer_table<e2m1fn>(), kE2m3 = integer_table<e2m3fn>();
  return (format == e2m1fn ? kE2m1 : kE2m3).data();
}

GemmOperandRows::GemmOperandRows(const Isa& isa, const GemmOperand& operand,
                                 const GemmMethod& method, AppliedScales applied_scales,
                                 PanelOf side)
    : isa_(isa), operand_(operand), method_(method), applied_scales_(applied_scales) {
  const PackedType packed_type = method.packed_type;
  if (!operand.is_quantized()) {
    const DType dtype = operand.values.dtype;
    decoder_ = {.format = dtype == DType::f16 ? f16_format : bf16_format, .target = DType::f32};
    applied_scales_ = AppliedScales::none;
  } else {
    const QuantizedMatrix& from = operand.quantized;
    tile_rows_ = tile_extent(from.tile.rows, from.codes.rows);
    tile_cols_ = tile_extent(from.tile.cols, from.codes.cols);
    if (applied_scales_ == AppliedScales::tiles && tile_cols_ == from.codes.cols)
      applied_scales_ = AppliedScales::none;
    const bool direct = packed_type == PackedType::bf16 && applied_scales_ == AppliedScales::none;
    decoder_ = {.format = from.codes.format, .target = direct ? DType::bf16 : DType::f32};
    if (packed_type == PackedType::i8)
      unit_ = static_cast<float>(decode(from.codes.format, 1u));
    else if (packed_type == PackedType::f16)
      unit_ = static_cast<float>(1.0 / f16_factor(operand));
  }
  decode_ = isa.decode(decoder_);
  if (operand.is_quantized()) scale_decoder_ = scale_decoder(isa, operand.quantized.scales);
  if (packed_type == PackedType::bf16 && applied_scales_ == AppliedScales::tiles &&
      tile_cols_ % 16 == 0 && isa.decode_scaled != nullptr)
    decode_scaled_ = isa.decode_scaled(decoder_);
  const Matrix& elements = operand.elements();
  in_panels_ = side == PanelOf::b && reads_panels(method, operand);
  in_columns_ =
      packed_type == PackedType::f32 && !operand.is_quantized() && !elements.panels.exists() &&
      elements.row_pitch == bytes_of(elements) && elements.col_stride != bytes_of(elements) &&
      reinterpret_cast<std::uintptr_t>(elements.data) % static_cast<unsigned>(bytes_of(elements)) ==
          0 &&
      elements.col_stride % bytes_of(elements) == 0;
  if (!operand.is_quantized() && side == PanelOf::b && method.multiply_values != nullptr &&
      is_contiguous(elements) && !elements.panels.exists())
    multiply_codes_ = method.multiply_values(elements.dtype);
  if (!operand.is_quantized() || method.pack_codes == nullptr) return;
  const bool bytes =
      in_panels_ ? !elements.packed : bytes_of(elements) == 1 && is_contiguous(elements);
  const PackedCodes codes{elements.format, side, !bytes, in_panels_};
  if ((bytes || in_panels_ || in_nibbles()) && packs_scales())
    pack_codes_ = method.pack_codes(codes);
  if (side == PanelOf::b && method.scale_codes && applied_scales_ == AppliedScales::tiles) {
    const Matrix& scales = operand.quantized.scales;
    scale_codes_ = scales.dtype == DType::code && is_contiguous(scales) &&
                   (scales.format == e8m0fnu || scales.format == e4m3fn);
  }
  if (pack_codes_ != nullptr && side == PanelOf::b && method.multiply_codes != nullptr)
    multiply_codes_ = method.multiply_codes(codes);
}

// Can pack_codes_ apply the scales that are to be applied?
bool GemmOperandRows::packs_scales() const {
  const bool in_sixteens = tile_cols_ % 16 == 0;
  switch (method_.packed_type) {
    case PackedType::f32:
      return applied_scales_ == AppliedScales::all &&
             (tile_cols_ == operand_.cols() || in_sixteens);
    case PackedType::bf16:
      return applied_scales_ == AppliedScales::none ||
             (in_sixteens && std::has_single_bit(static_cast<std::uint64_t>(tile_cols_)));
    default:
      return true;
  }
}

bool GemmOperandRows::in_nibbles() const {
  const Matrix& elements = operand_.elements();
  return elements.packed && elements.format.bits() == 4 && !elements.panels.exists();
}

const std::byte* GemmOperandRows::nibbles(std::int64_t row, std::int64_t k) const {
  return element(operand_.elements(), row, k);
}

const float* GemmOperandRows::widened(const void* values, std::int64_t n, float* stage) const {
  switch (operand_.values.dtype) {
    case DType::f32:
      return static_cast<const float*>(values);
    case DType::f64:
      for (std::int64_t i = 0; i < n; ++i)
        stage[i] = static_cast<float>(static_cast<const double*>(values)[i]);
      return stage;
    case DType::bf16:
      widen_bf16(isa_, values, stage, n);
      return stage;
    default:
      decode_(decoder_, values, stage, n);
      return stage;
  }
}

const float* GemmOperandRows::column(std::int64_t first_row, std::int64_t k, std::int64_t n,
                                     float* stage) const {
  return widened(element(operand_.values, first_row, k), n, stage);
}

void GemmOperandRows::load_tile_scales(std::int64_t row, std::int64_t first, std::int64_t n,
                                       float* to) const {
  load_scales(scale_decoder_, operand_.quantized.scales, row, first, n, to);
}

bool GemmOperandRows::scales_change() const {
  return operand_.is_quantized() && applied_scales_ == AppliedScales::none &&
         tile_cols_ < operand_.cols();
}

bool GemmOperandRows::have_one_scale(std::int64_t first_row, std::int64_t count) const {
  const std::int64_t last = first_row + count - 1;
  if (last >= rows()) return false;
  return !operand_.is_quantized() || applied_scales_ == AppliedScales::tiles ||
         first_row / tile_rows_ == last / tile_rows_;
}

float GemmOperandRows::level() const {
  const float* level = operand_.quantized.tensor_scale;
  return level != nullptr ? *level : 1.0F;
}

const std::byte* GemmOperandRows::f32_piece(std::int64_t row, std::int64_t k, std::int64_t n,
                                            std::byte* stage) const {
  alignas(64) std::byte gathered[kMaxKc * 8];
  auto* out = reinterpret_cast<float*>(stage);
  if (!operand_.is_quantized()) {
    const void* values = gather(operand_.values, row, k, n, gathered);
    const float* wide = widened(values, n, out);
    if (wide != out) {
      if (values != gathered) return static_cast<const std::byte*>(values);
      std::memcpy(out, values, static_cast<std::size_t>(n) * sizeof(float));
    }
    return stage;
  }
  const QuantizedMatrix& from = operand_.quantized;
  if (!fits_f32(from.codes.format)) {
    dequantize_piece(isa_, from, row, k, n, out);
    return stage;
  }
  decode_(decoder_, gather(from.codes, row, k, n, gathered), out, n);
  if (applied_scales_ == AppliedScales::none) return stage;
  alignas(64) float scales[kMaxKc];
  const std::int64_t first = k / tile_cols_, last = (k + n - 1) / tile_cols_;
  load_tile_scales(row / tile_rows_, first, last - first + 1, scales);
  const float outer = applied_scales_ == AppliedScales::all ? level() : 1.0F;
  for (std::int64_t done = 0, t = 0; done < n; ++t) {
    const std::int64_t end = std::min(n, (first + t + 1) * tile_cols_ - k);
    scale_values(out + done, end - done, scales[t] * outer);
    done = end;
  }
  return stage;
}

const std::byte* GemmOperandRows::piece(std::int64_t row, std::int64_t k, std::int64_t n,
                                        std::byte* stage) const {
  alignas(64) std::byte gathered[kMaxKc * 4];
  const Matrix& elements = operand_.elements();
  switch (method_.packed_type) {
    case PackedType::f32:
      return f32_piece(row, k, n, stage);
    case PackedType::f16: {
      const std::byte* wide = f32_piece(row, k, n, gathered);
      auto* values = reinterpret_cast<float*>(gathered);
      if (wide != gathered) std::memcpy(values, wide, static_cast<std::size_t>(n) * sizeof(float));
      scale_values(values, n, 1.0F / unit_);
      method_.narrow(values, stage, n);
      return stage;
    }
    case PackedType::bf16: {
      if (decode_scaled_ != nullptr && k % tile_cols_ == 0) {
        alignas(64) float scales[kMaxKc / 16];
        const std::int64_t first = k / tile_cols_, last = (k + n - 1) / tile_cols_;
        load_tile_scales(row / tile_rows_, first, last - first + 1, scales);
        decode_scaled_(decoder_, gather(elements, row, k, n, gathered),
                       reinterpret_cast<std::uint16_t*>(stage), n, scales, tile_cols_);
        return stage;
      }
      if (applied_scales_ == AppliedScales::tiles) {
        take_upper_halves(reinterpret_cast<const float*>(f32_piece(row, k, n, gathered)), n,
                          reinterpret_cast<std::uint16_t*>(stage));
        return stage;
      }
      const void* there = gather(elements, row, k, n, gathered);
      if (operand_.is_quantized()) {
        decode_(decoder_, there, stage, n);
        return stage;
      }
      if (there != gathered) return static_cast<const std::byte*>(there);
      std::memcpy(stage, there, static_cast<std::size_t>(n) * 2);
      return stage;
    }
    default: {
      const auto* codes = static_cast<const std::uint8_t*>(gather(elements, row, k, n, gathered));
      if (elements.format.is_byte_integer()) {  // an integer as it is
        if (reinterpret_cast<const std::byte*>(codes) != gathered)
          return reinterpret_cast<const std::byte*>(codes);
        std::memcpy(stage, codes, static_cast<std::size_t>(n));
        return stage;
      }
      method_.look_up(integers_of(elements.format), codes, n,
                      reinterpret_cast<std::int8_t*>(stage));
      return stage;
    }
  }
}

const std::byte* GemmOperandRows::codes(std::int64_t row, std::int64_t k, std::int64_t n,
                                        std::byte* stage) const {
  return static_cast<const std::byte*>(gather(operand_.quantized.codes, row, k, n, stage));
}

void GemmOperandRows::scales(std::int64_t row, std::int64_t k, std::int64_t run, std::int64_t runs,
                             float* out, std::int64_t pitch) const {
  if (!operand_.is_quantized()) {
    for (std::int64_t i = 0; i < runs; ++i) out[i * pitch] = unit_;
    return;
  }
  const float outer = unit_ * level();
  if (applied_scales_ == AppliedScales::tiles) {
    for (std::int64_t i = 0; i < runs; ++i) out[i * pitch] = outer;
    return;
  }
  const Matrix& stored = operand_.quantized.scales;
  if (tile_cols_ >= operand_.cols() && stored.dtype == DType::f32) {  // one for all of the row
    float scale;
    std::memcpy(&scale, element(stored, row / tile_rows_, 0), sizeof(scale));
    for (std::int64_t i = 0; i < runs; ++i) out[i * pitch] = scale * outer;
    return;
  }
  alignas(64) float found[kMaxKc];
  const std::int64_t last_k = std::min(k + run * runs, operand_.cols()) - 1;
  const std::int64_t first = k / tile_cols_, last = last_k / tile_cols_;
  load_tile_scales(row / tile_rows_, first, last - first + 1, found);
  if (run == tile_cols_ && last - first + 1 == runs) {
    if (pitch == 1) {
      for (std::int64_t i = 0; i < runs; ++i) out[i] = found[i] * outer;
    } else {
      for (std::int64_t i = 0; i < runs; ++i) out[i * pitch] = found[i] * outer;
    }
    return;
  }
  // A tile is a whole number of runs, and there may be runs beyond the edge.
  const std::int64_t per_tile = std::max<std::int64_t>(1, tile_cols_ / run);
  std::int64_t tile = 0, left = per_tile - k / run % per_tile;
  for (std::int64_t i = 0; i < runs; ++i) {
    out[i * pitch] = found[std::min(tile, last - first)] * outer;
    if (--left > 0) continue;
    left = per_tile;
    ++tile;
  }
}

}  // namespace octavo::cpu
