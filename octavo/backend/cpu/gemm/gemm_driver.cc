// The GEMM driver: divides the result into blocks, which threads take one after another. Sums along
// K have the same order whatever the number of threads.
//
// Where panels of A are packed for all blocks, threads take those first.
//
//   large M   B is packed block by block, and the microkernel multiplies panels (gemm_large_m.cc)
//   small M   rows of B are read once, and not packed (gemm_small_m.cc)
#include <algorithm>
#include <atomic>
#include <thread>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/base/shared_ranges.h"

namespace octavo::cpu {
namespace {

ComputeBlock choose_block(const GemmBlocking& c, const GemmOperandRows& b, std::int64_t rows) {
  if (c.small_m) return c.scaled && b.in_columns() ? small_m_columns_block : small_m_block;
  if (c.lines != nullptr) return lines_block;
  if (c.whole_k) return whole_k_block;
  if (c.multiplies_rows || (b.in_panels() && rows <= c.method->multiply_rows))
    return register_decode_block;
  return c.packs_a ? packed_a_block : packed_block;
}

}  // namespace

void gemm_matrix(const Isa& isa, const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  if (job.out.rows == 0 || job.out.cols == 0) return;
  const GemmBlocking c = choose_blocking(method, exec, job);
  // A few rows of A are packed as panels of B are, from rows.
  GemmMethod of_rows = *c.method;
  of_rows.pack_codes = nullptr;
  const GemmOperandRows a(isa, job.a, c.lines != nullptr ? of_rows : *c.method, c.applied_to_a,
                          PanelOf::a),
      b(isa, job.b, *c.method, c.applied_scales, PanelOf::b);
  const GemmEpilogue epilogue(isa, job);
  std::byte* const memory = exec.workspace.data();
  PackedA packed_a = packed_a_at(memory, c, job);
  const std::int64_t per_thread = scratch_at(nullptr, c).bytes;
  const auto scratch_of = [&](int part) {
    return scratch_at(memory + packed_a.bytes + part * per_thread, c);
  };
  const ComputeBlock compute = choose_block(c, b, job.out.rows);
  for (std::int64_t first = 0; first < job.out.rows; first += c.packed_rows) {
    const std::int64_t rows = std::min(c.packed_rows, job.out.rows - first);
    packed_a.first_row = first;
    const GemmCall call{c, job, a, b, epilogue, packed_a};
    const std::int64_t panels = !c.packs_a           ? 0
                                : c.lines != nullptr ? blocks(job.a.cols(), kLinePieceK)
                                                     : blocks(rows, c.method->tile.rows);
    const std::int64_t row_blocks = blocks(rows, c.mc), units = row_blocks * c.col_blocks;
    SharedRanges some_panels(panels, c.threads), some_units(units, c.threads);
    std::atomic<std::int64_t> packed = 0;
    parallel_parts(c.threads, c.threads, c.threads, [&](int part, std::int64_t, std::int64_t) {
      const GemmScratch scratch = scratch_of(part);
      for (std::int64_t panel = some_panels.take(part); panel >= 0;
           panel = some_panels.take(part)) {
        (c.lines != nullptr ? pack_lines_a : pack_a)(call, panel, scratch);
        packed.fetch_add(1, std::memory_order_release);
      }
      // Those that others have begun.
      while (packed.load(std::memory_order_acquire) < panels) std::this_thread::yield();
      // Blocks of the same columns follow each other, and B stays packed between them.
      std::int64_t packed_col = -1;
      for (std::int64_t unit = some_units.take(part); unit >= 0; unit = some_units.take(part)) {
        const std::int64_t row = unit % row_blocks * c.mc, col = unit / row_blocks * c.nc;
        compute(call,
                {.row = first + row,
                 .col = col,
                 .rows = std::min(c.mc, rows - row),
                 .cols = std::min(c.nc, job.out.cols - col),
                 .b_is_packed = col == packed_col},
                scratch);
        packed_col = col;
      }
    });
  }
}

}  // namespace octavo::cpu
