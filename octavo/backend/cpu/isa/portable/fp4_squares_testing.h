// A test of Isa::fp4_squares, for each instruction set: errors found without codes are those of
// codes, for every u from 1 to 8, and for a sample of smaller and of larger ones.
#pragma once

#include <gtest/gtest.h>

#include <bit>

#include "octavo/backend/cpu/isa.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {

// Of sixteen numbers, each `step` places above the one before.
inline bool has_errors_of_codes(Fp4Squares squares, std::uint32_t bits, std::uint32_t step) {
  alignas(16) float u[16], sums[4], factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
  FitRun<float> run;
  for (std::uint32_t i = 0; i < 16; ++i) {
    u[i] = std::bit_cast<float>(bits + i * step);
    const double value = decode<e2m1fn>(encode<e2m1fn>(static_cast<double>(u[i])));
    run.add(i, u[i] - static_cast<float>(value));
  }
  squares(u, nullptr, 16, factors, 1, sums);
  return static_cast<double>(sums[0]) == run.sum();
}

inline void expect_errors_of_codes(Fp4Squares squares) {
  const auto first = std::bit_cast<std::uint32_t>(1.0F), last = std::bit_cast<std::uint32_t>(8.0F);
  const auto expect_all = [&](std::uint32_t from, std::uint32_t to, std::uint32_t step) {
    for (std::uint32_t bits = from; bits + 16 * step <= to; bits += 16 * step)
      ASSERT_TRUE(has_errors_of_codes(squares, bits, step)) << std::bit_cast<float>(bits);
  };
  expect_all(first, last, 1);
  expect_all(0, first, 997);
  expect_all(last, 0x7F800000u, 9973);  // to where products overflow
}

// Any number of values and of factors.
inline void expect_every_size(Fp4Squares squares) {
  alignas(16) float x[kFitRun], weights[kFitRun], factors[24], sums[24];
  for (int i = 0; i < kFitRun; ++i) x[i] = static_cast<float>(i * 37 % 101 - 50) * 0.07F;
  for (int i = 0; i < kFitRun; ++i) weights[i] = static_cast<float>(i * 53 % 89) * 0.013F;
  for (int i = 0; i < 24; ++i) factors[i] = 0.5F + 0.11F * static_cast<float>(i);
  for (int n = 16; n <= kFitRun; n += 16) {
    for (int count = 1; count <= 44; ++count) {
      const bool weighted = count > 22;
      const int most = weighted ? count - 22 : count;
      squares(x, weighted ? weights : nullptr, n, factors, most, sums);
      for (int c = 0; c < most; ++c) {
        FitRun<float> run;
        for (int i = 0; i < n; ++i) {
          const float u = x[i] * factors[c];
          const double value = decode<e2m1fn>(encode<e2m1fn>(static_cast<double>(u)));
          run.add(i, u - static_cast<float>(value), weighted ? weights[i] : 1.0F);
        }
        ASSERT_EQ(static_cast<double>(sums[c]), run.sum()) << n << " values, factor " << c;
      }
    }
  }
}

}  // namespace octavo::cpu
