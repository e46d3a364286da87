#include "octavo/backend/cpu/attention/attention_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/attention/attention_codes.h"
#include "octavo/backend/cpu/attention/attention_limbs.h"
#include "octavo/backend/cpu/attention/key_factors.h"
#include "octavo/backend/cpu/attention/power_unit.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kAlign = 64;

template <std::size_t kBytes>
void interleave(const std::byte* const* rows, int count, std::int64_t words, std::byte* panel) {
  for (int r = 0; r < count; ++r)
    for (std::int64_t w = 0; w < words; ++w)
      std::memcpy(panel + (w * count + r) * static_cast<std::int64_t>(kBytes),
                  rows[r] + w * static_cast<std::int64_t>(kBytes), kBytes);
}
// A word is the elements of one K step, which panels of K may have of their own.
using RowsOf = CodedRows::RowsOf;
std::int64_t step_of(const AttentionMethod& method, RowsOf of) {
  return of == RowsOf::keys ? method.score.step_of_a() : method.score.step;
}
void interleave(const AttentionMethod& method, RowsOf of, const std::byte* const* rows, int count,
                std::int64_t words, std::byte* panel) {
  if (of == RowsOf::keys && method.interleave_keys != nullptr)
    return method.interleave_keys(rows, count, words, panel);
  if (method.interleave != nullptr) return method.interleave(rows, count, words, panel);
  if (method.score.step * packed_bytes(method.score_type) == 8)
    return interleave<8>(rows, count, words, panel);
  interleave<4>(rows, count, words, panel);
}

// f32 to bf16 of values that are exact in it, times `inverse`, a power of two.
void to_bf16(const float* values, std::int64_t n, float inverse, std::uint16_t* packed) {
  for (std::int64_t i = 0; i < n; ++i)
    packed[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i] * inverse) >> 16);
}

// The unit that brings a magnitude to at least 1 and below 4.
PowerUnit unit_below(std::uint32_t amax) { return PowerUnit(std::clamp(amax >> 23, 1u, 253u)); }

// Rows before they are interleaved into a panel: f32, bf16, or limbs, the upper ones first.
class PanelRows {
 public:
  explicit PanelRows(const TileLayout& layout) : pitch_(layout.padded_depth * 4 + 64) {}
  bool low = false;  // whether a lower limb is not zero

  // Non-finite rows become zeros; returns whether the row is finite.
  bool take(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& from,
            std::int64_t row, float factor, int at, float& unit) {
    alignas(64) float values[kMaxHeadSize];
    from.row(row, values);
    unit = 0.0F;
    if (!is_finite_row(values, layout.depth)) {
      clear(layout, at);
      return false;
    }
    if (!has_row_units(method.score_type)) {
      auto* to = reinterpret_cast<float*>(row_at(at));
      for (std::int64_t i = 0; i < layout.depth; ++i) to[i] = values[i] * factor;
      return true;
    }
    unit = (method.score_type == PackedType::i8 ? take_limbs(layout, values, at)
                                                : take_bf16(layout, values, at)) *
           from.scale(row) * factor;
    // A scale that is not finite poisons the row as a value would.
    if (amax_bits(&unit, 1) < 0x7F800000u) return true;
    clear(layout, at);
    unit = 0.0F;
    return false;
  }
  void clear(const TileLayout& layout, int at) {
    std::memset(row_at(at), 0, static_cast<std::size_t>(layout.padded_depth) * 4);
  }
  // For f16, `unit` is the unit of the whole panel.
  void into(const AttentionMethod& method, const TileLayout& layout, RowsOf of, int count,
            std::byte* panel, float& unit) {
    const std::byte* at[kMaxPanelRows];
    if (method.score_type == PackedType::f16)
      return into_halves(method, layout, count, panel, unit);
    const std::int64_t words = layout.padded_depth / step_of(method, of);
    for (int r = 0; r < count; ++r) at[r] = row_at(r);
    interleave(method, of, at, count, words, panel);
    if (method.score_type != PackedType::i8) return;
    for (int r = 0; r < count; ++r) at[r] += layout.padded_depth;
    interleave(method, of, at, count, words, panel + layout.padded_depth * count);
  }

 private:
  // Rows are not a power of two apart, which would put them all into a few sets of a cache.
  [[nodiscard]] std::byte* row_at(int at) { return memory_ + at * pitch_; }

