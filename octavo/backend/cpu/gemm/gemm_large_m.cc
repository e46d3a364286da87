// Blocks of large M: operands are packed into panels, and the microkernel multiplies those.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {
namespace {

// A block of K: n products from k on, padded to whole runs of whole steps.
struct KBlock {
  std::int64_t k, n, run, runs, padded;
};
KBlock k_block(const GemmBlocking& c, std::int64_t depth, std::int64_t k) {
  const std::int64_t n = std::min(c.kc, depth - k);
  const std::int64_t steps = round_up(n, c.method->tile.step_of_a());
  const std::int64_t run = c.scaled ? steps : std::min(c.run, steps);
  const std::int64_t runs = blocks(n, run);
  return {k, n, run, runs, run * runs};
}

void pack_b(const GemmCall& call, const GemmBlock& block, const KBlock& at,
            const GemmScratch& scratch) {
  const GemmMethod& method = *call.blocking.method;
  const int cols = method.tile.cols;
  const std::int64_t bytes = packed_bytes(method.packed_type);
  for (std::int64_t col = 0; col < block.cols; col += cols) {
    pack_panel(method, PanelOf::b, call.b, block.col + col, cols, at.k, at.n, at.padded,
               scratch.stage, scratch.b_packed + col * at.padded * bytes);
    if (!call.blocking.scaled)
      pack_scales(call.b, block.col + col, cols, at.k, at.run, at.runs,
                  scratch.b_scales + col * at.runs);
  }
}

// The panels of `tile.rows` rows by all packed columns of the block.
void multiply_panels(const GemmCall& call, const KBlock& at, const GemmScratch& scratch,
                     const std::byte* a, const float* a_scales, std::int64_t padded_cols,
                     float* sums, bool overwrites) {
  const GemmBlocking& c = call.blocking;
  const Microkernel& tile = c.method->tile;
  const std::int64_t bytes = packed_bytes(c.method->packed_type);
  for (std::int64_t col = 0; col < padded_cols; col += tile.cols)
    tile.run({.a = a,
              .b = scratch.b_packed + col * at.padded * bytes,
              .run = at.run,
              .runs = at.runs,
              .a_scale = c.scaled ? nullptr : a_scales,
              .b_scale = c.scaled ? nullptr : scratch.b_scales + col * at.runs,
              .sums = sums + col,
              .pitch = padded_cols,
              .overwrites = overwrites});
}

// Where the panel of A of `row` and a block of K is, and its scales.
struct PanelOfA {
  std::byte* panel;
  float* scales;
};
PanelOfA panel_of_a(const GemmCall& call, const KBlock& at, std::int64_t row) {
  const GemmBlocking& c = call.blocking;
  const PackedA& packed = call.packed_a;
  // Blocks of K before this one are whole.
  const std::int64_t bytes = packed_bytes(c.method->packed_type);
  const std::int64_t runs_before = c.scaled ? 0 : at.k / c.run;
  return {packed.panels + (at.k * packed.rows + row * at.padded) * bytes,
          packed.scales + runs_before * packed.rows + row * at.runs};
}

}  // namespace

void packed_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const GemmMethod& method = *c.method;
  const Microkernel& tile = method.tile;
  const std::int64_t depth = call.job.a.cols(), padded_rows = round_up(block.rows, tile.rows),
                     padded_cols = round_up(block.cols, tile.cols);
  std::memset(scratch.sums, 0, static_cast<std::size_t>(padded_rows * padded_cols) * sizeof(float));
  if (method.enter != nullptr) method.enter();
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const KBlock at = k_block(c, depth, k);
    pack_b(call, block, at, scratch);
    for (std::int64_t row = 0; row < padded_rows; row += tile.rows) {
      pack_panel(method, PanelOf::a, call.a, block.row + row, tile.rows, k, at.n, at.padded,
                 scratch.stage, scratch.a_packed);
      if (!c.scaled)
        pack_scales(call.a, block.row + row, tile.rows, k, at.run, at.runs, scratch.a_scales);
      multiply_panels(call, at, scratch, scratch.a_packed, scratch.a_scales, padded_cols,
                      scratch.sums + row * padded_cols, false);
    }
  }
  if (method.leave != nullptr) method.leave();
  for (std::int64_t row = 0; row < block.rows; ++row)
    call.epilogue(block.row + row, block.col, block.cols, scratch.sums + row * padded_cols);
}

void pack_a(const GemmCall& call, std::int64_t first_panel, std::int64_t last_panel,
            const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const int rows = c.method->tile.rows;
  const std::int64_t depth = call.job.a.cols();
  for (std::int64_t row = first_panel * rows; row < last_panel * rows; row += rows)
    for (std::int64_t k = 0; k < depth; k += c.kc) {
      const KBlock at = k_block(c, depth, k);
      const PanelOfA to = panel_of_a(call, at, row);
      pack_panel(*c.method, PanelOf::a, call.a, row, rows, k, at.n, at.padded, scratch.stage,
                 to.panel);
      if (!c.scaled) pack_scales(call.a, row, rows, k, at.run, at.runs, to.scales);
    }
}

