// Blocks of small M by the skinny kernel (five to sixteen rows): a piece of A, interleaved, stays
// in L1 while the rows of B pass; each is decoded there once, and multiplied by all rows of A.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kF32 = sizeof(float);
// Rows of B that memory is asked for before they are multiplied.
constexpr std::int64_t kAhead = 3;

// A piece of all rows of A, `wanted` elements each, as [wanted / kSkinnyStep][rows][kSkinnyStep].
void pack_a_piece(const GemmOperandRows& a, std::int64_t rows, std::int64_t k, std::int64_t n,
                  std::int64_t wanted, float* to) {
  alignas(64) std::byte stage[kMaxKc * kF32];
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::byte* const from = padded(a, false, kF32, row, k, n, wanted, stage);
    for (std::int64_t i = 0; i < wanted; i += kSkinnyStep)
      std::memcpy(to + i * rows + row * kSkinnyStep, from + i * kF32,
                  static_cast<std::size_t>(kSkinnyStep * kF32));
  }
}

}  // namespace

void skinny_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const auto& [c, job, a, b, epilogue, packed_a] = call;
  const std::int64_t depth = job.a.cols(), rows = block.rows;
  auto* const a_piece = reinterpret_cast<float*>(scratch.a_packed);
  float* const sums = scratch.sums;  // [cols][kSkinnyRows]
  alignas(64) float finished[kSmallMNc];
  std::memset(sums, 0, static_cast<std::size_t>(block.cols * kSkinnyRows * kF32));
  SkinnyJob skinny{};
  skinny.a = a_piece;
  skinny.rows = static_cast<int>(rows);
  if (!c.scaled) skinny.b_scale = scratch.b_scales;
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    skinny.run = std::min(c.run, round_up(n, kSkinnyStep));
    skinny.runs = blocks(n, skinny.run);
    const std::int64_t wanted = skinny.run * skinny.runs;
    pack_a_piece(a, rows, k, n, wanted, a_piece);
    for (std::int64_t col = 0; col < block.cols; ++col) {
      const std::int64_t row = block.col + col;
      b.prefetch_row(row + kAhead, k, n);
      skinny.b = reinterpret_cast<const float*>(
          padded(b, false, kF32, row, k, n, wanted, scratch.b_packed));
      if (!c.scaled) b.scales(row, k, skinny.run, skinny.runs, scratch.b_scales, 1);
      skinny.sums = sums + col * kSkinnyRows;
      c.method->skinny(skinny);
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < block.cols; ++col)
      finished[col] = sums[col * kSkinnyRows + row];
    epilogue(block.row + row, block.col, block.cols, finished);
  }
}

}  // namespace octavo::cpu
