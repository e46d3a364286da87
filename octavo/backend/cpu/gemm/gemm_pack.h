// Packing: rows of an operand into the packed panels that microkernels read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Interleaves rows into a panel: words of `bytes` bytes, [count][words] to [words][count].
void interleave_words(const std::byte* const* rows, int count, std::int64_t words,
                      std::int64_t bytes, std::byte* panel);

// A piece of a row (or its codes), zero-padded to `wanted` elements because kernels read whole K
// steps.
const std::byte* padded(const GemmOperandRows& operand, bool as_codes, std::int64_t bytes,
                        std::int64_t row, std::int64_t k, std::int64_t n, std::int64_t wanted,
                        std::byte* stage);

// The same for two codes of four bits in a byte; k is even, and `wanted` a multiple of 16.
const std::byte* padded_nibbles(const GemmOperandRows& operand, std::int64_t row, std::int64_t k,
                                std::int64_t n, std::int64_t wanted, std::byte* stage);

// Packs MR rows of A or NR rows of B into one panel: [depth / step][count][step].
void pack_panel(const GemmMethod& method, PanelOf side, const GemmOperandRows& operand,
                std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                std::int64_t wanted, std::byte* stage, std::byte* panel);

// The scales of `count` rows, [runs][count]; those beyond the edge are 0.
void pack_scales(const GemmOperandRows& operand, std::int64_t first_row, int count, std::int64_t k,
                 std::int64_t run, std::int64_t runs, float* to);
// Those of all of K.
void pack_all_scales(const GemmOperandRows& operand, std::int64_t first_row, int count,
                     std::int64_t run, std::int64_t runs, float* to);

}  // namespace octavo::cpu
