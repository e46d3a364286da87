// Isa::subtract_f64 over vectors of f64 (`D`): tiles of kRows x kF64Panel sums in registers, one
// multiply-add for a vector and a k. With AVX-512 8 x 2 vectors: sixteen multiply-adds for two
// loads and eight broadcasts, at two a cycle; with AVX2 2 x 4.
//
// Every sum is one chain of fused multiply-adds in order of k.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cpu {
namespace {

template <typename D, int kRows>
[[gnu::always_inline]] inline void subtract_f64_tile(const double* a, const double* b,
                                                     std::int64_t depth, double* c,
                                                     std::int64_t pitch) {
  constexpr int kVectors = static_cast<int>(kF64Panel) / D::kLanes;
  typename D::Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = D::zero();
  for (std::int64_t k = 0; k < depth; ++k, a += kF64Panel, b += kF64Panel) {
    typename D::Vector columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = D::load(b + v * D::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename D::Vector row = D::splat(a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = D::multiply_add(row, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      double* const to = c + r * pitch + v * D::kLanes;
      D::store(D::minus(D::load(to), sums[r][v]), to);
    }
}

template <typename D, int kRows>
void subtract_f64_panels(const F64Update& update) {
  static_assert(kF64Panel % kRows == 0);
  const std::int64_t panel = update.depth * kF64Panel;
  for (std::int64_t col = 0; col < update.cols; col += kF64Panel) {
    const double* const b = update.b + col / kF64Panel * panel;
    const std::int64_t cols = update.cols - col < kF64Panel ? update.cols - col : kF64Panel;
    for (std::int64_t row = 0; row < update.rows; row += kRows) {
      const double* const a = update.a + row / kF64Panel * panel + row % kF64Panel;
      double* const c = update.c + row * update.pitch + col;
      const std::int64_t rows = update.rows - row < kRows ? update.rows - row : kRows;
      if (rows == kRows && cols == kF64Panel) {
        subtract_f64_tile<D, kRows>(a, b, update.depth, c, update.pitch);
        continue;
      }
      double staged[kRows * kF64Panel] = {};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < cols; ++i) staged[r * kF64Panel + i] = c[r * update.pitch + i];
      subtract_f64_tile<D, kRows>(a, b, update.depth, staged, kF64Panel);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < cols; ++i) c[r * update.pitch + i] = staged[r * kF64Panel + i];
    }
  }
}

}  // namespace
}  // namespace octavo::cpu
