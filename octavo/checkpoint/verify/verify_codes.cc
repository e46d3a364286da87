// Rules on code values: NaN codes, integers out of range, and zero scales over nonzero codes. Codes
// are read in windows of one megabyte, for a model of any size.
#include <algorithm>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
constexpr std::uint64_t kWindow = 1U << 20;

// Counts non-finite codes: without the sign bit they are the largest. A branch-free loop, for
// auto-vectorization.
std::uint64_t count_above(std::span<const std::byte> codes, unsigned last_finite) {
  std::uint64_t count = 0;
  for (const std::byte code : codes)
    count += (std::to_integer<unsigned>(code) & 0x7FU) > last_finite ? 1U : 0U;
  return count;
}

struct NotFinite {
  std::uint64_t count = 0, first = 0;
};

NotFinite look_at(const CheckpointReader& checkpoint, const StoredTensor& tensor,
                  unsigned last_finite, std::vector<std::byte>& window) {
  NotFinite out;
  const std::uint64_t all = tensor.nbytes();
  window.resize(std::min(all, kWindow));
  for (std::uint64_t at = 0; at < all; at += window.size()) {
    const auto piece = std::span(window).first(std::min<std::uint64_t>(window.size(), all - at));
    checkpoint.read(tensor, at, piece);
    const std::uint64_t count = count_above(piece, last_finite);
    if (count > 0 && out.count == 0)
      out.first =
          at + static_cast<std::uint64_t>(std::find_if(piece.begin(), piece.end(),
                                                       [&](std::byte code) {
                                                         return (std::to_integer<unsigned>(code) &
                                                                 0x7FU) > last_finite;
                                                       }) -
                                          piece.begin());
    out.count += count;
  }
  return out;
}

// Does an FP8, integer or NVFP4 tile have a nonzero code?
bool has_codes(const VerifyView& view, const VerifiedWeight& weight, std::size_t tile_index) {
  const QuantizedWeight& of = weight.found->weight;
  const StoredTensor& stored = view.checkpoint.at(weight.codes->plan.name);
  const Extent extent = extent_of(of);
  const Tile tile = of.scaling.tile;
  const std::int64_t high = tile_extent(tile.rows, extent.matrix_rows),
                     wide = tile_extent(tile.cols, extent.cols),
                     down = tile_count(tile.rows, extent.matrix_rows),
                     across = tile_count(tile.cols, extent.cols);
  const auto index = static_cast<std::int64_t>(tile_index);
  const std::int64_t first_row =
      index / across / down * extent.matrix_rows + index / across % down * high;
  const std::int64_t end_row =
      std::min(first_row + high, (index / across / down + 1) * extent.matrix_rows);
  const std::int64_t first_col = index % across * wide;
  const std::int64_t in_byte = of.scaling.format.bits() == 4 ? 2 : 1;  // tiles are whole bytes
  // Of integers 0x80 is -128, not a zero; zeros of INT4 are stored as 8.
  const bool integers = of.scaling.format.twos_complement;
  const std::byte magnitudes{static_cast<unsigned char>(integers       ? 0xFF
                                                        : in_byte == 2 ? 0x77
                                                                       : 0x7F)};
  const std::byte zeros{static_cast<unsigned char>(weight.codes->plus_eight ? 0x88 : 0)};
  std::vector<std::byte> row(
      static_cast<std::size_t>(std::min(wide, extent.cols - first_col) / in_byte));
  for (std::int64_t r = first_row; r < end_row; ++r) {
    view.checkpoint.read(stored,
                         static_cast<std::uint64_t>((r * extent.cols + first_col) / in_byte), row);
    if (std::any_of(row.begin(), row.end(),
                    [&](std::byte code) { return ((code ^ zeros) & magnitudes) != std::byte{0}; }))
      return true;
  }
  return false;
}

