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

// Where sums of a row panel are, and the distance of its rows.
struct PanelSums {
  float* at;
  std::int64_t pitch;
};
// The panels of `tile.rows` rows by all packed columns of the block.
void multiply_panels(const GemmCall& call, const KBlock& at, const GemmScratch& scratch,
                     const std::byte* a, const float* a_scales, std::int64_t padded_cols,
                     const PanelSums& sums, bool overwrites) {
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
              .sums = sums.at + col,
              .pitch = sums.pitch,
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
  const std::int64_t bytes = packed_bytes(c.method->packed_type), index = row - packed.first_row;
  const std::int64_t runs_before = c.scaled ? 0 : at.k / c.run;
  return {packed.panels + (at.k * packed.rows + index * at.padded) * bytes,
          packed.scales + runs_before * packed.rows + index * at.runs};
}

// All of K as one block (GemmBlocking::whole_k). Scales that do not change along K are one run.
KBlock whole_k(const GemmCall& call) {
  const GemmBlocking& c = call.blocking;
  const std::int64_t depth = call.job.a.cols();
  const bool changes = !c.scaled && (call.a.scales_change() || call.b.scales_change());
  const std::int64_t run =
      changes ? c.run : round_up(std::max<std::int64_t>(1, depth), c.method->tile.step_of_a());
  const std::int64_t runs = blocks(depth, run);
  return {0, depth, run, runs, run * runs};
}

// Elements from `k` on for `count` rows, kMaxKc at a time.
void pack_depth(const GemmCall& call, PanelOf side, std::int64_t first, std::int64_t k,
                std::int64_t padded, const GemmScratch& scratch, std::byte* panel) {
  const GemmMethod& method = *call.blocking.method;
  const GemmOperandRows& rows = side == PanelOf::a ? call.a : call.b;
  const int count = side == PanelOf::a ? method.tile.rows : method.tile.cols;
  const std::int64_t bytes = packed_bytes(method.packed_type);
  for (std::int64_t done = 0; done < padded; done += kMaxKc) {
    const std::int64_t wanted = std::min(kMaxKc, padded - done);
    const std::int64_t n = std::clamp<std::int64_t>(call.job.a.cols() - k - done, 0, wanted);
    pack_panel(method, side, rows, first, count, k + done, n, wanted, scratch.stage,
               panel + done * count * bytes);
  }
}

// Of few rows, panels of B are of little use: each is multiplied while L1 has it, or where packed
// weights are.
void streamed_panels(const GemmCall& call, const GemmBlock& block, const KBlock& at,
                     const GemmScratch& scratch, bool overwrites) {
  const GemmBlocking& c = call.blocking;
  const Microkernel& tile = c.method->tile;
  const std::int64_t padded_cols = round_up(block.cols, tile.cols);
  float* const b_scales = scratch.b_scales;
  for (std::int64_t col = 0; col < padded_cols; col += tile.cols) {
    const std::byte* b = call.b.panel_in_place(block.col + col, at.k, at.padded);
    if (b == nullptr) {
      pack_panel(*c.method, PanelOf::b, call.b, block.col + col, tile.cols, at.k, at.n, at.padded,
                 scratch.stage, scratch.b_packed);
      b = scratch.b_packed;
    }
    if (!c.scaled) pack_scales(call.b, block.col + col, tile.cols, at.k, at.run, at.runs, b_scales);
    for (std::int64_t row = 0; row < block.rows; row += tile.rows) {
      const PanelOfA a = panel_of_a(call, at, block.row + row);
      tile.run({.a = a.panel,
                .b = b,
                .run = at.run,
                .runs = at.runs,
                .a_scale = c.scaled ? nullptr : a.scales,
                .b_scale = c.scaled ? nullptr : b_scales,
                .sums = scratch.sums + row * padded_cols + col,
                .pitch = padded_cols,
                .overwrites = overwrites});
    }
  }
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
                      {scratch.sums + row * padded_cols, padded_cols}, false);
    }
  }
  if (method.leave != nullptr) method.leave();
  for (std::int64_t row = 0; row < block.rows; ++row)
    call.epilogue(block.row + row, block.col, block.cols, scratch.sums + row * padded_cols);
}

