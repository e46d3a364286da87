// A product as the tensor-core kernels take it. The "rows" of a plan are what warpgroups split
// among themselves, its "columns" are what each of them multiplies all of: A and B, or B and A where
// that fits better (`turned`), in which case the result is stored transposed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "octavo/backend/cuda/gemm_schedule.h"
#include "octavo/backend/gemm_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// The scales of an operand, looked up by row and by block of 128 of K.
struct ScaleTable {
  const unsigned char* data = nullptr;
  DType dtype = DType::f32;  // code: e8m0
  std::int64_t row_pitch = 0, block_pitch = 0;  // bytes
  std::uint32_t rows_each = 1, blocks_each = 1;
};

// How scales vary within a tile of the result.
enum class ScaleKind : std::uint8_t {
  at_end,       // not along K: sums are multiplied once
  by_row,       // along K, one for all columns of a tile
  by_column,    // along K, one for all rows of a tile
  by_element,   // along K, both
};

// What a sum becomes after its scales.
struct GemmFinish {
  Matrix out{}, bias{}, residual{};
  bool activates = false;
  ProducerKind activation = ProducerKind::relu;

  [[nodiscard]] constexpr bool is_plain() const {
    return bias.data == nullptr && residual.data == nullptr && !activates;
  }
};

struct GemmPlan {
  CUtensorMap rows_map{}, cols_map{}, out_map{};
  ScaleTable row_scales{}, col_scales{};
  GemmSchedule schedule{};
  GemmFinish finish{};
  bool turned = false;       // rows of the plan are columns of the result
  bool stores_boxes = false;  // by the copy engine, through out_map
  std::int32_t row_count = 0, col_count = 0;

  float* partial = nullptr;           // sums that one cluster leaves for the next
  unsigned long long* ready = nullptr;  // ... and that they are there: `ticket`
  unsigned long long ticket = 0;
};

// One compiled kernel.
struct GemmShape {
  int warpgroups = 3;  // of 64 rows each
  int cols = 128;
  int blocks = 2;  // of a cluster; they share the rows

  [[nodiscard]] constexpr int rows() const { return warpgroups * 64; }
  constexpr bool operator==(const GemmShape&) const = default;
};

// Clusters of `blocks` blocks that run at one time on the device of an Exec.
[[nodiscard]] int clusters_on(const Exec& exec, int blocks);

// The map of a matrix for the copy engine: boxes of `box_rows` rows and 128 bytes, swizzled.
[[nodiscard]] CUtensorMap map_of(const Matrix& matrix, int box_rows);
// Whether there can be one.
[[nodiscard]] bool can_be_mapped(const Matrix& matrix);

// gemm_fp8.cc: e4m3 and e5m2 with scales that the kernels can look up.
[[nodiscard]] bool fits_fp8(const GemmJob& job);
void gemm_fp8(const Exec& exec, const GemmJob& job);

// gemm_fp8_*.cu, a pair of formats each: one of the shapes of kGemmShapes.
void launch_e4m3_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e4m3_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e4m3(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);
void launch_e5m2_e5m2(const Exec&, const GemmPlan&, const GemmShape&, ScaleKind);

inline constexpr GemmShape kWide{.warpgroups = 3, .cols = 128, .blocks = 2},
    kNarrow{.warpgroups = 1, .cols = 128, .blocks = 1}, kSlim{.warpgroups = 1, .cols = 64, .blocks = 1};

}  // namespace octavo::cuda