  // Both return the unit of the packed elements.
  float take_limbs(const TileLayout& layout, const float* values, int at) {
    auto* hi = reinterpret_cast<std::int8_t*>(row_at(at));
    std::int8_t* const lo = hi + layout.padded_depth;
    const float unit = split_limbs(values, layout.depth, layout.padded_depth, hi, lo);
    std::uint8_t any = 0;
    for (std::int64_t i = 0; i < layout.depth; ++i) any |= static_cast<std::uint8_t>(lo[i]);
    low |= any != 0;
    return unit;
  }
  float take_bf16(const TileLayout& layout, const float* values, int at) {
    auto* to = reinterpret_cast<std::uint16_t*>(row_at(at));
    const PowerUnit unit = unit_below(amax_bits(values, layout.depth));
    to_bf16(values, layout.depth, unit.inverse, to);
    std::fill(to + layout.depth, to + layout.padded_depth, std::uint16_t{0});
    return unit.unit;
  }

  void into_halves(const AttentionMethod& method, const TileLayout& layout, int count,
                   std::byte* panel, float& unit) {
    std::uint32_t amax = 0;
    for (int r = 0; r < count; ++r)
      amax = std::max(amax, amax_bits(reinterpret_cast<const float*>(row_at(r)), layout.depth));
    // The power of two that brings the largest below kMaxPackedScore, 2^4.
    const PowerUnit power(std::clamp(amax >> 23, 4u, 254u) - 3);
    unit = power.unit;
    // f16 rows reuse the first half of the memory of their f32 rows.
    const std::uint16_t* at[kMaxPanelRows];
    for (int r = 0; r < count; ++r) {
      auto* wide = reinterpret_cast<float*>(row_at(r));
      for (std::int64_t d = 0; d < layout.depth; ++d) wide[d] *= power.inverse;
      method.narrow(wide, row_at(r), layout.depth);
      at[r] = reinterpret_cast<const std::uint16_t*>(row_at(r));
    }
    method.interleave_halves(at, count, layout.depth, reinterpret_cast<std::uint16_t*>(panel));
  }

  std::int64_t pitch_;
  alignas(64) std::byte memory_[kMaxPanelRows * (kMaxHeadSize * 4 + 64)];
};

// Copies a row of V to its panels, `group` elements to each. Kernel sizes are constants, because a
// copy of a constant size is an instruction or two.
template <std::size_t kBytes>
void spread(const std::byte* row, std::int64_t groups, std::int64_t panel, std::byte* to) {
  for (std::int64_t g = 0; g < groups; ++g) std::memcpy(to + g * panel, row + g * kBytes, kBytes);
}
void spread(const std::byte* row, std::int64_t groups, std::int64_t bytes, std::int64_t panel,
            std::byte* to) {
  if (bytes == 16) return spread<16>(row, groups, panel, to);
  if (bytes == 32) return spread<32>(row, groups, panel, to);
  for (std::int64_t g = 0; g < groups; ++g)
    std::memcpy(to + g * panel, row + g * bytes, static_cast<std::size_t>(bytes));
}

// A tile of V in bf16, which is exact in units of its largest magnitude, as panels of [step][eight
// channels][keys of the step]. Sizes are constants, so that copies compile to plain stores.
void values_to_bf16(const TileLayout& layout, std::int64_t tile_keys, const float* rows,
                    std::int64_t pitch, float inverse, std::byte* to) {
  for (std::int64_t key = 0; key < tile_keys; key += kBf16Keys) {
    alignas(64) std::uint16_t row[kBf16Keys][kMaxHeadSize];
    for (int k = 0; k < kBf16Keys; ++k)
      to_bf16(rows + (key + k) * pitch, layout.padded_width, inverse, row[k]);
    std::byte* panel = to + key * kBf16Channels * 2;
    for (std::int64_t e = 0; e < layout.padded_width; e += kBf16Channels) {
      std::uint16_t packed[kBf16Channels][kBf16Keys];
      for (int c = 0; c < kBf16Channels; ++c)
        for (int k = 0; k < kBf16Keys; ++k) packed[c][k] = row[k][e + c];
      std::memcpy(panel, packed, sizeof packed);
      panel += layout.value_panel;
    }
  }
}

