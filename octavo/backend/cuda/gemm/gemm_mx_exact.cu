// GEMM of MX operands without exponent alignment, for operands that alignment would lose too much
// of. Codes are decoded to bf16 while they are stored to shared memory, times their block's power
// of two, which bf16 holds exactly. mma.sync sums 128 of K in f32; these runs are promoted to f32
// sums in registers, times the scales of the other operand where only one is MX.
//
// This kernel is always launched and rarely wanted: a persistent grid of two blocks per SM, of
// which one decodes while the other multiplies; unwanted blocks exit at once.
#include <algorithm>
#include <optional>

#include "octavo/backend/align_job.h"
#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_group_lookup.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mma_sync.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/quantize/mx_read.cuh"
#include "octavo/backend/cuda/quantize/mx_rescale.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kRows = 128, kCols = 64, kDepth = 64, kThreads = 256, kBlocks = 2;
constexpr int kRun = 128;           // of K, with the same scales
constexpr int kWarpSide = 32;       // of a warp's tile: four warps down, two across
constexpr int kPitch = kDepth + 8;  // in bf16, padded: eight rows of 16 bytes in distinct banks
// For PlanGroups: a unit is a tile.
constexpr GemmShape kTiles{.row_groups = kRows / 64,
                           .col_groups = 1,
                           .cols = kCols,
                           .blocks = 1,
                           .multicasts_rows = false};
static_assert(kTiles.unit_rows() == kRows && kTiles.unit_cols() == kCols);
static_assert(kThreads == kRows / kWarpSide * (kCols / kWarpSide) * 32);

struct Side {
  QuantizedMatrix of{};
  bool is_mx = false;  // else scales are applied to sums
  bool is_e5m2 = false;
  bool vectors = false;  // codes can be loaded 16 at a time
};

struct ExactPlan {
  Side a{}, b{};
  GemmEpilogue epilogue{};
  PlanGroup whole{};                  // the only product, where there are no groups
  const PlanGroup* groups = nullptr;  // sorted by first_unit, in device memory
  std::int32_t group_count = 0, units = 0;
  LaunchPredicate predicate{};
};

// Sixteen codes of a row, and their block's power of two.
struct Vector {
  uint4 codes{};
  float power = 0.0F;
};

__device__ __forceinline__ Vector vector_at(const Side& side, std::int64_t row, std::int64_t col) {
  const QuantizedMatrix& of = side.of;
  if (row >= of.codes.rows || col >= of.codes.cols) return {};
  return {codes_at(of.codes, row, col, side.vectors),
          side.is_mx ? power_of(exponent_at(of.scales, row, col / kMxBlock)) : 1.0F};
}

template <bool kE5m2>
__device__ __forceinline__ std::uint32_t scaled_pair(std::uint32_t codes, float power) {
  const float2 pair = __half22float2(decoded_pair<kE5m2>(codes));
  return pair_of<true>(pair.x * power, pair.y * power);
}

template <bool kE5m2>
__device__ __forceinline__ void store_decoded(const Vector& vector, __nv_bfloat16* to) {
  const std::uint32_t words[4] = {vector.codes.x, vector.codes.y, vector.codes.z, vector.codes.w};
  std::uint32_t made[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    made[i] = scaled_pair<kE5m2>(words[i / 2] >> (i % 2 * 16) & 0xFFFF, vector.power);
  auto* const out = reinterpret_cast<uint4*>(to);
  out[0] = make_uint4(made[0], made[1], made[2], made[3]);
  out[1] = make_uint4(made[4], made[5], made[6], made[7]);
}
__device__ __forceinline__ void store_decoded(const Side& side, const Vector& vector,
                                              __nv_bfloat16* to) {
  side.is_e5m2 ? store_decoded<true>(vector, to) : store_decoded<false>(vector, to);
}

// The scale by which sums of this row are multiplied, for the 128 of K from `col` on.
__device__ __forceinline__ float waiting_scale(const Side& side, std::int64_t row,
                                               std::int64_t col) {
  const QuantizedMatrix& of = side.of;
  if (side.is_mx || row >= of.codes.rows) return 1.0F;
  return static_cast<float>(load_value(of.scales, row / tile_extent(of.tile.rows, of.codes.rows),
                                       col / tile_extent(of.tile.cols, of.codes.cols)));
}

// The vectors of an operand's `kLines` rows that a thread loads: every kStep-th row, the same
// columns.
template <int kLines>
struct Part {
  static constexpr int kVectors = kDepth / kCodesRead, kStep = kThreads / kVectors,
                       kCount = kLines / kStep;
  Vector of[kCount];

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kVectors; }
  static __device__ __forceinline__ int col() {
    return static_cast<int>(threadIdx.x) % kVectors * kCodesRead;
  }
  __device__ __forceinline__ void load(const Side& side, std::int64_t first_row, std::int64_t k) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      of[i] = vector_at(side, first_row + row() + i * kStep, k + col());
  }
  __device__ __forceinline__ void store(const Side& side, __nv_bfloat16 (&to)[kLines][kPitch]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) store_decoded(side, of[i], &to[row() + i * kStep][col()]);
  }
};

struct Stage {
  __nv_bfloat16 a[kRows][kPitch], b[kCols][kPitch];
  float a_scales[kRows], b_scales[kCols];
};

