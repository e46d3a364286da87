// MX quantization of f32 to E4M3, rowwise and columnwise copies from one read of a panel. Four rows
// at a time are copied to a buffer whose pitch is no power of two, which would map all rows to the
// same few cache sets, while their amaxes are found; columns are sixteen at a time, from the copy,
// transposed in registers. For sixteen codes each 30 operations, and 11 for amaxes and scales of
// rows, 13 for amaxes and transposing of columns.
#include <cstring>

#include "octavo/backend/cpu/isa/neon/transpose16.h"
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_blocks.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

// Columns per pass, so that the copy, the codes and the next values fit in L1 together.
constexpr std::int64_t kWide = 128, kRowBlocks = kWide / kMxBlock;
constexpr std::int64_t kPitch = kWide + 16;  // of the copy, in values: one cache line more
constexpr std::int64_t kRows = 4;            // whose scales are made together: sixteen blocks
constexpr int kGroupsAtOnce = 4;             // groups of sixteen whose codes are

struct Lanes {
  MxConstants scale;
  E4m3Lanes element;
  uint8x16_t poison;

  explicit Lanes(const MxBlocks& blocks)
      : scale(blocks), element(blocks.format), poison(vdupq_n_u8(blocks.poison_code)) {
    scale.down = 0;  // plain factors: the encoder rebiases to the element itself
  }
};

const float* row_at(const MxPanel& panel, std::int64_t row) {
  return reinterpret_cast<const float*>(static_cast<const std::byte*>(panel.values) +
                                        row * panel.row_pitch);
}

// A row into the copy, with zeros up to the end.
void copy_row(const MxPanel& panel, std::int64_t row, float* to) {
  const auto n = static_cast<std::size_t>(row < panel.rows ? panel.cols : 0);
  if (n > 0) std::memcpy(to, row_at(panel, row), n * sizeof(float));
  std::memset(to + n, 0, (kWide - n) * sizeof(float));
}

// Codes and scales of four whole rows.
template <bool kClamps, typename RowAt, typename Seen, typename CodesAt>
[[gnu::always_inline]] inline void four_rows(const Lanes& k, const RowAt& at, const Seen& seen,
                                             const CodesAt& codes_at, BlockScales<16>& made) {
  sixteen_scales(k.scale, at, seen, 0, made);
  for (int row = 0; row < kRows; ++row) {
    const float* from = at(row);
    std::uint8_t* to = codes_at(row);
    for (std::int64_t b = 0; b < kRowBlocks; b += 2) {
      const std::int64_t block = row * kRowBlocks + b;
      TileLanes tile[kGroupsAtOnce];
      for (int g = 0; g < kGroupsAtOnce; ++g)
        tile[g] = TileLanes(made.factor + block + g / 2, made.poisoned + block + g / 2);
      encode_groups<DType::f32, kClamps, kGroupsAtOnce>(
          k.element, reinterpret_cast<const std::byte*>(from + b * kMxBlock), tile, k.poison,
          to + b * kMxBlock);
    }
  }
}

// Four rows of a panel into the copy, and their codes where they are wanted.
template <bool kClamps>
[[gnu::always_inline]] inline void copy_rows(const Lanes& k, const MxPanel& panel, std::int64_t row,
                                             float* to) {
  const bool wanted = panel.row_codes != nullptr && row < panel.rows;
  const std::int64_t count = panel.rows - row < kRows ? panel.rows - row : kRows;
  BlockScales<16> made;
  if (wanted && count == kRows && panel.cols == kWide) {
    // Prefetches what comes next in each row: pieces are too short for the hardware prefetcher.
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t line = 0; line < kWide; line += 16)
        __builtin_prefetch(row_at(panel, row + r) + kWide + line);
    four_rows<kClamps>(
        k, [&](int r) { return row_at(panel, row + r); },
        [&](int r, int at, float32x4_t values)
            __attribute__((always_inline)) { vst1q_f32(to + r * kPitch + at, values); },
        [&](int r) { return panel.row_codes + (row + r) * panel.row_code_pitch; }, made);
  } else {
    for (std::int64_t r = 0; r < kRows; ++r) copy_row(panel, row + r, to + r * kPitch);
    if (!wanted) return;
    alignas(16) std::uint8_t out[kRows][kWide];
    four_rows<kClamps>(
        k, [&](int r) { return to + r * kPitch; }, NotSeen{}, [&](int r) { return out[r]; }, made);
    for (std::int64_t r = 0; r < count; ++r)
      std::memcpy(panel.row_codes + (row + r) * panel.row_code_pitch, out[r],
                  static_cast<std::size_t>(panel.cols));
  }
  const std::int64_t blocks = (panel.cols + kMxBlock - 1) / kMxBlock;
  for (std::int64_t r = 0; r < count; ++r)
    std::memcpy(panel.row_scales + (row + r) * panel.row_scale_pitch, made.bytes + r * kRowBlocks,
                static_cast<std::size_t>(blocks));
}