void pack_a(const GemmCall& call, std::int64_t panel, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const int rows = c.method->tile.rows;
  const std::int64_t depth = call.job.a.cols(), row = call.packed_a.first_row + panel * rows;
  if (c.whole_k) {
    const KBlock all = whole_k(call);
    const PanelOfA to = panel_of_a(call, all, row);
    pack_depth(call, PanelOf::a, row, 0, all.padded, scratch, to.panel);
    if (!c.scaled) pack_all_scales(call.a, row, rows, all.run, all.runs, to.scales);
    return;
  }
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const KBlock at = k_block(c, depth, k);
    const PanelOfA to = panel_of_a(call, at, row);
    pack_panel(*c.method, PanelOf::a, call.a, row, rows, k, at.n, at.padded, scratch.stage,
               to.panel);
    if (!c.scaled) pack_scales(call.a, row, rows, k, at.run, at.runs, to.scales);
  }
}

// Panels of B stay in L2 while all panels of A pass. With one block of K the sums are those of one
// panel of A, and its epilogue finds them in L1. Where sums are the result as they are, whole
// panels are summed there.
void packed_a_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const int tile_rows = c.method->tile.rows;
  const std::int64_t depth = call.job.a.cols(),
                     padded_cols = round_up(block.cols, c.method->tile.cols);
  const bool streams = c.streams_b(), in_place = !streams && c.method->sums_in_place &&
                                                 call.epilogue.is_plain_f32() &&
                                                 padded_cols == block.cols;
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const KBlock at = k_block(c, depth, k);
    if (streams) {
      streamed_panels(call, block, at, scratch, k == 0);
      if (k + c.kc < depth) continue;
      for (std::int64_t i = 0; i < block.rows; ++i)
        call.epilogue(block.row + i, block.col, block.cols, scratch.sums + i * padded_cols);
      continue;
    }
    if (!c.one_k_block || !block.b_is_packed) pack_b(call, block, at, scratch);
    const bool last = k + c.kc >= depth;
    for (std::int64_t row = 0; row < block.rows; row += tile_rows) {
      const PanelOfA a = panel_of_a(call, at, block.row + row);
      const std::int64_t rows = std::min<std::int64_t>(tile_rows, block.rows - row);
      const bool there = in_place && rows == tile_rows;
      float* const sums = scratch.sums + (c.one_k_block ? 0 : row * padded_cols);
      multiply_panels(call, at, scratch, a.panel, a.scales, padded_cols,
                      there ? PanelSums{call.epilogue.place_of(block.row + row, block.col),
                                        call.epilogue.pitch()}
                            : PanelSums{sums, padded_cols},
                      k == 0);
      if (!last || there) continue;
      for (std::int64_t i = 0; i < rows; ++i)
        call.epilogue(block.row + row + i, block.col, block.cols, sums + i * padded_cols);
    }
  }
}

// A few rows by packed weights, or by codes as they are, decoded and multiplied in one kernel
// (GemmMethod::multiply_codes).
void register_decode_block(const GemmCall& call, const GemmBlock& block,
                           const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const Microkernel& tile = c.method->tile;
  const std::int64_t depth = call.job.a.cols(), padded_cols = round_up(block.cols, tile.cols);
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const KBlock at = k_block(c, depth, k);
    const PanelOfA a = panel_of_a(call, at, block.row);
    for (std::int64_t col = 0; col < padded_cols; col += tile.cols) {
      float* const b_scales = scratch.b_scales;
      if (!c.scaled) pack_scales(call.b, block.col + col, tile.cols, k, at.run, at.runs, b_scales);
      MicrokernelJob job{.a = a.panel,
                         .b = scratch.b_packed,
                         .run = at.run,
                         .runs = at.runs,
                         .a_scale = c.scaled ? nullptr : a.scales,
                         .b_scale = c.scaled ? nullptr : b_scales,
                         .sums = scratch.sums + col,
                         .pitch = padded_cols,
                         .overwrites = k == 0,
                         .rows = static_cast<int>(block.rows)};
      if (call.b.multiply(block.col + col, tile.cols, k, at.padded, job)) continue;
      if (const std::byte* there = call.b.panel_in_place(block.col + col, k, at.padded)) {
        job.b = there;
      } else {
        pack_panel(*c.method, PanelOf::b, call.b, block.col + col, tile.cols, k, at.n, at.padded,
                   scratch.stage, scratch.b_packed);
      }
      tile.run(job);
    }
  }
  for (std::int64_t i = 0; i < block.rows; ++i)
    call.epilogue(block.row + i, block.col, block.cols, scratch.sums + i * padded_cols);
}