// A warp's 32 rows by 32 columns, over a whole stage.
__device__ __forceinline__ void multiply_stage(const Stage& stage, int row, int col, int lane,
                                               float (&run)[2][4][4]) {
  // Of ldmatrix's four 8 x 8 matrices, the second holds the next rows for A, and the next of K for
  // B.
  const SharedAddress a_at = shared_address(&stage.a[row + lane % 16][lane / 16 * 8]),
                      b_at = shared_address(
                          &stage.b[col + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
  constexpr int kSixteenRows = 16 * kPitch * 2;  // in bytes
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ldmatrix_x4(a_at + i * kSixteenRows + k * 2, a[i]);
      ldmatrix_x4(b_at + i * kSixteenRows + k * 2, b[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma_m16n8k16(run[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

// Promotes a run: adds it to the sums, times both scales.
__device__ __forceinline__ void promote(const Stage& stage, int row, int col, int lane,
                                        float (&run)[2][4][4], float (&sums)[2][4][4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float scale = stage.a_scales[row + 16 * i + lane / 4 + (e < 2 ? 0 : 8)] *
                            stage.b_scales[col + 8 * j + lane % 4 * 2 + e % 2];
        sums[i][j][e] = __fmaf_rn(run[i][j][e], scale, sums[i][j][e]);
        run[i][j][e] = 0.0F;
      }
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_mx_exact_kernel(const __grid_constant__ ExactPlan plan) {
  __shared__ __align__(16) Stage stage;
  pdl_wait();
  if (*plan.predicate.number != plan.predicate.wanted) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  constexpr int kAcross = kCols / kWarpSide;
  const int row = warp / kAcross * kWarpSide, col = warp % kAcross * kWarpSide;
  const std::int64_t depth = plan.a.of.codes.cols;
  for (int unit = static_cast<int>(blockIdx.x); unit < plan.units;
       unit += static_cast<int>(gridDim.x)) {
    const PlanGroup group = plan.group_count == 0
                                ? plan.whole
                                : plan.groups[group_at(plan.groups, plan.group_count, unit)];
    const int within = unit - group.first_unit;
    const std::int64_t first_row = group.row + within % group.unit_rows * kRows,
                       first_col = group.col + within / group.unit_rows * kCols;
    float run[2][4][4] = {}, sums[2][4][4] = {};
    Part<kRows> a;
    Part<kCols> b;
    a.load(plan.a, first_row, 0);
    b.load(plan.b, first_col, 0);
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      __syncthreads();  // all threads have read the stage before
      a.store(plan.a, stage.a);
      b.store(plan.b, stage.b);
      if (k % kRun == 0) {
        if (thread < kRows)
          stage.a_scales[thread] = waiting_scale(plan.a, first_row + thread, k);
        else if (thread < kRows + kCols)
          stage.b_scales[thread - kRows] = waiting_scale(plan.b, first_col + thread - kRows, k);
      }
      __syncthreads();
      a.load(plan.a, first_row, k + kDepth);
      b.load(plan.b, first_col, k + kDepth);
      multiply_stage(stage, row, col, lane, run);
      if ((k + kDepth) % kRun == 0 || k + kDepth >= depth)
        promote(stage, row, col, lane, run, sums);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const std::int64_t r = first_row + row + 16 * i + lane / 4 + (e < 2 ? 0 : 8),
                             c = first_col + col + 8 * j + lane % 4 * 2 + e % 2;
          if (r < group.row_end && c < group.col_end)
            store_epilogue(plan.epilogue, r + group.row_shift, c + group.col_shift, sums[i][j][e]);
        }
  }
}

Side side_of(const GemmOperand& operand) {
  const QuantizedMatrix& q = operand.quantized;
  return {
      .of = q,
      .is_mx = tile_extent(q.tile.cols, operand.cols()) == kMxBlock && operand.cols() > kMxBlock,
      .is_e5m2 = q.codes.format == e5m2,
      .vectors = has_aligned_rows(q.codes, kCodesRead)};
}

}  // namespace

void gemm_mx_exact(const Exec& exec, const GemmJob& job, const LaunchPredicate& predicate) {
  ExactPlan plan{.a = side_of(job.a),
                 .b = side_of(job.b),
                 .epilogue = epilogue_of(job),
                 .predicate = predicate};
  const auto narrow = [](std::int64_t number) { return static_cast<std::int32_t>(number); };
  plan.whole = {.row_end = narrow(job.a.rows()),
                .col_end = narrow(job.b.rows()),
                .unit_rows = narrow(tile_count(kRows, job.a.rows()))};
  plan.units = plan.whole.unit_rows * narrow(tile_count(kCols, job.b.rows()));
  std::optional<PlanGroups> groups;
  if (job.group_count > 0) {
    groups.emplace(exec, job, kTiles, false, PlanGroups::Even{.rows = false, .cols = false});
    plan.groups = groups->on_device();
    plan.group_count = groups->count();
    plan.units = narrow(groups->units());
  }
  if (plan.units == 0) return;
  const int blocks = std::min(plan.units, kBlocks * clusters_on(exec, 1));
  launch_pdl(exec, static_cast<unsigned>(blocks), kThreads, gemm_mx_exact_kernel, plan);
}

}  // namespace octavo::cuda
