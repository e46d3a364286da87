// Small M GEMM of bf16 by FP8 weights that are decoded in registers: every kind of scale, and every
// position of K in a lane.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/small_m/fp8_decode.cuh"
#include "tests/cuda/gemm_on_device.h"
#include "tests/cuda/small_m_fp8_cases.h"

namespace octavo::testing {
namespace {

// Runs anywhere: the kernels' decode function, compiled for the host.
template <bool kE5m2>
void expect_every_code(const Format& format) {
  const auto bf16_of = [&](unsigned code) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(decode(format, code))) >> 16;
  };
  for (unsigned low = 0; low < 256; ++low)
    for (unsigned high = 0; high < 256; ++high) {
      const std::uint32_t got = cuda::decoded_fp8<kE5m2>(low | high << 8);
      for (const auto& [code, half] : {std::pair{low, got & 0xFFFFu}, {high, got >> 16}})
        if (std::isnan(decode(format, code)))
          ASSERT_TRUE(std::isnan(std::bit_cast<float>(half << 16))) << code;
        else
          ASSERT_EQ(half, bf16_of(code)) << code;
    }
}

TEST(Fp8Decode, EveryCodeIsItsBf16) {
  expect_every_code<false>(e4m3fn);
  expect_every_code<true>(e5m2);
}

class GemmSmallMFp8 : public support::CudaTest {};

// Every M that the kernel takes and some that it does not; N and K that fill no block, chunk or
// run; a K at which codes are not aligned, so that another kernel is chosen.
std::vector<Sizes> shapes() {
  std::vector<Sizes> all{{1, 16, 256},    {1, 300, 2048}, {9, 33, 768},   {16, 129, 2560},
                         {17, 64, 512},   {40, 50, 512},  {5, 4000, 256}, {3, 50, 32},
                         {3, 50, 16},     {9, 100, 2880}, {12, 70, 544},  {6, 8200, 320},
                         {32, 8203, 256}, {4, 7, 144},    {32, 96, 8192}, {2, 100, 1000},
                         {7, 1, 4112}};
  for (std::int64_t m = 1; m <= cuda::kMaxSmallMFp8 + 1; ++m) all.push_back({m, 31 + m, 528});
  return all;
}

TEST_F(GemmSmallMFp8, SumsOfIntegersAreExact) {
  for (const OperandKind& kind : fp8_kinds())
    for (const Sizes& sizes : shapes()) {
      const ExactWeights w = exact_weights(kind, sizes.n, sizes.k);
      const QuantizedTensor there = to_device(w.tensor, kThere);
      const std::string where = text(kind.name, ", ", to_text(sizes));
      ASSERT_EQ(cuda::fits_small_m_fp8_weights(operand_of(there)), sizes.k % 16 == 0) << where;
      const std::vector<float> values = integers(sizes.m, sizes.k, 8);
      const Tensor x = to_device(values_as(values, {sizes.m, sizes.k}, DType::bf16).view(), kThere);
      const Tensor got = to_host(gemm(x, there).view());
      Wrong wrong;
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const double wanted = sum_of(values, w.numbers, row, col, sizes.k);
        if (value != wanted) wrong.add(row, col, value, wanted);
      });
      EXPECT_EQ(wrong.report(), "") << where;
    }
}

// Values of all magnitudes; activations of other kinds that become bf16; results of every type.
TEST_F(GemmSmallMFp8, IsWithinTheBound) {
  for (const OperandKind& kind : fp8_kinds())
    for (const Sizes& sizes :
         {Sizes{1, 300, 2048}, Sizes{32, 100, 2880}, Sizes{13, 50, 8192}, Sizes{16, 40, 48}}) {
      const MadeOperand a = made(valued_as(DType::bf16), usual_values(sizes.m, sizes.k, 1), sizes.m,
                                 sizes.k),
                        b = made(kind, usual_values(sizes.n, sizes.k, 2), sizes.n, sizes.k),
                        q = made(quantized_as("nvfp4"), usual_values(sizes.m, sizes.k, 1), sizes.m,
                                 sizes.k);
      const QuantizedTensor w = to_device(b.quantized, kThere);
      const std::string where = text(kind.name, ", ", to_text(sizes));
      const Tensor x = to_device(a.values.view(), kThere);
      for (const DType out : {DType::f32, DType::bf16, DType::f16})
        expect_product(to_host(gemm(x, w, {.out = out}).view()), a.numbers, b.numbers,
                       Accumulator::f32, where);
      expect_product(to_host(gemm(x, w, {.accumulator = Accumulator::f32}).view()), a.numbers,
                     b.numbers, Accumulator::f32, where);
      expect_product(to_host(gemm(to_device(q.quantized, kThere), w).view()), q.numbers, b.numbers,
                     Accumulator::f32, "nvfp4 by " + where);
    }
}

