// Kernel arguments of a tensor-core GEMM (GemmPlan), and the entry points of all GEMM kernels. The
// "rows" of a plan are split among warpgroups (wgmma's M); its "columns" are multiplied by each of
// them (wgmma's N). They are A and B, or B and A under swap-AB (`swap_ab`), in which case the
// result is stored transposed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "octavo/backend/cuda/gemm/gemm_tile_shape.h"
#include "octavo/backend/cuda/gemm/stream_k_schedule.h"
#include "octavo/backend/cuda/hopper/tensor_map.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/backend/gemm_job.h"
#include "octavo/backend/kernels.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {

// Scales of an operand in the layout that kernels read: f32, K block k (128 bytes of the operand)
// after K block k - 1. A K block has one scale per row (`each` is 1: blocks are `pitch` floats
// apart, at multiples of 16 bytes, which TMA requires) or one scale per `each` rows, anywhere in
// memory.
struct ScalePlane {
  const float* data = nullptr;
  std::int64_t pitch = 0;      // between K blocks, in floats
  std::int64_t row_pitch = 1;  // between scales of a K block, in floats
  std::int32_t each = 1;       // rows that share a scale
  std::int32_t rows = 0;       // rows that have scales
};

// Epilogue: what is done to a sum after its scales.
struct GemmEpilogue {
  Matrix out{}, bias{}, residual{};
  bool activates = false;
  ProducerKind activation = ProducerKind::relu;

  [[nodiscard]] constexpr bool is_plain() const {
    return bias.data == nullptr && residual.data == nullptr && !activates;
  }
};
constexpr GemmEpilogue epilogue_of(const GemmJob& job) {
  return {.out = job.out,
          .bias = job.bias,
          .residual = job.residual,
          .activates = job.activation.has_value(),
          .activation = job.activation.value_or(ProducerKind::relu)};
}

// A predicate in device memory: the kernel exits at once unless *number is `wanted`.
struct LaunchPredicate {
  const unsigned* number = nullptr;  // null: the kernel always runs
  unsigned wanted = 0;
};

// Grouped GEMM: one product, in the rows and columns of a plan.
struct PlanGroup {
  std::int32_t row = 0, col = 0;  // of its first tile: of the group, or one before
  std::int32_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  std::int32_t row_shift = 0, col_shift = 0;  // from there to its place in the result
  std::int32_t first_unit = 0, unit_rows = 0;
};

struct GemmPlan {
  CUtensorMap rows_tensor_map{}, cols_tensor_map{}, out_tensor_map{};
  ScalePlane row_scales{}, col_scales{};
  StreamKSchedule schedule{};
  GemmEpilogue epilogue{};
  bool swap_ab = false;         // swap-AB: rows of the plan are columns of the result
  bool uses_tma_store = false;  // 16-bit result, plain epilogue: by out_tensor_map
  std::int32_t row_count = 0, col_count = 0;
  const PlanGroup* groups = nullptr;  // by first_unit, in device memory; null: one product
  std::int32_t group_count = 0;

  float* partial = nullptr;             // stream-K partial sums, handed over to the next cluster
  unsigned long long* ready = nullptr;  // ... and their flags: `ticket` once stored
  unsigned long long ticket = 0;
  LaunchPredicate predicate{};
};

// Workspace for partial sums of `slots` warpgroups, 64 rows by `cols` columns each.
class SumSlots {
 public:
  SumSlots(const Exec& exec, std::int64_t slots, int cols);
  void give_to(GemmPlan& plan) const;

 private:
  std::size_t bytes_;
  Scratch memory_;
};

// gemm_copy_rows.cc. Whether rows are dense and lie one after the other, at any pitch: not a
// broadcast row, not overlapping, not in reverse order.
[[nodiscard]] bool has_plain_rows(const Matrix& matrix);
// Copies elements of one or two bytes, of any strides, into dense rows. Rows of `to` begin at
// multiples of 16 bytes and have room up to one.
void copy_rows(const Exec& exec, const Matrix& from, const Matrix& to);

// gemm_scales.cu: expands scales of any kind to a ScalePlane, for `rows` rows and K blocks of
// `block` elements. `memory` holds plane_floats() floats.
[[nodiscard]] std::int64_t plane_floats(std::int64_t rows, std::int64_t blocks);
void fill_plane(const Exec& exec, const QuantizedMatrix& from, std::int64_t block, float* memory);
// A 1.0F on the current device, for operands without a scale.
[[nodiscard]] float* scale_of_one();
// Writes the product of both per-tensor scales (1 for an operand without one), and a zero after it.
void multiply_scales(const Exec& exec, const GemmJob& job, float* to);

