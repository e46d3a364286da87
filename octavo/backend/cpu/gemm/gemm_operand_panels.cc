// Panels of an operand: codes of several rows decoded and packed at once, by the kernels of the
// method, from rows or from packed weights.
#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

std::int64_t GemmOperandRows::padded_cols() const {
  return in_panels_ ? PanelOrder::padded_depth(operand_.cols()) : operand_.cols();
}

const std::byte* GemmOperandRows::words(std::int64_t first_row, std::int64_t k) const {
  const Matrix& elements = operand_.elements();
  const std::int64_t at = elements.panels.index(first_row, k, elements.cols);
  return static_cast<const std::byte*>(elements.data) +
         (elements.packed ? at / 2 : at * bytes_of(elements));
}

// Calls use(job) for the codes of `count` rows; false where they cannot be packed at once.
template <typename Use>
bool GemmOperandRows::with_codes(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                                 std::byte* panel, const Use& use) const {
  const std::int64_t run = std::min(tile_cols_, n), runs = (n + run - 1) / run;
  const bool in_runs = method_.packed_type == PackedType::f32 && operand_.is_quantized();
  const bool of_tiles = applied_scales_ == AppliedScales::tiles;
  const bool scaled = in_runs || of_tiles;
  const int word = in_panels_ ? operand_.elements().panels.step : 16;
  if (n % std::max(word, method_.tile.step_of_a()) != 0) return false;
  if (scaled && (run % 16 != 0 || (k % tile_cols_ != 0 && tile_cols_ < operand_.cols())))
    return false;
  // Where a piece ends within a tile, its last run is shorter than kernels take it for.
  if (of_tiles && (n % run != 0 || !std::has_single_bit(static_cast<std::uint64_t>(run))))
    return false;
  // Beyond the edge there is nothing, which any scale leaves so.
  const std::int64_t tiles = (operand_.cols() + tile_cols_ - 1) / tile_cols_,
                     there = std::min(runs, tiles - k / tile_cols_);
  const std::uint8_t *codes[kMaxPanelRows], *scale_codes[kMaxPanelRows];
  alignas(64) float found[kMaxKc / 16 * kMaxPanelRows];
  for (int r = 0; r < count; ++r) {
    if (first_row + r >= rows()) {  // beyond the edge: code 0 of these formats is zero
      alignas(64) static constexpr std::uint8_t kZeros[kMaxKc * sizeof(float)] = {};
      codes[r] = scale_codes[r] = kZeros;
      for (std::int64_t i = 0; in_runs && i < runs; ++i) found[i * count + r] = 0.0F;
      if (of_tiles && !scale_codes_) std::fill_n(found + r * runs, runs, 0.0F);
      continue;
    }
    if (!in_panels_)
      codes[r] =
          reinterpret_cast<const std::uint8_t*>(element(operand_.elements(), first_row + r, k));
    if (in_runs) scales(first_row + r, k, run, runs, found + r, count);
    if (!of_tiles) continue;
    if (scale_codes_) {
      const std::byte* const at =
          element(operand_.quantized.scales, (first_row + r) / tile_rows_, k / tile_cols_);
      scale_codes[r] = reinterpret_cast<const std::uint8_t*>(at);
      continue;
    }
    load_tile_scales((first_row + r) / tile_rows_, k / tile_cols_, there, found + r * runs);
    std::fill_n(found + r * runs + there, runs - there, 0.0F);
  }
  const std::byte* const in_order = in_panels_ ? words(first_row, k) : nullptr;
  use(PackJob{.rows = codes,
              .words = reinterpret_cast<const std::uint8_t*>(in_order),
              .count = count,
              .n = n,
              .run = run,
              .scales = scaled && !scale_codes_ ? found : nullptr,
              .scale_codes = scale_codes_ ? scale_codes : nullptr,
              .scales_there = there,
              .powers = scaled && operand_.quantized.scales.format == e8m0fnu,
              .factor = 1.0F / unit_,
              .panel = panel,
              .format = &decoder_.format});
  return true;
}

bool GemmOperandRows::multiply(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                               const MicrokernelJob& job) const {
  return multiply_codes_ != nullptr && k + n <= padded_cols() &&
         (job.scales_at_end || job.run % method_.multiply_run == 0) &&
         with_codes(first_row, count, k, n, nullptr,
                    [&](const PackJob& codes) { multiply_codes_(codes, job); });
}

bool GemmOperandRows::pack(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                           std::byte* panel) const {
  if (pack_codes_ != nullptr)
    return with_codes(first_row, count, k, n, panel,
                      [&](const PackJob& job) { pack_codes_(decoder_.format, job); });
  if (!in_columns_) return false;
  auto* to = reinterpret_cast<float*>(panel);
  const std::int64_t there = std::min<std::int64_t>(count, rows() - first_row);
  if (there <= 0) {
    std::memset(panel, 0, static_cast<std::size_t>(n * count) * sizeof(float));
    return true;
  }
  for (std::int64_t i = 0; i < n; ++i, to += count) {
    const float* values = column(first_row, k + i, there, to);
    if (values != to) std::memcpy(to, values, static_cast<std::size_t>(there) * sizeof(float));
    for (std::int64_t r = there; r < count; ++r) to[r] = 0.0F;
  }
  return true;
}

const std::byte* GemmOperandRows::panel_in_place(std::int64_t first_row, std::int64_t k,
                                                 std::int64_t n) const {
  const bool as_it_is = !operand_.is_quantized() || operand_.elements().format.is_byte_integer();
  return in_panels_ && as_it_is && k + n <= padded_cols() ? words(first_row, k) : nullptr;
}

void GemmOperandRows::prefetch(std::int64_t first_row, std::int64_t k) const {
  constexpr std::int64_t kBytes = 2048, kLine = 64;
  if (!in_panels_) return;
  const std::byte* const from = words(first_row, k);
  for (std::int64_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(from + at);
}

bool GemmOperandRows::unpack(std::int64_t first_row, int count, std::int64_t k, std::int64_t wanted,
                             std::byte* panel) const {
  const Matrix& elements = operand_.elements();
  const std::int64_t n = std::min(wanted, padded_cols() - k),
                     bytes = packed_bytes(method_.packed_type);
  const auto size = static_cast<std::size_t>(n * count * bytes);
  if (pack_codes_ != nullptr) {
    const bool done = with_codes(first_row, count, k, n, panel,
                                 [&](const PackJob& job) { pack_codes_(decoder_.format, job); });
    if (!done) return false;
  } else if (const std::byte* there = panel_in_place(first_row, k, n)) {
    std::memcpy(panel, there, size);
  } else if (method_.packed_type == PackedType::i8) {
    method_.look_up(integers_of(elements.format),
                    reinterpret_cast<const std::uint8_t*>(words(first_row, k)), n * count,
                    reinterpret_cast<std::int8_t*>(panel));
  } else {
    return false;
  }
  std::memset(panel + size, 0, static_cast<std::size_t>((wanted - n) * count * bytes));
  return true;
}

}  // namespace octavo::cpu