// All of K at once (GemmBlocking::whole_k), in pieces: so much of a panel of A stays in L1 while
// all panels of B pass. Scales that change along K are applied after each run, others
// once, after the last piece. Rows that are one panel use B once: it is decoded and
// multiplied in one kernel, or in longer pieces, because reading long rows is faster.
void whole_k_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const GemmBlocking& c = call.blocking;
  const GemmMethod& method = *c.method;
  const Microkernel& tile = method.tile;
  const std::int64_t bytes = packed_bytes(method.packed_type);
  const std::int64_t padded_cols = round_up(block.cols, tile.cols);
  const KBlock all = whole_k(call);
  // Of all blocks alike, so that B is packed by the first of those of the same columns.
  const bool at_end = all.runs == 1, once = c.mc <= tile.rows;
  // A panel of A of 16 KiB: with twice of that, L1 is short for B. But every piece costs loading
  // and storing sums, which a short K is better without, and runs the scaling of their last one,
  // which nothing hides.
  const bool is_short = all.padded * bytes <= 2048;
  const std::int64_t depth = once ? kMaxKc : !at_end || is_short ? 1024 : 512 / bytes;
  const auto pack_columns = [&](std::int64_t col, std::int64_t k, std::int64_t n, std::byte* to) {
    pack_depth(call, PanelOf::b, block.col + col, k, n, scratch, to);
  };
  for (std::int64_t col = 0; !block.b_is_packed && col < padded_cols; col += tile.cols) {
    if (!once) pack_columns(col, 0, all.padded, scratch.b_packed + col * all.padded * bytes);
    if (!c.scaled)
      pack_all_scales(call.b, block.col + col, tile.cols, all.run, all.runs,
                      scratch.b_scales + col * all.runs);
  }
  const auto job_of = [&](std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n,
                          const std::byte* b) -> MicrokernelJob {
    const PanelOfA a = panel_of_a(call, all, block.row + row);
    const std::byte* const at = a.panel + k * tile.rows * bytes;
    const std::int64_t first = at_end ? 0 : k / all.run;
    const std::int64_t share = n * tile.rows * bytes * tile.cols / padded_cols;
    const bool scales = !c.scaled && (!at_end || k + n == all.padded);
    return {.a = at,
            .b = b,
            .run = at_end ? n : all.run,
            .runs = at_end ? 1 : n / all.run,
            .a_scale = scales ? a.scales + first * tile.rows : nullptr,
            .b_scale = scales ? scratch.b_scales + col * all.runs + first * tile.cols : nullptr,
            .sums = scratch.sums + col,
            .pitch = padded_cols,
            .overwrites = k == 0,
            .scales_at_end = at_end,
            .rows = static_cast<int>(std::min<std::int64_t>(tile.rows, block.rows - row)),
            .prefetch = at + n * tile.rows * bytes + col / tile.cols * share,
            .prefetch_bytes = once ? 0 : share};
  };
  if (all.padded == 0)
    std::memset(scratch.sums, 0, static_cast<std::size_t>(tile.rows * padded_cols) * sizeof(float));
  if (method.enter != nullptr) method.enter();
  for (std::int64_t row = 0; row < block.rows; row += tile.rows) {
    if (once) {
      for (std::int64_t col = 0; col < padded_cols; col += tile.cols)
        for (std::int64_t k = 0; k < all.padded; k += depth) {
          const std::int64_t n = std::min(depth, all.padded - k);
          const std::byte* const there = call.b.panel_in_place(block.col + col, k, n);
          const MicrokernelJob job =
              job_of(row, col, k, n, there != nullptr ? there : scratch.b_packed);
          if (call.b.multiply(block.col + col, tile.cols, k, n, job)) continue;
          if (there == nullptr) pack_columns(col, k, n, scratch.b_packed);
          tile.run(job);
        }
    } else {
      for (std::int64_t k = 0; k < all.padded; k += depth)
        for (std::int64_t col = 0; col < padded_cols; col += tile.cols)
          tile.run(job_of(row, col, k, std::min(depth, all.padded - k),
                          scratch.b_packed + (col * all.padded + k * tile.cols) * bytes));
    }
    const std::int64_t rows = std::min<std::int64_t>(tile.rows, block.rows - row);
    for (std::int64_t i = 0; i < rows; ++i)
      call.epilogue(block.row + row + i, block.col, block.cols, scratch.sums + i * padded_cols);
  }
  if (method.leave != nullptr) method.leave();
}

}  // namespace octavo::cpu
