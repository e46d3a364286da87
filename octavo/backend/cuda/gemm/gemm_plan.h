// A product as the tensor-core kernels take it. The "rows" of a plan are what warpgroups split
// among themselves, its "columns" are what each of them multiplies all of: A and B, or B and A
// where that fits better (`turned`), in which case the result is stored transposed.
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

// The scales of an operand as kernels read them: f32, block k of K (128 bytes of the
// operand) after block k - 1, and in
// each one number for every row (`each` is 1: `pitch` floats apart, at multiples of 16 bytes, which
// the copy engine wants) or one for `each` rows, wherever that lies.
struct ScalePlane {
  const float* data = nullptr;
  std::int64_t pitch = 0;      // from block to block, in floats
  std::int64_t row_pitch = 1;  // from number to number, in floats
  std::int32_t each = 1;       // rows that share a number
  std::int32_t rows = 0;       // that there are numbers for
};

// What a sum becomes after its scales.
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

// Whether a kernel does anything is decided on the device: if `number` is `wanted`.
struct GemmGate {
  const unsigned* number = nullptr;  // null: it does
  unsigned wanted = 0;
};

// One of several products, in the rows and columns of a plan.
struct PlanGroup {
  std::int32_t row = 0, col = 0;  // where its first tile begins: at it, or a row before
  std::int32_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  std::int32_t row_shift = 0, col_shift = 0;  // from there to where its result is
  std::int32_t first_unit = 0, unit_rows = 0;
};

struct GemmPlan {
  CUtensorMap rows_tensor_map{}, cols_tensor_map{}, out_tensor_map{};
  ScalePlane row_scales{}, col_scales{};
  StreamKSchedule schedule{};
  GemmEpilogue epilogue{};
  bool swap_ab = false;  // rows of the plan are columns of the result
  bool uses_tma_store =
      false;  // 16 bits and nothing else to do: by the copy engine, through out_tensor_map
  std::int32_t row_count = 0, col_count = 0;
  const PlanGroup* groups = nullptr;  // by first_unit, on the device; none: one product
  std::int32_t group_count = 0;

  float* partial = nullptr;             // sums that one cluster leaves for the next
  unsigned long long* ready = nullptr;  // ... and that they are there: `ticket`
  unsigned long long ticket = 0;
  GemmGate gate{};
};

// Memory for sums that are left, of so many warpgroups with 64 rows and `cols` columns each.
class SumSlots {
 public:
  SumSlots(const Exec& exec, std::int64_t slots, int cols);
  void give_to(GemmPlan& plan) const;

 private:
  std::size_t bytes_;
  Scratch memory_;
};

// gemm_copy_rows.cc.
// Whether rows lie one after the other, in any distance, and have no gaps within: not the same row
// again and again, rows that overlap, or backwards.
[[nodiscard]] bool has_plain_rows(const Matrix& matrix);
// Elements of one or two bytes, whatever their strides, as plain rows. Those of `to` begin at
// multiples of 16 bytes and end at them.
void copy_rows(const Exec& exec, const Matrix& from, const Matrix& to);

// gemm_scales.cu: scales of any kind as a plane; `rows` of the operand, so many blocks of `block`
// of K. `memory` has room for plane_floats of them.
[[nodiscard]] std::int64_t plane_floats(std::int64_t rows, std::int64_t blocks);
void fill_plane(const Exec& exec, const QuantizedMatrix& from, std::int64_t block, float* memory);
// On the current device: for operands that have no scale.
[[nodiscard]] float* scale_of_one();
// The product of the one scale that each operand has, one where it has none, and a zero after it.
void multiply_scales(const Exec& exec, const GemmJob& job, float* to);

// gemm_grouped.cu: groups of a job as those of a plan, and how many units they have.
class PlanGroups {
 public:
  // Kernels read scales of rows, or of columns, two at a time where each has its own: tiles then
  // begin at even ones.
  struct Even {
    bool rows, cols;
  };
  PlanGroups(const Exec& exec, const GemmJob& job, const GemmShape& shape, bool swap_ab, Even even);
  [[nodiscard]] std::int64_t units() const { return units_; }
  [[nodiscard]] std::int32_t count() const { return count_; }
  [[nodiscard]] const PlanGroup* on_device() const;