// Integers of fewer bits than eight are stored as I8, too: those that such a declaration does not
// reach are damage.
void check_declared_range(const VerifyView& view, const VerifiedWeight& weight,
                          std::vector<std::byte>& window, Findings& out) {
  const Json& declared = view.groups.of(weight.found->weight.module)["weights"]["num_bits"];
  const std::int64_t bits = declared.integer_or(8);
  if (bits < 1 || bits >= 8) return;
  const int low = -(1 << (bits - 1)), high = -low - 1;
  const StoredTensor& stored = view.checkpoint.at(weight.codes->plan.name);
  const auto is_outside = [&](std::byte code) {
    const int value = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(code));
    return value < low || value > high;
  };
  NotFinite found;
  const std::uint64_t all = stored.nbytes();
  window.resize(std::min(all, kWindow));
  for (std::uint64_t at = 0; at < all; at += window.size()) {
    const auto piece = std::span(window).first(std::min<std::uint64_t>(window.size(), all - at));
    view.checkpoint.read(stored, at, piece);
    const auto first = std::find_if(piece.begin(), piece.end(), is_outside);
    if (first == piece.end()) continue;
    if (found.count == 0) found.first = at + static_cast<std::uint64_t>(first - piece.begin());
    found.count += static_cast<std::uint64_t>(std::count_if(first, piece.end(), is_outside));
  }
  if (found.count == 0) return;
  const auto cols = static_cast<std::uint64_t>(stored.entry->shape.back());
  out.error({kV, kH, kS, kT}, weight.codes->plan.name,
            text(counted(static_cast<std::int64_t>(found.count), "code"),
                 found.count == 1 ? " is" : " are", " beyond the ", bits,
                 " bits that config.json declares (", low, " to ", high, "), the first in row ",
                 found.first / cols, ", column ", found.first % cols));
}

}  // namespace

void check_codes(const VerifyView& view, Findings& out) {
  if (!view.options.codes || !view.options.every_byte) return;
  std::vector<std::byte> window;
  for (const VerifiedWeight& weight : view.weights) {
    const StoredType type = weight.codes->plan.type;
    if (weight.found->weight.scaling.format == int8)
      check_declared_range(view, weight, window, out);
    if (type != StoredType::f8_e4m3 && type != StoredType::f8_e5m2) continue;
    const StoredTensor& stored = view.checkpoint.at(weight.codes->plan.name);
    const NotFinite found =
        look_at(view.checkpoint, stored, type == StoredType::f8_e4m3 ? 0x7EU : 0x7BU, window);
    if (found.count == 0) continue;
    const auto cols = static_cast<std::uint64_t>(stored.entry->shape.back());
    out.error({kV, kH, kS, kT}, weight.codes->plan.name,
              text(counted(static_cast<std::int64_t>(found.count), "code"),
                   found.count == 1 ? " is NaN" : " are NaN",
                   type == StoredType::f8_e5m2 ? " or Inf" : "", ", the first in row ",
                   found.first / cols, ", column ", found.first % cols));
  }
}

void check_zero_scales(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    // The smallest E8M0 scale is not zero, and a tile may really be that small. ComfyUI's scales
    // are swizzled, not in tile order.
    const bool four = weight.scheme == Scheme::nvfp4 && !weight.scales->swizzled &&
                      extent_of(weight.found->weight).cols % 16 == 0;
    if (!weight.scheme || !(has_float_scales(*weight.scheme) || four)) continue;
    std::int64_t zeros = 0;
    for (const auto& [scale, count] : scale_counts(view, weight))
      zeros += scale == 0.0F ? count : 0;
    if (zeros == 0) continue;
    if (!view.options.codes && four) continue;  // a tile far below the others underflows to it, too
    if (!view.options.codes) {
      out.warn(
          {kV, kH, kS, kT}, weight.scales->plan.name,
          text(counted(zeros, "scale"), zeros == 1 ? " is" : " are", " zero; codes were not read"));
      continue;
    }
    const std::vector<float> scales = scale_numbers(view, weight);
    for (std::size_t i = 0; i < scales.size(); ++i)
      if (scales[i] == 0.0F && has_codes(view, weight, i)) {
        out.error({kV, kH, kS, kT}, weight.scales->plan.name,
                  text(counted(zeros, "scale"), zeros == 1 ? " is" : " are",
                       " zero, the first over codes that are not at index ", i,
                       ": those weights are lost"));
        break;
      }
  }
}

}  // namespace octavo
