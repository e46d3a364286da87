// Blocks of small M and GEMV: rows are multiplied along K where they are in memory; or, where the
// columns of B are contiguous, columns times elements of A are accumulated.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_blocks.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"

namespace octavo::cpu {
namespace {

// A piece of a row of A, zero-padded; longer than kMaxKc in several pieces, one after another.
const std::byte* row_of_a(const GemmOperandRows& a, std::int64_t bytes, std::int64_t row,
                          std::int64_t k, std::int64_t n, std::int64_t wanted, std::byte* stage) {
  if (wanted <= kMaxKc) return padded(a, false, bytes, row, k, n, wanted, stage);
  for (std::int64_t done = 0; done < wanted; done += kMaxKc) {
    const std::int64_t some = std::min(kMaxKc, wanted - done);
    std::byte* const to = stage + done * bytes;
    const std::byte* from = padded(a, false, bytes, row, k + done,
                                   std::clamp<std::int64_t>(n - done, 0, some), some, to);
    if (from != to) std::memcpy(to, from, static_cast<std::size_t>(some * bytes));
  }
  return stage;
}

}  // namespace

void small_m_block(const GemmCall& call, const GemmBlock& block, const GemmScratch& scratch) {
  const auto& [c, job, a, b, epilogue, packed_a] = call;
  const bool as_codes = c.dot_codes != nullptr && !c.dots_nibbles;
  const std::int64_t bytes = packed_bytes(c.method->packed_type), depth = job.a.cols();
  const std::int64_t pitch = c.kc * bytes;
  const std::int64_t padded_cols = round_up(block.cols, kDotCols);
  float *const sums = scratch.sums, *const a_scales = scratch.a_scales;
  float* const b_scales = scratch.b_scales;
  const std::byte* a_rows[kSmallM];
  std::memset(sums, 0, static_cast<std::size_t>(block.rows * padded_cols) * sizeof(float));
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    const std::int64_t run = std::min(c.run, round_up(n, kDotStep));
    const std::int64_t runs = blocks(n, run), wanted = run * runs;
    for (std::int64_t row = 0; row < block.rows; ++row) {
      a_rows[row] = row_of_a(a, bytes, row, k, n, wanted, scratch.a_packed + row * pitch);
      if (!c.scaled) a.scales(row, k, run, runs, a_scales + row * runs, 1);
    }
    for (std::int64_t col = 0; col < padded_cols; col += kDotCols) {
      DotJob dot{};
      dot.run = run;
      dot.runs = runs;
      dot.pitch = padded_cols;
      dot.a_scale_changes = a.scales_change();
      if (c.dot_codes != nullptr) dot.ahead = kDotCols * job.b.elements().row_pitch;
      if (!c.scaled) dot.b_scale = b_scales;
      for (int i = 0; i < kDotCols; ++i) {
        const std::int64_t row = block.col + col + i;
        std::byte* const stage = scratch.b_packed + i * pitch;
        dot.b[i] = c.dots_nibbles
                       ? padded_nibbles(b, row, k, n, wanted, stage)
                       : padded(b, as_codes, as_codes ? 1 : bytes, row, k, n, wanted, stage);
        if (c.scaled) continue;
        const bool in_rows = c.dot_codes != nullptr && c.method->dot_scale_rows;
        float* const scales = b_scales + i * (in_rows ? runs : 1);
        dot.b_scale_rows[i] = scales;
        b.scales(std::min(row, b.rows() - 1), k, run, runs, scales, in_rows ? 1 : kDotCols);
      }
      for (std::int64_t row = 0; row < block.rows; row += kDotRows) {
        dot.rows = static_cast<int>(std::min<std::int64_t>(kDotRows, block.rows - row));
        for (int i = 0; i < dot.rows; ++i) {
          dot.a[i] = a_rows[row + i];
          if (!c.scaled) dot.a_scale[i] = a_scales + (row + i) * runs;
        }
        dot.sums = sums + row * padded_cols + col;
        (c.dot_codes != nullptr ? c.dot_codes : c.method->dot)(dot);
      }
    }
  }
  for (std::int64_t row = 0; row < block.rows; ++row)
    epilogue(block.row + row, block.col, block.cols, sums + row * padded_cols);
}

// Small M by a column-major B: accumulates contiguous columns of B times elements of A, with
// K-unrolling by kUnrollK.
void small_m_columns_block(const GemmCall& call, const GemmBlock& block,
                           const GemmScratch& scratch) {
  const auto& [c, job, a, b, epilogue, packed_a] = call;
  constexpr std::int64_t kUnrollK = 4;
  const std::int64_t depth = job.a.cols(), packed_size = packed_bytes(PackedType::f32);
  alignas(64) float staged[kUnrollK][kSmallMNc];
  float* const sums = scratch.sums;
  std::memset(sums, 0, static_cast<std::size_t>(block.rows * block.cols) * sizeof(float));
  for (std::int64_t k = 0; k < depth; k += c.kc) {
    const std::int64_t n = std::min(c.kc, depth - k);
    const float* a_rows[kSmallM];
    for (std::int64_t row = 0; row < block.rows; ++row)
      a_rows[row] = reinterpret_cast<const float*>(
          a.piece(row, k, n, scratch.a_packed + row * c.kc * packed_size));
    for (std::int64_t i = 0; i < n; i += kUnrollK) {
      const std::int64_t count = std::min(kUnrollK, n - i);
      const float* column[kUnrollK];
      for (std::int64_t j = 0; j < count; ++j)
        column[j] = b.column(block.col, k + i + j, block.cols, staged[j]);
      for (std::int64_t row = 0; row < block.rows; ++row) {
        float* __restrict to = sums + row * block.cols;
        const float* x = a_rows[row] + i;
        if (count == kUnrollK) {
          const float *y0 = column[0], *y1 = column[1], *y2 = column[2], *y3 = column[3];
          for (std::int64_t col = 0; col < block.cols; ++col)
            to[col] = to[col] + x[0] * y0[col] + x[1] * y1[col] + x[2] * y2[col] + x[3] * y3[col];
        } else {
          for (std::int64_t j = 0; j < count; ++j)
            for (std::int64_t col = 0; col < block.cols; ++col) to[col] += x[j] * column[j][col];
        }
      }
    }
  }
  for (std::int64_t row = 0; row < block.rows; ++row)
    epilogue(block.row + row, block.col, block.cols, sums + row * block.cols);
}

}  // namespace octavo::cpu