// gemm_grouped.cu: the groups of a job as groups of a plan, in device memory, and their number of
// units.
class PlanGroups {
 public:
  // Kernels read per-row (or per-column) scales in pairs: tiles must then begin at even rows
  // (columns).
  struct Even {
    bool rows, cols;
  };
  PlanGroups(const Exec& exec, const GemmJob& job, const GemmShape& shape, bool swap_ab, Even even);
  [[nodiscard]] std::int64_t units() const { return units_; }
  [[nodiscard]] std::int32_t count() const { return count_; }
  [[nodiscard]] const PlanGroup* on_device() const;

 private:
  std::int32_t count_ = 0;  // groups that have rows
  std::int64_t units_ = 0;
  std::optional<Scratch> memory_{};
};
// Whether every group begins at a tile boundary of the scales.
[[nodiscard]] bool groups_fit(const GemmJob& job);

// Formats of the FP8 tensor cores.
[[nodiscard]] constexpr bool is_fp8_format(const Format& format) {
  return format == e4m3fn || format == e5m2;
}

// gemm_fp8.cc: e4m3 and e5m2 with scales that are constant within 128 of K; called by gemm_bf16.cc,
// also bf16 or f16 in place of codes, with scales that are constant within 64. `shape` is one of
// kGemmShapes, or null to choose one.
[[nodiscard]] bool fits_fp8(const GemmJob& job);
// Conditions of all tensor-core GEMMs: sizes within the 32-bit coordinates of TMA.
[[nodiscard]] bool sizes_fit(const GemmJob& job);
void gemm_fp8(const Exec& exec, const GemmJob& job, const GemmShape* shape = nullptr,
              const LaunchPredicate* predicate = nullptr);
// The same with a given tile shape.
void gemm_in_tiles(const Exec& exec, const GemmJob& job, const GemmTiling& tiling,
                   const LaunchPredicate* predicate = nullptr);

// gemm_mx.cc: MX by MX, or MX by what fits_fp8 accepts.
[[nodiscard]] bool fits_mx(const GemmJob& job);
void gemm_mx(const Exec& exec, const GemmJob& job);
// gemm_mx_exact.cu: the same without exponent alignment, summed in f32.
void gemm_mx_exact(const Exec& exec, const GemmJob& job, const LaunchPredicate& predicate);

// gemm_recode.cu: codes of six bits or fewer whose values e4m3 holds, with scales that the FP8
// kernels accept.
[[nodiscard]] bool fits_recoded(const GemmJob& job);
void gemm_recoded(const Exec& exec, const GemmJob& job);

// gemm_bf16.cc: operands that bf16 or f16 holds exactly, summed in f32.
[[nodiscard]] bool fits_bf16(const GemmJob& job);
void gemm_bf16(const Exec& exec, const GemmJob& job);

// The same by FP4 weights with block scales, which stay in four bits until they are in registers:
// small M of anything that becomes bf16, and larger M in tiles.
[[nodiscard]] bool fits_small_m_by_fp4(const GemmJob& job);
[[nodiscard]] bool fits_fp4(const GemmJob& job);
void gemm_fp4(const Exec& exec, const GemmJob& job);
// The same for small M by FP8 weights, which stay in eight bits until they are in registers; a
// subset of fits_bf16.
[[nodiscard]] bool fits_small_m_by_fp8(const GemmJob& job);
void gemm_small_m_by_fp8(const Exec& exec, const GemmJob& job);

// gemm_small_m_fp4.cu: small M (GEMV, skinny GEMM) by FP4 weights: up to kMaxSmallMFp4 rows of bf16
// at multiples of 16 bytes, with a per-tensor scale.
inline constexpr std::int64_t kMaxSmallMFp4 = 56;
[[nodiscard]] bool fits_small_m_fp4_weights(const GemmOperand& weights);
[[nodiscard]] bool is_nvfp4(const QuantizedMatrix& weights);
void gemm_small_m_fp4(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// gemm_small_m_fp8.cu: the same by FP8 weights, MX or with f32 scales for all of K or for 128 of
// it, up to kMaxSmallMFp8 rows: kernels for more would spill registers.
inline constexpr std::int64_t kMaxSmallMFp8 = 32;
[[nodiscard]] bool fits_small_m_fp8_weights(const GemmOperand& weights);
void gemm_small_m_fp8(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// gemm_fp4_tiles.cc: any M by FP4 weights, with wgmma on tiles; weights as for
// fits_small_m_fp4_weights, where TMA can read them.
[[nodiscard]] bool fits_fp4_tiles(const GemmJob& job);
void gemm_fp4_tiles(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// Kernel instantiations: gemm_bf16.cu, gemm_f16.cu; gemm_fp8_*.cu, one per pair of formats. f16
// kernels have scales at the end only, and so has kSquare, which exists for bf16 and f16 alone.
void launch_bf16(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_f16(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e4m3_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e4m3_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);

}  // namespace octavo::cuda