void pack_values(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& v,
                 std::int64_t first, std::int64_t count, std::byte* memory) {
  alignas(64) float rows[kMaxTileKeys * (kMaxHeadSize + 16)];
  const std::int64_t pitch = layout.padded_width + 16;
  // Scales of rows that the method leaves out: one, that of the tile, or one for each key.
  float scales[kMaxTileKeys];
  v.scales(first, method.takes_key_factors ? count : 1, scales);
  const KeyFactors factors(scales, method.takes_key_factors ? count : 1, method.tile_keys);
  std::uint32_t amax = 0;
  bool nonfinite = false;
  for (std::int64_t key = 0; key < method.tile_keys; ++key) {
    float* row = rows + key * pitch;
    if (key < count) v.row(first + key, row);
    const std::int64_t n = key < count ? layout.width : 0;
    std::fill(row + n, row + layout.padded_width, 0.0F);
    std::uint32_t largest = amax_bits(row, n);
    if (largest >= 0x7F800000u) {
      // Non-finite values are handled one by one (weigh_nonfinite).
      nonfinite = true;
      for (std::int64_t e = 0; e < n; ++e) row[e] = is_finite_row(row + e, 1) ? row[e] : 0.0F;
      largest = amax_bits(row, n);
    }
    if (factors.differ && key < count) {
      nonfinite |= !is_finite_row(scales + key, 1);
      const float power =
          factors.is_zero(key) ? 0.0F : std::ldexp(1.0F, static_cast<int>(factors.exponents[key]));
      for (std::int64_t e = 0; e < n; ++e) row[e] *= power;
      largest = amax_bits(row, n);
    }
    amax = std::max(amax, largest);
  }
  std::byte* const to = memory + layout.values_at;
  const std::int64_t bytes = method.weigh.rows * packed_bytes(method.weigh_type),
                     groups = layout.padded_width / method.weigh.rows;
  float factor = 1.0F;
  if (method.weigh_type == PackedType::bf16) {
    const PowerUnit unit = unit_below(amax);
    // A scale that is not finite is handled by weigh_nonfinite, as values are.
    factor = unit.unit * (factors.differ ? factors.power : scales[0]);
    const bool fine = amax_bits(&factor, 1) < 0x7F800000u;
    nonfinite |= !fine;
    if (!fine) factor = 0.0F;
    if (method.panels != nullptr) {
      method.panels->narrow_values(rows, pitch, method.tile_keys, layout.padded_width, unit.inverse,
                                   layout.value_panel, to);
    } else {
      values_to_bf16(layout, method.tile_keys, rows, pitch, unit.inverse, to);
    }
  } else if (method.weigh_type == PackedType::f16) {
    // The power of two that brings the tile's largest below kMaxPackedValue, 1.75 * 2^1.
    const std::uint32_t exponent = (amax + (1u << 21) - 1) >> 23;
    const PowerUnit unit(std::clamp(exponent, 2u, 254u) - 1);
    factor = unit.unit;
    for (std::int64_t key = 0; key < method.tile_keys; ++key) {
      alignas(64) std::byte narrow[kMaxHeadSize * 2];
      for (std::int64_t e = 0; e < layout.padded_width; ++e) rows[key * pitch + e] *= unit.inverse;
      method.narrow(rows + key * pitch, narrow, layout.padded_width);
      spread(narrow, groups, bytes, layout.value_panel, to + key * bytes);
    }
  } else {
    for (std::int64_t key = 0; key < method.tile_keys; ++key)
      spread(reinterpret_cast<const std::byte*>(rows + key * pitch), groups, bytes,
             layout.value_panel, to + key * bytes);
  }
  set_values(layout, memory, factors, factor, nonfinite);
}

}  // namespace

TileLayout::TileLayout(const AttentionMethod& method, std::int64_t depth_, std::int64_t width_)
    : depth(depth_), width(width_) {
  padded_depth = round_up(std::max<std::int64_t>(depth, 1), method.score.step_of_a());
  padded_width = round_up(std::max<std::int64_t>(width, 1), method.weigh.rows);
  row_bytes_ = padded_depth * (method.score_type == PackedType::f32 ? 4 : 2);  // limbs are two
  key_panel = method.score.rows * row_bytes_;
  value_panel = method.tile_keys * method.weigh.rows * packed_bytes(method.weigh_type);
  values_at = round_up(method.tile_keys / method.score.rows * key_panel, kAlign);
  units_at = values_at + round_up(padded_width / method.weigh.rows * value_panel, kAlign);
  key_factors_at = units_at + method.tile_keys * 4;
  factor_at = key_factors_at + (method.takes_key_factors ? method.tile_keys * 8 : 0);
  marks_at = factor_at + 4;
  bytes = round_up(marks_at + 4, kAlign);
}

