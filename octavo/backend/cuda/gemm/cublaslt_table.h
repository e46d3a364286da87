// Table of GEMM shapes for which cuBLASLt was faster than octavo's kernels on an H200.
// bench/cuda/cublaslt_table.py times both and prints the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace octavo::cuda {

// Operand kind of a GEMM, as far as it decides which is faster.
enum class GemmKind : std::uint8_t {
  bf16,
  f16,
  fp8_tensor,  // e4m3 or e5m2, a per-tensor scale for each operand
  fp8_row,     // a per-row scale for each operand
};

// Sizes in [from, below).
struct GemmRange {
  std::int64_t from = 0, below = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] constexpr bool has(std::int64_t size) const { return from <= size && size < below; }
};

struct GemmChoice {
  GemmKind kind = GemmKind::bf16;
  GemmRange m{}, n{}, k{};
  bool library = false;

  [[nodiscard]] constexpr bool has(GemmKind asked, std::int64_t rows, std::int64_t cols,
                                   std::int64_t depth) const {
    return kind == asked && m.has(rows) && n.has(cols) && k.has(depth);
  }
};

// The first row that matches decides; shapes that no row matches are for octavo's kernels. Data:
// bench/results/choices-h200-2026-11-17.json.
inline constexpr GemmChoice kGemmChoices[] = {
    {.kind = GemmKind::bf16,
     .m = {.from = 16, .below = 32},
     .n = {.below = 2048},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 16, .below = 32}, .n = {.from = 2048}, .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 32, .below = 91}, .n = {.below = 2048}, .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 32, .below = 91},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 32, .below = 91},
     .n = {.from = 2048, .below = 5793},
     .k = {.from = 5793},
     .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 32, .below = 91}, .n = {.from = 11585}, .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 91, .below = 181},
     .n = {.below = 5793},
     .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 91, .below = 181},
     .n = {.from = 5793, .below = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 91, .below = 181},
     .n = {.from = 5793, .below = 11585},
     .k = {.from = 5793},
     .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 91, .below = 181},
     .n = {.from = 11585},
     .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 181, .below = 2048}, .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 2048, .below = 5793},
     .n = {.below = 11585},
     .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 2048, .below = 5793},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 5793}, .n = {.below = 5793}, .library = true},
    {.kind = GemmKind::bf16,
     .m = {.from = 5793},
     .n = {.from = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::f16, .m = {.from = 16, .below = 32}, .library = true},
    {.kind = GemmKind::f16, .m = {.from = 32, .below = 91}, .n = {.below = 2048}, .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 32, .below = 91},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 32, .below = 91},
     .n = {.from = 11585},
     .k = {.from = 5793},
     .library = true},
    {.kind = GemmKind::f16, .m = {.from = 91, .below = 181}, .n = {.below = 5793}, .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 91, .below = 181},
     .n = {.from = 5793, .below = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::f16, .m = {.from = 91, .below = 181}, .n = {.from = 11585}, .library = true},
    {.kind = GemmKind::f16, .m = {.from = 181, .below = 2048}, .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 2048, .below = 5793},
     .n = {.below = 11585},
     .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 2048, .below = 5793},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::f16, .m = {.from = 5793}, .n = {.below = 5793}, .library = true},
    {.kind = GemmKind::f16,
     .m = {.from = 5793},
     .n = {.from = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 16, .below = 32},
     .n = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 16, .below = 32},
     .n = {.from = 2048, .below = 5793},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 16, .below = 32},
     .n = {.from = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 32, .below = 91},
     .n = {.below = 2048},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 32, .below = 91},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 91, .below = 181},
     .n = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 91, .below = 181},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 181, .below = 362},
     .n = {.below = 2048},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 181, .below = 362},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 181, .below = 362},
     .n = {.from = 2048, .below = 5793},
     .k = {.from = 5793},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 181, .below = 362},
     .n = {.from = 5793, .below = 11585},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 181, .below = 362},
     .n = {.from = 11585},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 362, .below = 724},
     .n = {.below = 11585},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 362, .below = 724},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 724, .below = 2048},
     .n = {.below = 2048},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 724, .below = 2048},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 2048, .below = 5793},
     .n = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_tensor,
     .m = {.from = 5793},
     .n = {.below = 2048},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 91, .below = 181},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 181, .below = 362},
     .n = {.from = 5793, .below = 11585},
     .k = {.from = 2048},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 181, .below = 362},
     .n = {.from = 11585},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 362, .below = 724},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 362, .below = 724},
     .n = {.from = 5793, .below = 11585},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 362, .below = 724},
     .n = {.from = 11585},
     .k = {.below = 2048},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 724, .below = 2048},
     .n = {.from = 2048, .below = 5793},
     .k = {.below = 5793},
     .library = true},
    {.kind = GemmKind::fp8_row,
     .m = {.from = 2048, .below = 5793},
     .n = {.below = 2048},
     .k = {.below = 5793},
     .library = true},
};

template <std::size_t count>
constexpr bool prefers_cublaslt(const GemmChoice (&choices)[count], GemmKind kind, std::int64_t m,
                                std::int64_t n, std::int64_t k) {
  for (const GemmChoice& choice : choices)
    if (choice.has(kind, m, n, k)) return choice.library;
  return false;
}

constexpr bool prefers_cublaslt(GemmKind kind, std::int64_t m, std::int64_t n, std::int64_t k) {
  return prefers_cublaslt(kGemmChoices, kind, m, n, k);
}

// Whether two rows match a common shape: then the order of rows would matter.
constexpr bool overlap(const GemmRange& one, const GemmRange& other) {
  return one.from < other.below && other.from < one.below;
}
constexpr bool overlap(const GemmChoice& one, const GemmChoice& other) {
  return one.kind == other.kind && overlap(one.m, other.m) && overlap(one.n, other.n) &&
         overlap(one.k, other.k);
}

}  // namespace octavo::cuda
