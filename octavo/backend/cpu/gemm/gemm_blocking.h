// How a product is cut into blocks, where its scales are multiplied, and the memory that takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Rows up to which packing B costs more than it saves.
inline constexpr std::int64_t kSmallM = 16;
inline constexpr std::int64_t kSmallMNc = 256;  // of a block, then

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t blocks(std::int64_t n, std::int64_t block) {
  return (n + block - 1) / block;
}

struct GemmBlocking {
  const GemmMethod* method = nullptr;
  bool small_m = false;
  DotKernel dot_codes = nullptr;  // if given, B stays as it is
  std::int64_t kc = kGemmKc;      // products summed before blocks change
  AppliedScales applied_scales = AppliedScales::none;
  bool scaled = false;          // sums are not multiplied by scales
  std::int64_t run = kGemmKc;   // between two scales, where they are not
  std::int64_t mc = 0, nc = 0;  // of a block of the result
  std::int64_t row_blocks = 0, col_blocks = 0;
  int threads = 1;
};
GemmBlocking choose_blocking(const GemmMethod& method, const Exec& exec, const GemmJob& job);

// Memory of one thread. With many rows lanes of A are one panel and those of B a block of them;
// with few, lanes of A are all its rows and those of B kDotCols rows.
struct GemmScratch {
  float* sums = nullptr;
  std::byte *a_packed = nullptr, *b_packed = nullptr;
  std::byte* stage = nullptr;  // rows on their way into a panel
  float *a_scales = nullptr, *b_scales = nullptr;
  std::int64_t bytes = 0;  // of all of it, a multiple of 64
};
GemmScratch scratch_at(std::byte* memory, const GemmBlocking& c);

}  // namespace octavo::cpu