// Blocks down sixteen columns of the copy.
template <bool kClamps>
[[gnu::always_inline]] inline void columns16(const Lanes& k, const float* values,
                                             std::uint8_t* codes, std::int64_t code_pitch,
                                             std::uint8_t* scales, std::int64_t scale_pitch,
                                             std::int64_t count) {
  uint32x4_t most[4] = {};
  for (std::int64_t row = 0; row < kMxBlock; ++row)
    for (int i = 0; i < 4; ++i)
      most[i] = vmaxq_u32(
          most[i], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(values + row * kPitch + 4 * i))));
  float32x4_t factor[4];
  uint32x4_t bytes[4], poison[4];
  for (int i = 0; i < 4; ++i) scales_of(k.scale, most[i], factor[i], bytes[i], poison[i]);
  alignas(16) std::uint8_t byte[16];
  vst1q_u8(byte, low_bytes(bytes));
  for (std::int64_t i = 0; i < count; ++i) scales[i * scale_pitch] = byte[i];
  const uint8x16_t poisoned = low_bytes(poison);
  for (std::int64_t part = 0; part < kMxBlock; part += 16) {
    uint8x16_t rows[16];
    for (int r = 0; r < 16; r += kGroupsAtOnce) {
      const float* from = values + (part + r) * kPitch;
      const auto load = [&](int g, uint32x4_t wide[4]) __attribute__((always_inline)) {
        for (int i = 0; i < 4; ++i)
          wide[i] =
              vreinterpretq_u32_f32(vmulq_f32(vld1q_f32(from + g * kPitch + 4 * i), factor[i]));
      };
      codes_of_groups<kClamps, kGroupsAtOnce>(k.element, load, rows + r);
      for (int g = 0; g < kGroupsAtOnce; ++g)
        rows[r + g] = vbslq_u8(poisoned, k.poison, rows[r + g]);
    }
    transpose16(rows);
    for (int c = 0; c < 16; ++c) vst1q_u8(codes + c * code_pitch + part, rows[c]);
  }
}

template <bool kClamps>
[[gnu::always_inline]] inline void panel_part(const Lanes& k, const MxPanel& panel) {
  alignas(64) float copy[kMxBlock * kPitch];
  for (std::int64_t row = 0; row < kMxBlock; row += kRows)
    copy_rows<kClamps>(k, panel, row, copy + row * kPitch);
  for (std::int64_t col = 0; col < panel.cols; col += 16) {
    const std::int64_t count = panel.cols - col < 16 ? panel.cols - col : 16;
    std::uint8_t* scales = panel.scales + col * panel.scale_pitch;
    if (count == 16) {
      columns16<kClamps>(k, copy + col, panel.codes + col * panel.code_pitch, panel.code_pitch,
                         scales, panel.scale_pitch, count);
      continue;
    }
    alignas(16) std::uint8_t out[16 * kMxBlock];
    columns16<kClamps>(k, copy + col, out, kMxBlock, scales, panel.scale_pitch, count);
    for (std::int64_t c = 0; c < count; ++c)
      std::memcpy(panel.codes + (col + c) * panel.code_pitch, out + c * kMxBlock, kMxBlock);
  }
}

template <bool kClamps>
void mx_panel_e4m3(const MxBlocks& blocks, const MxPanel& panel) {
  const FpEnvGuard guard;
  const Lanes k(blocks);
  for (std::int64_t col = 0; col < panel.cols; col += kWide) {
    MxPanel part = panel;
    part.values = row_at(panel, 0) + col;
    part.cols = panel.cols - col < kWide ? panel.cols - col : kWide;
    part.codes += col * panel.code_pitch;
    part.scales += col * panel.scale_pitch;
    if (panel.row_codes != nullptr) {
      part.row_codes += col;
      part.row_scales += col / kMxBlock;
    }
    panel_part<kClamps>(k, part);
  }
}

}  // namespace

MxPanelSpan neon_fp16_mx_panel_e4m3(const MxBlocks& blocks) {
  if (!e4m3_blocks_fit(blocks)) return nullptr;
  return e4m3_blocks_clamp(blocks) ? mx_panel_e4m3<true> : mx_panel_e4m3<false>;
}

}  // namespace octavo::cpu
