// One block of a GEMM's result, computed by one thread: a function for each kind of blocking
// (gemm_blocking.h). The driver calls one of them for every block.
#pragma once

#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/gemm/gemm_epilogue.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// What all blocks of a call share.
struct GemmCall {
  const GemmBlocking& blocking;
  const GemmJob& job;
  const GemmOperandRows &a, &b;
  const GemmEpilogue& epilogue;
  PackedA packed_a{};
};
struct GemmBlock {
  std::int64_t row, col, rows, cols;
  bool b_is_packed = false;  // in the scratch memory, by the block before, where one pass packs it
};
using ComputeBlock = void (*)(const GemmCall&, const GemmBlock&, const GemmScratch&);

// Large M. Panels of A are packed for each block; or before all blocks, by pack_a, a row
// panel at a time; or all of K is one block. A few rows by packed weights are packed for the same.
void packed_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch);
void packed_a_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch);
void register_decode_block(const GemmCall& call, const GemmBlock& block,
                           const GemmScratch& scratch);
void whole_k_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch);
void pack_a(const GemmCall& call, std::int64_t panel, const GemmScratch& scratch);
// A few rows of A, of which pieces of K are packed before all blocks, by lines of B.
void lines_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch);
void pack_lines_a(const GemmCall& call, std::int64_t piece, const GemmScratch& scratch);

// Small M: along the rows of B, or along contiguous columns of it.
void small_m_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch);
void small_m_columns_block(const GemmCall& call, const GemmBlock& block,
                           const GemmScratch& scratch);

}  // namespace octavo::cpu
