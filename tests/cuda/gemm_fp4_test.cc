// GEMM of FP4 and FP6 on a device: transcoded to e4m3 on the FP8 tensor cores, and by FP4 weights
// that are decoded in registers (small M, and tiles).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

class GemmFp4 : public support::CudaTest {};

// The same values in e4m3 give the same bits: FP4 and FP6 are transcoded to it.
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

// Values of e2m1, of both signs.
constexpr float kGrid[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
std::vector<float> fp4_numbers(std::int64_t rows, std::int64_t cols) {
  std::mt19937 random(7);
  std::vector<float> numbers(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = i % 16 == 3 ? 6.0F : kGrid[random() % 8];
    if (random() % 2 == 0) numbers[i] = -numbers[i];
  }
  return numbers;
}

// NVFP4 of those: its two scales are off from 1 by a rounding each, sums by some roundings of f32.
double off_by_scales(const char* name, std::int64_t k) {
  return name[0] == 'm' ? 0 : 1e-6 * 48.0 * static_cast<double>(k);
}

// Small M by weights that stay in four bits. With a 6 in every block MX scales are 1, so that sums
// of MXFP4 are integers; those of NVFP4, and of values of all magnitudes, are held to the bound.
TEST_F(GemmFp4, SmallMByFp4) {
  for (const char* name : {"mxfp4", "nvfp4"})
    for (const Sizes& sizes :
         {Sizes{1, 16, 256}, Sizes{1, 300, 2048}, Sizes{7, 100, 512}, Sizes{9, 33, 768},
          Sizes{20, 333, 1024}, Sizes{33, 129, 2560}, Sizes{56, 64, 4096}, Sizes{57, 64, 4096},
          Sizes{5, 4000, 256}, Sizes{3, 50, 32}, Sizes{9, 100, 2880}, Sizes{40, 70, 544},
          Sizes{6, 8200, 320}, Sizes{30, 8203, 256}}) {
      const std::vector<float> weights = fp4_numbers(sizes.n, sizes.k);
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
          if (!(std::fabs(value - wanted) <= off_by_scales(name, sizes.k)))
            wrong.add(row, col, value, wanted);
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
      for (const char* codes : {"mxfp8", "nvfp4", "mxfp4"}) {  // activations that become bf16 first
        const MadeOperand q =
            made(quantized_as(codes), usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k);
        expect_product(
            to_host(gemm(to_device(q.quantized, kThere), to_device(b.quantized, kThere)).view()),
            q.numbers, b.numbers, Accumulator::f32, text(codes, " by ", where));
      }
    }
}

// The smallest and the largest scales, and NaN, decoded in registers.
TEST_F(GemmFp4, SmallMByFp4WithAnyScale) {
  for (const char* name : {"mxfp4", "nvfp4"}) {
    const std::int64_t n = 256, k = 256;
    QuantizedTensor w = quantize(values_as(usual_values(n, k, 3), {n, k}, DType::f32).view(),
                                 preset(name), {.backend = &reference_backend()});
    const auto scales = w.rowwise.scales.bytes();
    const std::size_t across = scales.size() / n;
    for (std::size_t i = 0; i < scales.size(); ++i)  // row r has the scale r everywhere
      scales[i] = static_cast<std::byte>(name[0] == 'm' ? i / across : i / across % 128);
    const oracle::Numbers numbers = oracle::numbers_of(w);
    // Small enough that all but the largest scale give a sum within f32.
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

// Larger M, in tiles: every tile width, ragged at every edge, split-K parts and partial stages,
// more tiles than SMs, scales that do not fill their last line, and a K at which TMA cannot read
// codes of NVFP4; with every epilogue, and exact as above.
TEST_F(GemmFp4, LargeMByFp4) {
  for (const char* name : {"mxfp4", "nvfp4"})
    for (const Sizes& sizes :
         {Sizes{17, 300, 2048}, Sizes{24, 70, 8192}, Sizes{32, 16, 32}, Sizes{60, 257, 544},
          Sizes{64, 512, 4096}, Sizes{65, 100, 2880}, Sizes{100, 520, 96}, Sizes{129, 300, 1024},
          Sizes{256, 128, 2080}, Sizes{257, 1100, 320}, Sizes{300, 64, 8192}, Sizes{150, 8203, 576},
          Sizes{1030, 4200, 320}, Sizes{90, 200, 528}, Sizes{60, 1700, 5120}}) {
      if (name[0] == 'm' && sizes.k % 32 != 0) continue;
      const std::vector<float> weights = fp4_numbers(sizes.n, sizes.k),
                               values = integers(sizes.m, sizes.k, 8),
                               bias = integers(1, sizes.n, 9),
                               residual = integers(sizes.m, sizes.n, 10);
      const Tensor x = to_device(values_as(values, {sizes.m, sizes.k}, DType::bf16).view(), kThere),
                   u = to_device(values_as(bias, {sizes.n}, DType::bf16).view(), kThere),
                   r = to_device(values_as(residual, {sizes.m, sizes.n}, DType::f32).view(),
                                 kThere);
      const QuantizedTensor w =
          to_device(quantize(values_as(weights, {sizes.n, sizes.k}, DType::f32).view(),
                             preset(name), {.backend = &reference_backend()}),
                    kThere);
      for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
        const Tensor plain = to_host(gemm(x, w, {.out = out}).view()),
                     finished = to_host(gemm(x, w,
                                             {.out = out,
                                              .bias = u.view(),
                                              .activation = ActivationKind::relu,
                                              .residual = r.view()})
                                            .view());
        Wrong wrong, wrong_finished;
        const auto look = [&](Wrong& at, const Tensor& got, std::int64_t row, std::int64_t col,
                              double wanted) {
          const double value = oracle::number_at(got.view(), row, col),
                       off = off_by_scales(name, sizes.k);
          const double rounded =
              out == DType::f32 ? 0 : oracle::bound_rounded(std::fabs(wanted) + off, out);
          if (!(std::fabs(value - wanted) <= off + rounded)) at.add(row, col, value, wanted);
        };
        // Some rows of many, and the last one.
        const std::int64_t step = std::max<std::int64_t>(1, sizes.m / 40);
        for (std::int64_t row = (sizes.m - 1) % step; row < sizes.m; row += step)
          for (std::int64_t col = 0; col < sizes.n; ++col) {
            const double sum = sum_of(values, weights, row, col, sizes.k);
            look(wrong, plain, row, col, sum);
            look(wrong_finished, finished, row, col,
                 std::max(sum + static_cast<double>(bias[static_cast<std::size_t>(col)]), 0.0) +
                     static_cast<double>(residual[static_cast<std::size_t>(row * sizes.n + col)]));
          }
        const std::string where = text(name, ", ", to_text(sizes), ", ", dtype_name(out));
        EXPECT_EQ(wrong.report(), "") << where;
        EXPECT_EQ(wrong_finished.report(), "") << where << ", finished";
      }
    }
}

// Values of all magnitudes, and of one sign, whose sums would show truncation.
TEST_F(GemmFp4, LargeMByFp4IsWithinTheBound) {
  for (const char* name : {"mxfp4", "nvfp4"})
    for (const bool one_sign : {false, true})
      for (const Sizes& sizes : {Sizes{70, 130, 8192}, Sizes{200, 300, 1056}}) {
        std::vector<float> values = usual_values(sizes.m, sizes.k, 1),
                           weights = usual_values(sizes.n, sizes.k, 2);
        for (std::vector<float>* of : {&values, &weights})
          for (float& x : *of) x = one_sign ? std::fabs(x) : x;
        const MadeOperand a = made(valued_as(DType::bf16), values, sizes.m, sizes.k),
                          b = made(quantized_as(name), weights, sizes.n, sizes.k),
                          q = made(quantized_as("nvfp4"), values, sizes.m, sizes.k);
        const QuantizedTensor w = to_device(b.quantized, kThere);
        const std::string where =
            text(name, ", ", to_text(sizes), one_sign ? ", one sign" : ", both signs");
        for (const DType out : {DType::f32, DType::bf16})
          expect_product(to_host(gemm(to_device(a.values.view(), kThere), w, {.out = out}).view()),
                         a.numbers, b.numbers, Accumulator::f32, where);
        expect_product(to_host(gemm(to_device(q.quantized, kThere), w).view()), q.numbers,
                       b.numbers, Accumulator::f32, "nvfp4 by " + where);
      }
}

// In f32, a row has the same bits among any number of rows from 64 on, and those of weights that
// were decoded to bf16 before: gemm_quantized relies on it.
TEST_F(GemmFp4, RowsByFp4HaveTheSameBitsAmongAnyNumber) {
  const std::int64_t m = 700, n = 1100, k = 1056;
  const Tensor x = values_as(usual_values(m, k, 1), {m, k}, DType::bf16);
  const QuantizedTensor w = usual_operand(preset("mxfp4"), n, k, 2), there = to_device(w, kThere);
  const auto first_rows = [](View view, std::int64_t rows) {
    view.shape[0] = rows;
    return view;
  };
  const auto product = [&](std::int64_t rows, const Operand& weights) {
    return to_host(gemm(to_device(first_rows(x.view(), rows), kThere), weights).view());
  };
  const Tensor all = product(m, there);
  for (const std::int64_t rows : {64, 65, 130, 300, 512}) {
    const Tensor some = product(rows, there);
    EXPECT_EQ(differences(some, to_host(first_rows(all.view(), rows))), "") << rows << " rows";
  }
  const Tensor decoded = to_device(dequantize(w, DType::bf16).view(), kThere);
  EXPECT_EQ(differences(all, product(m, decoded)), "") << "weights in bf16";
}

}  // namespace
}  // namespace octavo::testing
