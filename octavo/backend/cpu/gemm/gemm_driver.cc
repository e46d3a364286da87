// The GEMM driver: the loops over blocks (mc, nc, kc) around the microkernel. Large M: a block of B
// (2 MiB, from L2 and L3) is packed once for each block of rows, and panels of A, packed into L1
// one at a time, are multiplied with all of it. Small M and GEMV: rows are multiplied along K where
// they are in memory; or, where the columns of B are contiguous, columns times elements of A are
// accumulated. Sums along K have the same order whatever the blocking and the number of threads.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/gemm/gemm_epilogue.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

struct Block {
  std::int64_t row, col, rows, cols;
};

void packed_block(const GemmBlocking& c, const GemmJob& job, const GemmOperandRows& a,
                  const GemmOperandRows& b, const GemmEpilogue& epilogue, const Block& block,
                  const GemmScratch& scratch) {
  const GemmMethod& method = *c.method;
  const Microkernel& tile = method.tile;
  const std::int64_t packed_size = packed_bytes(method.packed_type), depth = job.a.cols();
  const std::int64_t padded_rows = round_up(block.rows, tile.rows),
                     padded_cols = round_up(block.cols, tile.cols);
  float *const sums = scratch.sums, *const a_scales = scratch.a_scales;
  float* const b_scales = scratch.b_scales;
  std::byte *const a_panel = scratch.a_packed, *const b_panels = scratch.b_packed;
  std::memset(sums, 0, static_cast<std::size_t>(padded_rows * padded_cols) * sizeof(float));
  if (method.enter != nullptr) method.enter();
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    const std::int64_t padded_depth = round_up(n, tile.step_of_a());
    const std::int64_t run = c.scaled ? padded_depth : std::min(c.run, padded_depth);
    const std::int64_t runs = blocks(n, run), wanted = run * runs;
    for (std::int64_t col = 0; col < padded_cols; col += tile.cols) {
      pack_panel(method, PanelOf::b, b, block.col + col, tile.cols, k, n, wanted, scratch.stage,
                 b_panels + col * wanted * packed_size);
      if (!c.scaled)
        pack_scales(b, block.col + col, tile.cols, k, run, runs, b_scales + col * runs);
    }
    for (std::int64_t row = 0; row < padded_rows; row += tile.rows) {
      pack_panel(method, PanelOf::a, a, block.row + row, tile.rows, k, n, wanted, scratch.stage,
                 a_panel);
      if (!c.scaled) pack_scales(a, block.row + row, tile.rows, k, run, runs, a_scales);
      for (std::int64_t col = 0; col < padded_cols; col += tile.cols)
        tile.run({.a = a_panel,
                  .b = b_panels + col * wanted * packed_size,
                  .run = run,
                  .runs = runs,
                  .a_scale = c.scaled ? nullptr : a_scales,
                  .b_scale = c.scaled ? nullptr : b_scales + col * runs,
                  .sums = sums + row * padded_cols + col,
                  .pitch = padded_cols});
    }
  }
  if (method.leave != nullptr) method.leave();
  for (std::int64_t row = 0; row < block.rows; ++row)
    epilogue(block.row + row, block.col, block.cols, sums + row * padded_cols);
}

// All of K at once (GemmBlocking::whole_k). Scales that do not change along K are applied once,
// after the sums; others after each run.
void whole_k_block(const GemmBlocking& c, const GemmJob& job, const GemmOperandRows& a,
                   const GemmOperandRows& b, const GemmEpilogue& epilogue, const Block& block,
                   const GemmScratch& scratch) {
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

void small_m_block(const GemmBlocking& c, const GemmJob& job, const GemmOperandRows& a,
                   const GemmOperandRows& b, const GemmEpilogue& epilogue, const Block& block,
                   const GemmScratch& scratch) {
  const bool as_codes = c.dot_codes != nullptr;
  const std::int64_t bytes = packed_bytes(c.method->packed_type), depth = job.a.cols();
  const std::int64_t pitch = c.kc * bytes;
  const std::int64_t padded_cols = round_up(block.cols, kDotCols);
  float *const sums = scratch.sums, *const a_scales = scratch.a_scales;
  float* const b_scales = scratch.b_scales;
  const std::byte* a_rows[kSmallM];
  std::memset(sums, 0, static_cast<std::size_t>(block.rows * padded_cols) * sizeof(float));
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    const std::int64_t run = std::min(c.run, round_up(n, kDotStep));
    const std::int64_t runs = blocks(n, run), wanted = run * runs;
    for (std::int64_t row = 0; row < block.rows; ++row) {
      a_rows[row] = padded(a, false, bytes, row, k, n, wanted, scratch.a_packed + row * pitch);
      if (!c.scaled) a.scales(row, k, run, runs, a_scales + row * runs, 1);
    }
    for (std::int64_t col = 0; col < padded_cols; col += kDotCols) {
      DotJob dot{};
      dot.run = run;
      dot.runs = runs;
      dot.pitch = padded_cols;
      if (!c.scaled) dot.b_scale = b_scales;
      for (int i = 0; i < kDotCols; ++i) {
        const std::int64_t row = block.col + col + i;
        dot.b[i] = padded(b, as_codes, as_codes ? 1 : bytes, row, k, n, wanted,
                          scratch.b_packed + i * pitch);
        if (c.scaled) continue;
        b.scales(std::min(row, b.rows() - 1), k, run, runs, b_scales + i, kDotCols);
      }
      for (std::int64_t row = 0; row < block.rows; row += kDotRows) {
        dot.rows = static_cast<int>(std::min<std::int64_t>(kDotRows, block.rows - row));
        for (int i = 0; i < dot.rows; ++i) {
          dot.a[i] = a_rows[row + i];
          if (!c.scaled) dot.a_scale[i] = a_scales + (row + i) * runs;
        }
        dot.sums = sums + row * padded_cols + col;
        (as_codes ? c.dot_codes : c.method->dot)(dot);
      }
    }
  }
  for (std::int64_t row = 0; row < block.rows; ++row)
    epilogue(block.row + row, block.col, block.cols, sums + row * padded_cols);
}

