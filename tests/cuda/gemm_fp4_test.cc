// Products of FP4 and FP6 on a device: as e4m3 on the FP8 tensor cores, and decoded in registers
// for a few rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/gemm_there.h"

namespace octavo::testing {
namespace {

class GemmFp4 : public support::CudaTest {};

// The same numbers in e4m3 have the same bits: FP4 and FP6 are multiplied as such.
TEST_F(GemmFp4, SmallMxIsThatOfE4m3) {
  for (const char* name : {"mxfp4", "mxfp6", "mxfp6:e3m2fn"})
    for (const bool packed : {true, false})
      for (const Sizes& sizes : {Sizes{200, 300, 520}, Sizes{60, 300, 288}, Sizes{64, 100, 333}}) {
        Scaling scaling = preset(name);
        scaling.packed = packed;
        const auto made_of = [&](std::int64_t rows, unsigned seed) {
          return quantize(
              values_as(usual_values(rows, sizes.k, seed), {rows, sizes.k}, DType::f32).view(),
              scaling, {.backend = &reference_backend()});
        };
        const auto in_e4m3 = [&](const QuantizedTensor& from) {
          QuantizedTensor made = quantize(dequantize(from, DType::f32).view(), preset("mxfp8"),
                                          {.backend = &reference_backend()});
          const View codes = from.rowwise.codes.view();
          for (std::int64_t row = 0; row < codes.shape[0]; ++row)
            for (std::int64_t col = 0; col < codes.shape[1]; ++col) {
              const double value = oracle::number_at(codes, row, col);
              unsigned code = 0;
              while (decode(e4m3fn, code) != std::fabs(value)) ++code;
              made.rowwise.codes.bytes()[static_cast<std::size_t>(row * codes.shape[1] + col)] =
                  static_cast<std::byte>(code | (std::signbit(value) ? 0x80u : 0u));
            }
          std::ranges::copy(from.rowwise.scales.bytes(), made.rowwise.scales.bytes().begin());
          return made;
        };
        const QuantizedTensor a = made_of(sizes.m, 3), b = made_of(sizes.n, 4);
        const auto product = [&](const QuantizedTensor& x, const QuantizedTensor& w) {
          return to_host(gemm(to_device(x, kThere), to_device(w, kThere)).view());
        };
        const Tensor wanted = product(in_e4m3(a), in_e4m3(b)), got = product(a, b);
        Wrong wrong;
        for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
          const double other = oracle::number_at(wanted.view(), row, col);
          if (value != other) wrong.add(row, col, value, other);
        });
        EXPECT_EQ(wrong.report(), "")
            << name << (packed ? ", packed, " : ", unpacked, ") << to_text(sizes);
      }
}

