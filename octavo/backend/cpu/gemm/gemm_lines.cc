// Blocks of few rows by rows of B as they are in memory, lines of matrix tiles
// (GemmMethod::multiply_lines): each is decoded, multiplied once, and forgotten.
#include <algorithm>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {
namespace {

// Products between scales that are applied to sums, or all of K.
std::int64_t run_of(const GemmCall& call) {
  const bool changes = !call.blocking.scaled && (call.a.scales_change() || call.b.scales_change());
  return changes ? call.blocking.run : call.job.a.cols();
}

}  // namespace

void pack_lines_a(const GemmCall& call, std::int64_t piece, const GemmScratch& scratch) {
  const GemmMethod& method = *call.blocking.method;
  const std::int64_t depth = call.job.a.cols(), k = piece * kLinePieceK,
                     n = std::min(kLinePieceK, depth - k), run = run_of(call);
  pack_panel(method, PanelOf::b, call.a, 0, kLineRows, k, n, n, scratch.stage,
             call.packed_a.panels + k * kLineRows * packed_bytes(method.packed_type));
  if (piece == 0 && !call.blocking.scaled)
    pack_all_scales(call.a, 0, kLineRows, run, blocks(depth, run), call.packed_a.scales);
}

void lines_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const GemmOperand& b = call.job.b;
  const Matrix &elements = b.elements(), &scales = b.quantized.scales;
  const bool of_tiles = c.applied_scales == AppliedScales::tiles && scales_change(b);
  const std::int64_t depth = call.job.a.cols(), run = run_of(call),
                     pitch = round_up(block.cols, kLineCols),
                     tile_rows = of_tiles ? tile_extent(b.quantized.tile.rows, b.rows()) : 1;
  if (c.method->enter != nullptr) c.method->enter();
  for (std::int64_t col = 0; col < pitch; col += kLineCols) {
    const std::byte* columns[kLineCols];
    const std::uint8_t* scale_codes[kLineCols];
    const std::int64_t first = block.col + col;
    for (int i = 0; i < kLineCols; ++i) {
      const std::int64_t row = std::min(first + i, b.rows() - 1);
      columns[i] = element(elements, row, 0);
      if (of_tiles)
        scale_codes[i] = reinterpret_cast<const std::uint8_t*>(element(scales, row / tile_rows, 0));
    }
    if (!c.scaled)
      pack_all_scales(call.b, first, kLineCols, run, blocks(depth, run), scratch.b_scales);
    c.lines({.a = call.packed_a.panels,
             .columns = columns,
             .columns_there = static_cast<int>(std::min<std::int64_t>(kLineCols, b.rows() - first)),
             .scale_codes = of_tiles ? scale_codes : nullptr,
             .row_pitch = elements.row_pitch,
             .scale_pitch = of_tiles ? scales.row_pitch : 0,
             .tile = of_tiles ? b.quantized.tile.cols : depth,
             .depth = depth,
             .run = run,
             .a_scale = c.scaled ? nullptr : call.packed_a.scales,
             .b_scale = c.scaled ? nullptr : scratch.b_scales,
             .sums = scratch.sums + col,
             .pitch = pitch,
             .rows = static_cast<int>(block.rows)});
  }
  if (c.method->leave != nullptr) c.method->leave();
  for (std::int64_t row = 0; row < block.rows; ++row)
    call.epilogue(block.row + row, block.col, block.cols, scratch.sums + row * pitch);
}

}  // namespace octavo::cpu
