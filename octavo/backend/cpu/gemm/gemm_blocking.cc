#include "octavo/backend/cpu/gemm/gemm_blocking.h"

#include <algorithm>

#include "octavo/backend/cpu/gemm/gemm_scale_range.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {
namespace {

// Of a block of the result. Its sums take 2 MiB and so does its part of B, of which a panel at a
// time is fetched ahead; columns are many because each block of them packs A anew.
constexpr std::int64_t kBlockRows = 512, kBlockCols = 1032;

// Where scales are multiplied: with lanes, which costs less than with sums, unless a row is used
// once.
void choose_scales(Cut& c, const GemmJob& job) {
  const bool any = job.a.is_quantized() || job.b.is_quantized();
  switch (c.method->lane) {
    case Lane::f32:
      c.scaled = !any || !c.few_rows || c.run < 2 * kDotStep;
      if (c.scaled) c.fold = Fold::all;
      break;
    case Lane::bf16:
      c.scaled = !any;
      if (any && c.run < kGemmDepth && folds_exactly(job.a) && folds_exactly(job.b)) {
        c.fold = Fold::tiles;
        c.run = kGemmDepth;
      }
      break;
    default:
      break;
  }
  // A row of B that is used once need not be decoded to memory.
  if (job.out.rows == 1 && job.b.is_quantized() && c.run >= 2 * kDotStep &&
      c.method->dot_codes != nullptr) {
    c.dot_codes = c.method->dot_codes(job.b.quantized.codes.format);
    if (c.dot_codes != nullptr) {
      c.scaled = false;
      c.fold = Fold::none;
    }
  }
  if (!c.scaled && !may_scale_sums(job, c.run, c.fold)) {
    if (c.method->wide != nullptr) c.method = c.method->wide;
    c.dot_codes = nullptr;
    c.scaled = true;
    c.fold = Fold::all;
  }
  if (c.scaled) c.run = c.depth;
}

Cut begun(const GemmMethod& method, const GemmJob& job) {
  Cut c;
  c.method = &method;
  c.few_rows = job.out.rows <= kFewRows;
  if (job.out.rows <= kDotRows) c.depth = kMostDepth;
  c.run = common_run(job);
  return c;
}

void choose_blocks(Cut& c, const Exec& exec, const GemmJob& job) {
  const std::int64_t rows = job.out.rows, cols = job.out.cols;
  const TileKernel& tile = c.method->tile;
  if (c.few_rows) {
    c.rows = rows;
    c.cols = kFewRowsCols;
  } else {
    // Blocks of one size, so that threads end together.
    const std::int64_t threads = std::max(1, exec.threads);
    const std::int64_t most_rows = std::max<std::int64_t>(
        tile.rows, std::min<std::int64_t>(kBlockRows, blocks(rows, threads)));
    c.rows = round_up(blocks(rows, blocks(rows, most_rows)), tile.rows);
    // And more than one for each thread, lest all wait for one that was held up.
    const std::int64_t most_cols = threads > 1 ? kBlockCols / 2 : kBlockCols;
    c.cols = round_up(blocks(cols, blocks(cols, most_cols)), tile.cols);
  }
  c.row_blocks = blocks(rows, c.rows);
  c.col_blocks = blocks(cols, c.cols);
  c.threads = static_cast<int>(
      std::min<std::int64_t>(std::max(1, exec.threads), c.row_blocks * c.col_blocks));
}

}  // namespace

Cut cut(const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  Cut c = begun(method, job);
  choose_scales(c, job);
  choose_blocks(c, exec, job);
  return c;
}

// Enough for any way it may be cut, without a look at the data that decides.
std::int64_t gemm_workspace(const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  std::int64_t most = 0;
  for (const GemmMethod* one : {&method, method.wide}) {
    if (one == nullptr) continue;
    Cut c = begun(*one, job);
    choose_blocks(c, exec, job);
    most = std::max(most, c.threads * scratch_at(nullptr, c).bytes);
  }
  return most;
}

GemmScratch scratch_at(std::byte* memory, const Cut& c) {
  constexpr std::int64_t kAlign = 64;
  GemmScratch scratch;
  const auto take = [&]<typename T>(T*& part, std::int64_t count, std::int64_t size) {
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + scratch.bytes);
    scratch.bytes += round_up(count * size, kAlign);
  };
  const TileKernel& tile = c.method->tile;
  const std::int64_t lane = lane_bytes(c.method->lane), runs = c.depth / c.run;
  const std::int64_t a_rows = c.few_rows ? c.rows : tile.rows,
                     b_rows = c.few_rows ? kDotCols : c.cols;
  take(scratch.sums, c.rows * round_up(c.cols, kDotCols), sizeof(float));
  take(scratch.a_lanes, a_rows * c.depth, lane);
  take(scratch.b_lanes, b_rows * c.depth, lane);
  if (!c.few_rows) take(scratch.stage, std::max(tile.rows, tile.cols) * c.depth, lane);
  take(scratch.a_scales, a_rows * runs, sizeof(float));
  take(scratch.b_scales, b_rows * runs, sizeof(float));
  return scratch;
}

}  // namespace octavo::cpu
