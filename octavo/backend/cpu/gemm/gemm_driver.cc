// The GEMM driver: divides the result into blocks, which threads take one after another. Sums along
// K have the same order whatever the number of threads.
//
//   large M   B is packed block by block, and the microkernel multiplies panels (gemm_large_m.cc)
//   small M   rows of B are read once, and not packed (gemm_small_m.cc)
#include <algorithm>
#include <atomic>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

ComputeBlock choose_block(const GemmBlocking& c, const GemmOperandRows& b) {
  if (c.small_m) return c.scaled && b.in_columns() ? small_m_columns_block : small_m_block;
  if (c.whole_k) return whole_k_block;
  return c.packs_a ? packed_a_block : packed_block;
}

}  // namespace

void gemm_matrix(const Isa& isa, const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  if (job.out.rows == 0 || job.out.cols == 0) return;
  const GemmBlocking c = choose_blocking(method, exec, job);
  const GemmOperandRows a(isa, job.a, *c.method, c.applied_scales),
      b(isa, job.b, *c.method, c.applied_scales);
  const GemmEpilogue epilogue(isa, job);
  std::byte* const memory = exec.workspace.data();
  const PackedA packed_a = packed_a_at(memory, c, job);
  const std::int64_t per_thread = scratch_at(nullptr, c).bytes;
  const auto scratch_of = [&](int part) {
    return scratch_at(memory + packed_a.bytes + part * per_thread, c);
  };
  const GemmCall call{c, job, a, b, epilogue, packed_a};
  if (c.packs_a)
    parallel_parts(packed_a.rows / c.method->tile.rows, c.threads, c.threads,
                   [&](int part, std::int64_t first, std::int64_t last) {
                     pack_a(call, first, last, scratch_of(part));
                   });
  const ComputeBlock compute = choose_block(c, b);
  const std::int64_t units = c.row_blocks * c.col_blocks;
  std::atomic<std::int64_t> next = 0;
  parallel_parts(c.threads, c.threads, c.threads, [&](int part, std::int64_t, std::int64_t) {
    for (std::int64_t unit = next++; unit < units; unit = next++) {
      const std::int64_t row = unit % c.row_blocks * c.mc, col = unit / c.row_blocks * c.nc;
      compute(call,
              {row, col, std::min(c.mc, job.out.rows - row), std::min(c.nc, job.out.cols - col)},
              scratch_of(part));
    }
  });
}

}  // namespace octavo::cpu