// Small M by a column-major B: accumulates contiguous columns of B times elements of A, with
// K-unrolling by kUnrollK.
void small_m_columns_block(const GemmBlocking& c, const GemmJob& job, const GemmOperandRows& a,
                           const GemmOperandRows& b, const GemmEpilogue& epilogue,
                           const Block& block, const GemmScratch& scratch) {
  constexpr std::int64_t kUnrollK = 4;
  const std::int64_t depth = job.a.cols(), packed_size = packed_bytes(PackedType::f32);
  alignas(64) float staged[kUnrollK][kSmallMNc];
  float* const sums = scratch.sums;
  std::memset(sums, 0, static_cast<std::size_t>(block.rows * block.cols) * sizeof(float));
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    const float* a_rows[kSmallM];
    for (std::int64_t row = 0; row < block.rows; ++row)
      a_rows[row] = reinterpret_cast<const float*>(
          a.piece(row, k, n, scratch.a_packed + row * c.kc * packed_size));
    for (std::int64_t i = 0; i < n; i += kUnrollK) {
      const std::int64_t count = std::min(kUnrollK, n - i);
      const float* column[kUnrollK];
      for (std::int64_t j = 0; j < count; ++j)
        column[j] = b.column(block.col, k + i + j, block.cols, staged[j]);
      for (std::int64_t row = 0; row < block.rows; ++row) {
        float* __restrict to = sums + row * block.cols;
        const float* x = a_rows[row] + i;
        if (count == kUnrollK) {
          const float *y0 = column[0], *y1 = column[1], *y2 = column[2], *y3 = column[3];
          for (std::int64_t col = 0; col < block.cols; ++col)
            to[col] = to[col] + x[0] * y0[col] + x[1] * y1[col] + x[2] * y2[col] + x[3] * y3[col];
        } else {
          for (std::int64_t j = 0; j < count; ++j)
            for (std::int64_t col = 0; col < block.cols; ++col) to[col] += x[j] * column[j][col];
        }
      }
    }
  }
  for (std::int64_t row = 0; row < block.rows; ++row)
    epilogue(block.row + row, block.col, block.cols, sums + row * block.cols);
}

}  // namespace

void gemm_matrix(const Isa& isa, const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  if (job.out.rows == 0 || job.out.cols == 0) return;
  const GemmBlocking c = choose_blocking(method, exec, job);
  const GemmOperandRows a(isa, job.a, *c.method, c.applied_scales),
      b(isa, job.b, *c.method, c.applied_scales);
  const GemmEpilogue epilogue(isa, job);
  const std::int64_t per_thread = scratch_at(nullptr, c).bytes;
  const std::int64_t units = c.row_blocks * c.col_blocks;
  const auto one_block = c.whole_k                    ? whole_k_block
                         : !c.small_m                 ? packed_block
                         : c.scaled && b.in_columns() ? small_m_columns_block
                                                      : small_m_block;
  std::atomic<std::int64_t> next = 0;
  parallel_parts(c.threads, c.threads, c.threads, [&](int part, std::int64_t, std::int64_t) {
    for (std::int64_t unit = next++; unit < units; unit = next++) {
      const std::int64_t row = unit % c.row_blocks * c.mc, col = unit / c.row_blocks * c.nc;
      const Block block{row, col, std::min(c.mc, job.out.rows - row),
                        std::min(c.nc, job.out.cols - col)};
      const GemmScratch scratch = scratch_at(exec.workspace.data() + part * per_thread, c);
      one_block(c, job, a, b, epilogue, block, scratch);
    }
  });
}

}  // namespace octavo::cpu
