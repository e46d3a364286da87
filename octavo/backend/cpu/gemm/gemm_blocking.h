// GEMM blocking: mc, nc and kc of a product, where its scales are applied, and the scratch memory
// of a thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Small M: up to this many rows packing B costs more than it saves.
inline constexpr std::int64_t kSmallM = 16;
inline constexpr std::int64_t kSmallMNc = 256;  // nc at small M

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t blocks(std::int64_t n, std::int64_t block) {
  return (n + block - 1) / block;
}

struct GemmBlocking {
  const GemmMethod* method = nullptr;
  bool small_m = false;
  // All of K in one block: packed panels of B stay in L2 while all rows of A pass, and sums of a
  // row panel in L1. For matrix tiles, whose sums are costly to load and store.
  bool whole_k = false;
  // A is packed before all blocks, packed_rows rows at a time: panels of B stay in L2 while all of
  // them pass. For matrix tiles, and for methods with a kc of their own.
  bool packs_a = false;
  std::int64_t packed_rows = 0;  // the rows of A where it is not packed
  bool one_k_block = false;
  // The method is another one's small_m: rows of B are decoded and multiplied in one kernel.
  bool multiplies_rows = false;
  // With whole_k: few rows of A by lines of B (GemmMethod::multiply_lines, gemm_lines.cc).
  MultiplyLines lines = nullptr;
  DotKernel dot_codes = nullptr;  // GEMV by codes: if given, B is neither decoded nor packed
  bool dots_nibbles = false;      // that reads two codes of four bits in a byte
  std::int64_t kc = kGemmKc;      // K blocking: products summed before the next panels are packed
  AppliedScales applied_scales = AppliedScales::none;
  // To A: the same, or of GEMV by codes those of tiles, where they are exact. A is one row, and B
  // is all that counts.
  AppliedScales applied_to_a = AppliedScales::none;
  bool scaled = false;          // scales are all applied to packed elements, none to sums
  std::int64_t run = kGemmKc;   // products between two scales, where sums are multiplied by them
  std::int64_t mc = 0, nc = 0;  // M and N blocking: a block of the result
  std::int64_t row_blocks = 0, col_blocks = 0;
  int threads = 1;

  // With packs_a: M is so small that panels of B are read once: they need not stay in L2.
  [[nodiscard]] bool streams_b() const { return !whole_k && mc <= 4 * method->tile.rows; }
};
// Elements of K of a few rows of A that are packed at a time, for lines of B.
inline constexpr std::int64_t kLinePieceK = 512;
GemmBlocking choose_blocking(const GemmMethod& method, const Exec& exec, const GemmJob& job);

// A, or packed_rows rows of it: [block of K][row panel], and the scales of each panel.
struct PackedA {
  std::byte* panels = nullptr;
  float* scales = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;   // a multiple of the tile's
  std::int64_t bytes = 0;  // in total, a multiple of 64; 0 where A is not packed first
};
PackedA packed_a_at(std::byte* memory, const GemmBlocking& c, const GemmJob& job);

// Scratch memory of one thread. a_packed is one packed panel of A and b_packed the packed block of
// B; at small M they are all rows of A and kDotCols rows of B, not interleaved.
struct GemmScratch {
  float* sums = nullptr;
  std::byte *a_packed = nullptr, *b_packed = nullptr;
  std::byte* stage = nullptr;  // decoded rows before they are interleaved into a panel
  float *a_scales = nullptr, *b_scales = nullptr;
  std::int64_t bytes = 0;  // in total, a multiple of 64
};
GemmScratch scratch_at(std::byte* memory, const GemmBlocking& c);

}  // namespace octavo::cpu
