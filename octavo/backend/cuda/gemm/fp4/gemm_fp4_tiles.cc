// Plans a GEMM of bf16 by FP4 weights: tile width, and split-K parts.
#include <algorithm>
#include <limits>

#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_plan.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

struct Fp4Tiling {
  int cols = 0;
  int unit_rows = 0, unit_cols = 0;
  int parts = 1;
};

// f32 results with at least this many rows have one order of sums, whatever the number of rows: a
// row block of a product has the bits of the whole (gemm_quantized).
constexpr std::int64_t kLeastOrdered = 64;

bool has_order(const GemmJob& job) {
  return job.is_group || (job.out.dtype == DType::f32 && job.a.rows() >= kLeastOrdered);
}

// Approximate cycles of a unit per line of K. Up to 64 columns decoding is the bottleneck.
constexpr int cycles_of_line(int cols) {
  return cols <= 32 ? 570 : cols <= 64 ? 600 : cols == 128 ? 720 : 1060;
}

// Minimum lines of K per part.
constexpr int kLeastLines = 8;

// Chooses the tile width with the fewest cycles. Where units are fewer than clusters, each unit is
// split along K into as many parts as clusters allow; handing over and adding up partial sums costs
// kCyclesToAdd.
Fp4Tiling choose_fp4_tiling(const GemmJob& job, int clusters) {
  constexpr int kCyclesToAdd = 6000;
  const std::int64_t lines = tile_count(kFp4Line, job.b.cols());
  Fp4Tiling best;
  double least = std::numeric_limits<double>::infinity();
  for (const int cols : kFp4Cols) {
    Fp4Tiling made{.cols = cols,
                   .unit_rows = static_cast<int>(tile_count(kFp4UnitRows, job.b.rows())),
                   .unit_cols = static_cast<int>(tile_count(cols, job.a.rows()))};
    const std::int64_t units = std::int64_t{made.unit_rows} * made.unit_cols;
    if (!has_order(job) && units < clusters)
      made.parts =
          static_cast<int>(std::clamp<std::int64_t>(lines / kLeastLines, 1, clusters / units));
    const double waves = std::max(1.0, static_cast<double>(units) / clusters);
    const double cycles = waves * static_cast<double>(lines) / made.parts * cycles_of_line(cols) +
                          (made.parts > 1 ? kCyclesToAdd : 0);
    if (cycles >= least) continue;
    least = cycles;
    best = made;
  }
  return best;
}

// K blocks that the last part has beyond an even split: about the time it takes to store partial
// sums.
constexpr int more_of_last(int cols) {
  constexpr int kCyclesToLeave = 5000;
  return kCyclesToLeave / (fp4_stage_lines(cols) * cycles_of_line(cols));
}
// Every part has a block, even with two parts, which have the fewest blocks.
static_assert(std::ranges::all_of(kFp4Cols, [](int cols) {
  return 2 * (kLeastLines / fp4_stage_lines(cols)) - more_of_last(cols) >= 2;
}));

// Block scales such that those of a line of K can be read in one load: the caller's, or a copy
// whose last line is padded with zeros.
class WholeLines {
 public:
  WholeLines(const Exec& exec, const QuantizedMatrix& weights, std::int64_t lines)
      : matrix_(weights.scales),
        of_line_(kFp4Line / weights.tile.cols),
        as_they_are_(matrix_.cols == lines * of_line_ && has_aligned_rows(matrix_, of_line_)),
        pitch_(tile_count(16, lines * of_line_) * 16),
        copy_(without_workspace(exec),
              as_they_are_ ? 0 : static_cast<std::size_t>(pitch_ * matrix_.rows)) {
    if (as_they_are_) return;
    matrix_.data = copy_.as<void>();
    matrix_.row_pitch = pitch_;
    copy_.clear();
    copy_rows(exec, weights.scales, matrix_);
  }
  [[nodiscard]] const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_;
  std::int64_t of_line_;
  bool as_they_are_;
  std::int64_t pitch_;
  Scratch copy_;
};

}  // namespace

bool fits_fp4_tiles(const GemmJob& job) {
  const Matrix& codes = job.b.quantized.codes;
  return sizes_fit(job) && fits_small_m_fp4_weights(job.b) && has_aligned_pitch(codes, 16) &&
         codes.row_pitch >= codes.cols / 2;
}

void gemm_fp4_tiles(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job) {
  const QuantizedMatrix& weights = job.b.quantized;
  const Matrix& codes = weights.codes;
  const int clusters = clusters_on(exec, 2);
  const Fp4Tiling tiling = choose_fp4_tiling(job, clusters);
  const int stage_lines = fp4_stage_lines(tiling.cols);
  const std::int64_t lines = tile_count(kFp4Line, codes.cols);
  const WholeLines scales(exec, weights, lines);
  Fp4Plan plan{.gemm = {.rows_tensor_map = tensor_map_of_bytes(
                            codes, codes.cols / 2, stage_lines * kFp4Line / 2, kFp4UnitRows / 2),
                        .cols_tensor_map = tensor_map_of(x, tiling.cols / 2),
                        .epilogue = epilogue_of(job),
                        .swap_ab = true,
                        .row_count = static_cast<std::int32_t>(codes.rows),
                        .col_count = static_cast<std::int32_t>(x.rows)},
               .parts = tiling.parts,
               .scales = static_cast<const unsigned char*>(scales.matrix().data),
               .scale_pitch = scales.matrix().row_pitch,
               .lines = static_cast<std::int32_t>(lines),
               .x_scale = x_scale,
               .tensor_scale = weights.tensor_scale};
  GemmPlan& gemm = plan.gemm;
  gemm.uses_tma_store = gemm.epilogue.is_plain() && fits_tensor_map(job.out);
  if (gemm.uses_tma_store) gemm.out_tensor_map = tensor_map_of(job.out, tiling.cols);
  const int blocks = static_cast<int>(tile_count(stage_lines, lines));
  gemm.schedule = make_schedule(tiling.unit_rows, tiling.unit_cols, blocks, clusters);
  if (tiling.parts > 1) {
    gemm.schedule.clusters *= tiling.parts;
    plan.more_of_last = more_of_last(tiling.cols);
  }
  constexpr std::int64_t kSlots = kFp4UnitRows / 64;  // warpgroups of a cluster
  const SumSlots slots(
      exec,
      gemm.schedule.stream_k_units > 0 || tiling.parts > 1 ? kSlots * gemm.schedule.clusters : 0,
      tiling.cols);
  slots.give_to(gemm);
  (is_nvfp4(weights) ? launch_nvfp4 : launch_mxfp4)(exec, plan, tiling.cols);
}

}  // namespace octavo::cuda
