// MX quantization of bf16, rowwise and columnwise copies from one read of a panel. The first read
// stages magnitudes and signs in L1, where codes of both copies are made from them; columns are
// sixteen at a time, transposed in registers: 17 operations for sixteen codes, and 6 for amaxes and
// transposing.
#include "octavo/backend/cpu/isa/neon/transpose16.h"
#include "octavo/backend/cpu/isa/neon_fp16/mx_batch.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

// The pitch keeps the lines of consecutive rows in different cache sets.
constexpr std::int64_t kPitch = kMxPanelCols + 32;

struct PanelLanes {
  alignas(64) std::uint16_t lanes[kMxBlock * kPitch];
  alignas(64) std::uint8_t tops[kMxBlock * kPitch];

  [[nodiscard]] BatchLanes at(std::int64_t row, std::int64_t col) {
    return {lanes + row * kPitch + col, tops + row * kPitch + col};
  }
};

// A row; blocks cut short by the edge are filled up with zeros.
template <typename Element>
[[gnu::always_inline]] inline void panel_row(const MxConstants& k, const MxPanel& panel,
                                             std::int64_t row, PanelLanes& staged) {
  const auto* from = static_cast<const std::byte*>(panel.values) + row * panel.row_pitch;
  std::uint8_t *codes = panel.row_codes, *scales = panel.row_scales;
  const bool wanted = codes != nullptr;
  if (wanted) {
    codes += row * panel.row_code_pitch;
    scales += row * panel.row_scale_pitch;
  }
  const auto some_blocks = [&](const std::byte* values, std::int64_t col, std::int64_t blocks,
                               std::uint8_t* to) __attribute__((always_inline)) {
    const BatchLanes batch = staged.at(row, col);
    const uint16x8_t amax = stage_batch(values, blocks, batch);
    if (wanted) finish_batch<Element>(k, batch, amax, blocks, to, scales + col / kMxBlock);
  };
  std::int64_t col = 0;
  for (; col + kBatchSize <= panel.cols; col += kBatchSize) {
    const std::byte* values = from + col * kBfloatBytes;
    // Prefetches the next panel to the right: pieces of rows are too short for the hardware
    // prefetcher.
    for (std::int64_t line = 0; line < kBatchSize * kBfloatBytes; line += 64)
      __builtin_prefetch(values + kMxPanelCols * kBfloatBytes + line);
    some_blocks(values, col, kBatch, codes + col);
  }
  const std::int64_t whole = (panel.cols - col) / kMxBlock;
  if (whole > 0) some_blocks(from + col * kBfloatBytes, col, whole, codes + col);
  col += whole * kMxBlock;
  if (col < panel.cols) {
    const auto rest = static_cast<std::size_t>(panel.cols - col);
    alignas(16) std::byte filled[kMxBlock * kBfloatBytes] = {};
    alignas(16) std::uint8_t out[kMxBlock];
    std::memcpy(filled, from + col * kBfloatBytes, rest * kBfloatBytes);
    some_blocks(filled, col, 1, out);
    if (wanted) std::memcpy(codes + col, out, rest);
  }
}

// Blocks down sixteen columns.
template <typename Element>
[[gnu::always_inline]] inline void columns16(const MxConstants& k, const BatchLanes& top,
                                             std::uint8_t* codes, std::int64_t code_pitch,
                                             uint8x16_t& stored) {
  const auto group_of = [&](std::int64_t row) __attribute__((always_inline)) {
    return top.group(row * kPitch);
  };
  uint16x8_t most[4] = {};
  for (std::int64_t row = 0; row < kMxBlock; row += 2) {
    for (int i = 0; i < 4; ++i)
      most[i] = vmaxq_u16(most[i], vld1q_u16(top.lanes + (row + i / 2) * kPitch + 8 * (i % 2)));
  }
  uint8x8_t bytes[2];
  MxScales scales[8];
  for (int i = 0; i < 2; ++i) scales[i] = scales_of(k, vmaxq_u16(most[i], most[i + 2]), bytes[i]);
  stored = vcombine_u8(bytes[0], bytes[1]);
  scales[0].sign = vreinterpretq_u16_u8(
      vuzp1q_u8(vreinterpretq_u8_u16(scales[0].sign), vreinterpretq_u8_u16(scales[1].sign)));
  for (int i = 2; i < 8; ++i) scales[i] = scales[i % 2];
  for (std::int64_t part = 0; part < kMxBlock; part += 16) {
    uint8x16_t rows[16];
    for (int r = 0; r < 16; r += 4) {
      MxGroup groups[4];
      for (int g = 0; g < 4; ++g) groups[g] = group_of(part + r + g);
      mx_codes<Element, 4>(k, groups, scales, rows + r);
    }
    transpose16(rows);
    for (int c = 0; c < 16; ++c) vst1q_u8(codes + c * code_pitch + part, rows[c]);
  }
}

template <typename Element>
void mx_panel(const MxBlocks& blocks, const MxPanel& panel) {
  const FpEnvGuard guard(FpRounding::up);
  const MxConstants k(blocks);
  PanelLanes staged;
  for (std::int64_t row = 0; row < panel.rows; ++row) panel_row<Element>(k, panel, row, staged);
  for (std::int64_t row = panel.rows; row < kMxBlock; ++row) {
    std::memset(staged.at(row, 0).lanes, 0, kMxPanelCols * sizeof(std::uint16_t));
    std::memset(staged.at(row, 0).tops, 0, kMxPanelCols);
  }
  for (std::int64_t col = 0; col < panel.cols; col += 16) {
    const std::int64_t count = panel.cols - col < 16 ? panel.cols - col : 16;
    alignas(16) std::uint8_t out[16 * kMxBlock], bytes[16];
    uint8x16_t stored;
    if (count == 16) {
      columns16<Element>(k, staged.at(0, col), panel.codes + col * panel.code_pitch,
                         panel.code_pitch, stored);
    } else {
      columns16<Element>(k, staged.at(0, col), out, kMxBlock, stored);
      for (std::int64_t c = 0; c < count; ++c)
        std::memcpy(panel.codes + (col + c) * panel.code_pitch, out + c * kMxBlock, kMxBlock);
    }
    vst1q_u8(bytes, stored);
    for (std::int64_t c = 0; c < count; ++c) panel.scales[(col + c) * panel.scale_pitch] = bytes[c];
  }
}

}  // namespace

MxPanelSpan neon_fp16_mx_panel(const MxBlocks& blocks) {
  if (!mx_lanes_fit(blocks)) return nullptr;
  return visit_mx_element(
      blocks, []<typename Element>(Element) -> MxPanelSpan { return mx_panel<Element>; });
}

}  // namespace octavo::cpu