// Panels of B stay in L2 while all panels of A pass. With one block of K the sums are those of one
// panel of A, and its epilogue finds them in L1.
void packed_a_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const int tile_rows = c.method->tile.rows;
  const std::int64_t depth = call.job.a.cols(),
                     padded_cols = round_up(block.cols, c.method->tile.cols);
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const KBlock at = k_block(c, depth, k);
    pack_b(call, block, at, scratch);
    const bool last = k + c.kc >= depth;
    for (std::int64_t row = 0; row < block.rows; row += tile_rows) {
      const PanelOfA a = panel_of_a(call, at, block.row + row);
      float* const sums = scratch.sums + (c.one_k_block ? 0 : row * padded_cols);
      multiply_panels(call, at, scratch, a.panel, a.scales, padded_cols, sums, k == 0);
      if (!last) continue;
      const std::int64_t rows = std::min<std::int64_t>(tile_rows, block.rows - row);
      for (std::int64_t i = 0; i < rows; ++i)
        call.epilogue(block.row + row + i, block.col, block.cols, sums + i * padded_cols);
    }
  }
}

// All of K at once (GemmBlocking::whole_k). Scales that do not change along K are applied once,
// after the sums; others after each run.
void whole_k_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const auto& [c, job, a, b, epilogue, packed_a] = call;
  const GemmMethod& method = *c.method;
  const Microkernel& tile = method.tile;
  const std::int64_t packed_size = packed_bytes(method.packed_type), depth = job.a.cols();
  const std::int64_t padded_cols = round_up(block.cols, tile.cols);
  const bool changes = !c.scaled && (a.scales_change() || b.scales_change());
  const std::int64_t run =
      changes ? c.run : round_up(std::max<std::int64_t>(1, depth), tile.step_of_a());
  const std::int64_t runs = blocks(depth, run), padded_depth = run * runs;
  const auto pack = [&](PanelOf side, const GemmOperandRows& rows, std::int64_t first, int count,
                        std::byte* panel) {
    for (std::int64_t k = 0; k < padded_depth; k += kMaxKc) {
      const std::int64_t wanted = std::min(kMaxKc, padded_depth - k),
                         n = std::min(wanted, depth - k);
      pack_panel(method, side, rows, first, count, k, std::max<std::int64_t>(n, 0), wanted,
                 scratch.stage, panel + k * count * packed_size);
    }
  };
  const auto scales = [&](const GemmOperandRows& rows, std::int64_t first, int count, float* to) {
    const std::int64_t some = std::max<std::int64_t>(1, kMaxKc / run);
    for (std::int64_t r = 0; r < runs; r += some)
      pack_scales(rows, first, count, r * run, run, std::min(some, runs - r), to + r * count);
  };
  for (std::int64_t col = 0; col < padded_cols; col += tile.cols) {
    pack(PanelOf::b, b, block.col + col, tile.cols,
         scratch.b_packed + col * padded_depth * packed_size);
    if (!c.scaled) scales(b, block.col + col, tile.cols, scratch.b_scales + col * runs);
  }
  if (method.enter != nullptr) method.enter();
  for (std::int64_t row = 0; row < block.rows; row += tile.rows) {
    const std::int64_t rows = std::min<std::int64_t>(tile.rows, block.rows - row);
    // Whole rows of the panels' own type need not be packed.
    const bool direct = rows == tile.rows && padded_depth == depth && depth > 0 &&
                        job.a.values.row_pitch != 0 && a.is_packed_type();
    if (!direct) pack(PanelOf::a, a, block.row + row, tile.rows, scratch.a_packed);
    if (!c.scaled) scales(a, block.row + row, tile.rows, scratch.a_scales);
    std::memset(scratch.sums, 0, static_cast<std::size_t>(tile.rows * padded_cols) * sizeof(float));
    for (std::int64_t col = 0; col < padded_cols; col += tile.cols)
      tile.run({.a = direct ? element(job.a.values, block.row + row, 0) : scratch.a_packed,
                .b = scratch.b_packed + col * padded_depth * packed_size,
                .run = run,
                .runs = runs,
                .a_scale = c.scaled ? nullptr : scratch.a_scales,
                .b_scale = c.scaled ? nullptr : scratch.b_scales + col * runs,
                .sums = scratch.sums + col,
                .pitch = padded_cols,
                .a_pitch = direct ? job.a.values.row_pitch : 0});
    for (std::int64_t i = 0; i < rows; ++i)
      epilogue(block.row + row + i, block.col, block.cols, scratch.sums + i * padded_cols);
  }
  if (method.leave != nullptr) method.leave();
}

}  // namespace octavo::cpu