 private:
  std::int32_t count_ = 0;  // that have rows
  std::int64_t units_ = 0;
  std::optional<Scratch> memory_{};
};
// Whether tiles of scales begin where groups do.
[[nodiscard]] bool groups_fit(const GemmJob& job);

// What the FP8 tensor cores multiply.
[[nodiscard]] constexpr bool is_fp8_format(const Format& format) {
  return format == e4m3fn || format == e5m2;
}

// gemm_fp8.cc: e4m3 and e5m2 with scales that do not change within 128 of K; from gemm_bf16.cc also
// bf16 or f16 in the place of codes, with scales that do not change within 64. A shape is one of
// kGemmShapes, or null for the one that suits.
[[nodiscard]] bool fits_fp8(const GemmJob& job);
// What all products on the tensor cores want: sizes that the copy engine counts in.
[[nodiscard]] bool sizes_fit(const GemmJob& job);
void gemm_fp8(const Exec& exec, const GemmJob& job, const GemmShape* shape = nullptr,
              const GemmGate* gate = nullptr);
// The same in these tiles.
void gemm_in_tiles(const Exec& exec, const GemmJob& job, const GemmTiling& tiling,
                   const GemmGate* gate = nullptr);

// gemm_mx.cc: MX by MX, or MX by what fits_fp8 takes.
[[nodiscard]] bool fits_mx(const GemmJob& job);
void gemm_mx(const Exec& exec, const GemmJob& job);
// gemm_mx_exact.cu: the same with the numbers as they are, summed in f32.
void gemm_mx_exact(const Exec& exec, const GemmJob& job, const GemmGate& gate);

// gemm_recode.cu: codes of fewer bits that e4m3 holds, with scales that the kernels of FP8 take.
[[nodiscard]] bool fits_recoded(const GemmJob& job);
void gemm_recoded(const Exec& exec, const GemmJob& job);

// gemm_bf16.cc: numbers that bf16 or f16 holds, summed in f32.
[[nodiscard]] bool fits_bf16(const GemmJob& job);
void gemm_bf16(const Exec& exec, const GemmJob& job);

// The same by FP4 with the scales of blocks, which stays in four bits on its way: few rows of
// anything that becomes bf16, and more.
[[nodiscard]] bool fits_small_m_by_fp4(const GemmJob& job);
[[nodiscard]] bool fits_fp4(const GemmJob& job);
void gemm_fp4(const Exec& exec, const GemmJob& job);
// The same for few rows by FP8, which stays in eight bits; of what fits_bf16.
[[nodiscard]] bool fits_small_m_by_fp8(const GemmJob& job);
void gemm_small_m_by_fp8(const Exec& exec, const GemmJob& job);

// gemm_small_m_fp4.cu: what it multiplies by, and that: up to so many rows of bf16 at multiples of
// 16 bytes, with a scale for all of them.
inline constexpr std::int64_t kMaxSmallMFp4 = 56;
[[nodiscard]] bool fits_small_m_fp4_weights(const GemmOperand& weights);
[[nodiscard]] bool is_nvfp4(const QuantizedMatrix& weights);
void gemm_small_m_fp4(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// gemm_small_m_fp8.cu: the same by FP8, MX or with f32 scales for all of K or for 128 of it, up to
// so many rows: kernels for more would not keep to registers.
inline constexpr std::int64_t kMaxSmallMFp8 = 32;
[[nodiscard]] bool fits_small_m_fp8_weights(const GemmOperand& weights);
void gemm_small_m_fp8(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// gemm_fp4_tiles.cc: the same for any number of rows, on the tensor cores that take operands of 64
// rows; of what fits_small_m_fp4_weights, where the copy engine can read it.
[[nodiscard]] bool fits_fp4_tiles(const GemmJob& job);
void gemm_fp4_tiles(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job);

// gemm_bf16.cu, gemm_f16.cu; gemm_fp8_*.cu, a pair of formats each. f16 has scales at the end only,
// and so has kSquare, which those two have.
void launch_bf16(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_f16(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e4m3_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e4m3_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);

}  // namespace octavo::cuda