// Weights stay in four bits on their way. With a 6 in every block MX scales are 1, so that sums of
// MXFP4 are integers; those of NVFP4, and of values of all sizes, are held to the bound.
TEST_F(GemmFp4, FewRowsByFp4) {
  constexpr float kGrid[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (const char* name : {"mxfp4", "nvfp4"})
    for (const Sizes& sizes :
         {Sizes{1, 16, 256}, Sizes{1, 300, 2048}, Sizes{7, 100, 512}, Sizes{9, 33, 768},
          Sizes{20, 333, 1024}, Sizes{33, 129, 2560}, Sizes{56, 64, 4096}, Sizes{57, 64, 4096},
          Sizes{5, 4000, 256}, Sizes{3, 50, 32}, Sizes{9, 100, 2880}, Sizes{40, 70, 544},
          Sizes{6, 8200, 320}, Sizes{30, 8203, 256}}) {
      std::mt19937 random(7);
      std::vector<float> weights(static_cast<std::size_t>(sizes.n * sizes.k));
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] = i % 16 == 3 ? 6.0F : kGrid[random() % 8];
        if (random() % 2 == 0) weights[i] = -weights[i];
      }
      const std::vector<float> values = integers(sizes.m, sizes.k, 8),
                               bias = integers(1, sizes.n, 9);
      const Tensor x = to_device(values_as(values, {sizes.m, sizes.k}, DType::bf16).view(), kThere),
                   u = to_device(values_as(bias, {sizes.n}, DType::bf16).view(), kThere);
      const QuantizedTensor w =
          to_device(quantize(values_as(weights, {sizes.n, sizes.k}, DType::f32).view(),
                             preset(name), {.backend = &reference_backend()}),
                    kThere);
      const Tensor got = to_host(gemm(x, w, {.bias = u.view()}).view());
      const std::string where = text(name, ", ", to_text(sizes));
      Wrong wrong;
      for (std::int64_t row = 0; row < sizes.m; ++row)
        for (std::int64_t col = 0; col < sizes.n; ++col) {
          const double value = oracle::number_at(got.view(), row, col),
                       wanted = sum_of(values, weights, row, col, sizes.k) +
                                static_cast<double>(bias[static_cast<std::size_t>(col)]);
          // NVFP4: its two scales are off from 1 by a rounding each, sums by some of f32.
          const double off = name[0] == 'm' ? 0 : 1e-6 * 48.0 * static_cast<double>(sizes.k);
          if (!(std::fabs(value - wanted) <= off)) wrong.add(row, col, value, wanted);
        }
      EXPECT_EQ(wrong.report(), "") << where;

      const MadeOperand a = made(valued_as(DType::bf16), usual_values(sizes.m, sizes.k, 1), sizes.m,
                                 sizes.k),
                        b = made(quantized_as(name), usual_values(sizes.n, sizes.k, 2), sizes.n,
                                 sizes.k);
      expect_product(
          to_host(gemm(to_device(a.values.view(), kThere), to_device(b.quantized, kThere)).view()),
          a.numbers, b.numbers, Accumulator::f32, where);
      if (sizes.m > 56) continue;
      for (const char* codes : {"mxfp8", "nvfp4", "mxfp4"}) {  // rows that become bf16 first
        const MadeOperand q =
            made(quantized_as(codes), usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k);
        expect_product(
            to_host(gemm(to_device(q.quantized, kThere), to_device(b.quantized, kThere)).view()),
            q.numbers, b.numbers, Accumulator::f32, text(codes, " by ", where));
      }
    }
}

// Scales at both ends, and NaN: what a block of FP4 decodes to in registers.
TEST_F(GemmFp4, FewRowsByFp4WithAnyScale) {
  for (const char* name : {"mxfp4", "nvfp4"}) {
    const std::int64_t n = 256, k = 256;
    QuantizedTensor w = quantize(values_as(usual_values(n, k, 3), {n, k}, DType::f32).view(),
                                 preset(name), {.backend = &reference_backend()});
    const auto scales = w.rowwise.scales.bytes();
    const std::size_t across = scales.size() / n;
    for (std::size_t i = 0; i < scales.size(); ++i)  // row r has the scale r everywhere
      scales[i] = static_cast<std::byte>(name[0] == 'm' ? i / across : i / across % 128);
    const oracle::Numbers numbers = oracle::numbers_of(w);
    // Small enough that all but the largest scale give a sum in f32.
    const Tensor x = values_as(usual_values(3, k, 4), {3, k}, DType::bf16);
    const oracle::Numbers values = oracle::numbers_of(x.view());
    const Tensor got = to_host(gemm(to_device(x.view(), kThere), to_device(w, kThere)).view());
    Wrong wrong;
    for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
      const oracle::Element exact = oracle::element_of(values, numbers, row, col);
      if (std::fabs(exact.sum) > 0x1p125 || exact.magnitude > 0x1p125) return;  // Inf on the way
      const double bound = oracle::bound_f32(k, exact.magnitude);
      const bool right =
          std::isnan(exact.sum) ? std::isnan(value) : std::fabs(value - exact.sum) <= bound;
      if (!right) wrong.add(row, col, value, exact.sum);
    });
    EXPECT_EQ(wrong.report(), "") << name;
  }
}

}  // namespace
}  // namespace octavo::testing