std::int64_t TileLayout::query_panel(int cols) const { return round_up(cols * row_bytes_, kAlign); }

PackedTile tile_at(const TileLayout& layout, const std::byte* memory) {
  PackedTile tile{};
  tile.keys = memory;
  tile.values = memory + layout.values_at;
  tile.units = reinterpret_cast<const float*>(memory + layout.units_at);
  std::memcpy(&tile.factor, memory + layout.factor_at, sizeof tile.factor);
  tile.nonfinite_keys = memory[layout.marks_at] != std::byte{0};
  tile.nonfinite_values = memory[layout.marks_at + 1] != std::byte{0};
  tile.low_keys = memory[layout.marks_at + 2] != std::byte{0};
  tile.key_factors = memory[layout.marks_at + 3] != std::byte{0}
                         ? reinterpret_cast<const float*>(memory + layout.key_factors_at)
                         : nullptr;
  return tile;
}

void set_values(const TileLayout& layout, std::byte* memory, const KeyFactors& factors,
                float factor, bool nonfinite) {
  std::memcpy(memory + layout.factor_at, &factor, sizeof factor);
  memory[layout.marks_at + 1] = std::byte{nonfinite};
  memory[layout.marks_at + 3] = std::byte{factors.differ};
  if (!factors.differ) return;
  const auto bytes = static_cast<std::size_t>(layout.factor_at - layout.key_factors_at) / 2;
  std::memcpy(memory + layout.key_factors_at, factors.factors, bytes);
  std::memcpy(memory + layout.key_factors_at + bytes, factors.inverses, bytes);
}

void pack_tile(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& k,
               const CodedRows& coded_k, const AttentionRows& v, const CodedRows& coded_v,
               std::int64_t first, std::int64_t count, std::byte* memory) {
  PanelRows rows(layout);
  auto* units = reinterpret_cast<float*>(memory + layout.units_at);
  bool nonfinite = false;
  const int panel = method.score.rows;
  for (std::int64_t key = 0; key < method.tile_keys; key += panel) {
    std::byte* const to = memory + key / panel * layout.key_panel;
    std::int64_t all[kMaxPanelRows];
    for (int r = 0; r < panel; ++r) all[r] = key + r < count ? first + key + r : -1;
    if (coded_k.by_row() && coded_k.panel(RowsOf::keys, all, panel, 1.0F, to, units + key))
      continue;
    for (int r = 0; r < panel; ++r) {
      if (key + r < count) {
        nonfinite |= !rows.take(method, layout, k, first + key + r, 1.0F, r, units[key + r]);
      } else {
        rows.clear(layout, r);
        units[key + r] = 0.0F;
      }
    }
    rows.into(method, layout, RowsOf::keys, panel, to, units[key]);
  }
  memory[layout.marks_at] = std::byte{nonfinite};
  memory[layout.marks_at + 2] = std::byte{rows.low};
  if (!(coded_v.by_row() || coded_v.by_channel()) ||
      !coded_v.values(layout, method.tile_keys, first, count, memory))
    pack_values(method, layout, v, first, count, memory);
}

bool pack_queries(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& q,
                  const CodedRows& coded_q, const std::int64_t* queries, int cols, float factor,
                  std::byte* panel, float* units, bool* nonfinite) {
  if (coded_q.by_row() && coded_q.panel(RowsOf::queries, queries, cols, factor, panel, units)) {
    std::fill_n(nonfinite, cols, false);
    return false;
  }
  PanelRows rows(layout);
  for (int r = 0; r < cols; ++r) {
    if (queries[r] >= 0) {
      nonfinite[r] = !rows.take(method, layout, q, queries[r], factor, r, units[r]);
      if (method.score_type == PackedType::i8) units[r] *= kLimbFactor;
    } else {
      rows.clear(layout, r);
      units[r] = 0.0F;
      nonfinite[r] = false;
    }
  }
  rows.into(method, layout, RowsOf::queries, cols, panel, units[0]);
  return rows.low;
}

}  // namespace octavo::cpu