TEST_F(GemmSmallMFp8, Epilogue) {
  for (const OperandKind& kind : fp8_kinds())
    for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
      const Sizes sizes{11, 77, 800};
      const ExactWeights w = exact_weights(kind, sizes.n, sizes.k);
      const std::vector<float> values = integers(sizes.m, sizes.k, 8),
                               bias = integers(1, sizes.n, 9),
                               residual = integers(sizes.m, sizes.n, 10);
      const Tensor x = to_device(values_as(values, {sizes.m, sizes.k}, DType::bf16).view(), kThere),
                   u = to_device(values_as(bias, {sizes.n}, DType::bf16).view(), kThere),
                   r = to_device(values_as(residual, {sizes.m, sizes.n}, DType::f32).view(),
                                 kThere);
      const Tensor got = to_host(gemm(x, to_device(w.tensor, kThere),
                                      {.out = out,
                                       .bias = u.view(),
                                       .activation = ActivationKind::relu,
                                       .residual = r.view()})
                                     .view());
      Wrong wrong;
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const double sum = sum_of(values, w.numbers, row, col, sizes.k) +
                           static_cast<double>(bias[static_cast<std::size_t>(col)]);
        const double wanted =
            std::max(sum, 0.0) +
            static_cast<double>(residual[static_cast<std::size_t>(row * sizes.n + col)]);
        const double off = out == DType::f32 ? 0 : oracle::bound_rounded(wanted, out);
        if (std::fabs(wanted) < 65504 && !(std::fabs(value - wanted) <= off))
          wrong.add(row, col, value, wanted);
      });
      EXPECT_EQ(wrong.report(), "") << kind.name << ", " << dtype_name(out);
    }
}

// A single one in each row of A selects a single weight, at every position of K, in whole and in
// partial chunks: every finite code as it is decoded, and nothing else.
TEST_F(GemmSmallMFp8, EveryCodeAtEveryPlace) {
  for (const char* name : {"mxfp8", "mxfp8:e5m2", "fp8-channel", "fp8-block"})
    for (const std::int64_t k : {512, 288}) {
      const std::int64_t m = cuda::kMaxSmallMFp8, n = 256;
      QuantizedTensor w = exact_weights(quantized_as(name), n, k).tensor;
      const Format format = w.scaling.format;
      const auto codes = w.rowwise.codes.bytes();
      for (std::int64_t row = 0; row < n; ++row)
        for (std::int64_t col = 0; col < k; ++col) {
          const auto code = static_cast<unsigned>((row + 37 * col) % 256);
          codes[static_cast<std::size_t>(row * k + col)] =
              static_cast<std::byte>(std::isfinite(decode(format, code)) ? code : 0u);
        }
      const std::vector<float> numbers = numbers_of_fp8(w);
      const QuantizedTensor there = to_device(w, kThere);
      Wrong wrong;  // "row" is the position
      for (std::int64_t first = 0; first < k; first += m) {
        std::vector<float> ones(static_cast<std::size_t>(m * k));
        for (std::int64_t row = 0; row < m; ++row)
          ones[static_cast<std::size_t>(row * k + first + row)] = 1.0F;
        const Tensor got = to_host(
            gemm(to_device(values_as(ones, {m, k}, DType::bf16).view(), kThere), there).view());
        for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
          const auto wanted =
              static_cast<double>(numbers[static_cast<std::size_t>(col * k + first + row)]);
          if (value != wanted) wrong.add(first + row, col, value, wanted);
        });
      }
      EXPECT_EQ(wrong.report(), "") << name << ", K " << k;
    }
}

}  // namespace
}  // namespace octavo::testing
