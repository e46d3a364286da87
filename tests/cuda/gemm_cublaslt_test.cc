// GEMM by cuBLASLt: the promises of accumulator native hold, and other accumulators never use it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "octavo/base/env.h"
#include "tests/cuda/gemm_forced.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

using cuda::gemm_cublaslt;

GemmJob job_of(const GemmOperand& a, const GemmOperand& b, const Tensor& out) {
  return {.a = a, .b = b, .out = matrix_of(out.view()), .accumulator = Accumulator::native};
}

class GemmCublasLt : public support::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const std::string& problem = cuda::gemm_cublaslt_problem();
    if (!problem.empty()) GTEST_SKIP() << "cuBLASLt is not there: " << problem;
  }
};

// K and N are multiples of 16 bytes; everything else is ragged.
const Sizes kShapes[] = {{64, 64, 64},   {1, 24, 40},      {80, 200, 136},
                         {257, 264, 72}, {300, 1000, 520}, {130, 136, 8192}};

TEST_F(GemmCublasLt, SixteenBitsAreWithinTheBoundOfF32) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const DType out_type : {DType::f32, dtype})  // not between bf16 and f16
      for (const Sizes& sizes : kShapes) {
        const MadeOperand a = made(valued_as(dtype), usual_values(sizes.m, sizes.k, 1), sizes.m,
                                   sizes.k),
                          b = made(valued_as(dtype), usual_values(sizes.n, sizes.k, 2), sizes.n,
                                   sizes.k);
        const Tensor x = to_device(a.values.view(), kThere), w = to_device(b.values.view(), kThere),
                     out = empty_there(sizes.m, sizes.n, out_type);
        const std::string where =
            text(dtype_name(dtype), " to ", dtype_name(out_type), ", ", to_text(sizes));
        ASSERT_TRUE(gemm_cublaslt(kExecThere, job_of(operand_of(x), operand_of(w), out))) << where;
        expect_product(to_host(out.view()), a.numbers, b.numbers, Accumulator::f32, where);
        if (HasFailure()) return;
      }
}

// As gemm_bf16.cc passes them: 16-bit elements with per-tensor scales in device memory. One
// rounding each for the product of scales and for its product with a sum, of the six that the bound
// has for scales.
TEST_F(GemmCublasLt, OneScaleForEachOperand) {
  const Sizes sizes{96, 136, 264};
  MadeOperand a = made(valued_as(DType::bf16), usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k),
              b = made(valued_as(DType::bf16), usual_values(sizes.n, sizes.k, 2), sizes.n, sizes.k);
  const Tensor x = to_device(a.values.view(), kThere), w = to_device(b.values.view(), kThere),
               scales = to_device(values_as({0.7F, 3.3F}, {1, 2}, DType::f32).view(), kThere),
               out = empty_there(sizes.m, sizes.n, DType::f32);
  const auto with_scale = [&](const Tensor& values, oracle::Numbers& numbers, int which) {
    for (double& number : numbers.value) number *= static_cast<double>(which == 0 ? 0.7F : 3.3F);
    GemmOperand operand;
    operand.quantized.codes = matrix_of(values.view());
    operand.quantized.scales = matrix_of(scales.view());
    operand.quantized.scales.data = static_cast<float*>(scales.view().data) + which;
    operand.quantized.scales.cols = 1;
    return operand;
  };
  const GemmOperand left = with_scale(x, a.numbers, 0), right = with_scale(w, b.numbers, 1);
  ASSERT_TRUE(gemm_cublaslt(kExecThere, job_of(left, right, out)));
  expect_product(to_host(out.view()), a.numbers, b.numbers, Accumulator::f32, "two scales");
  // NVFP4 ends as such a product.
  const MadeOperand q =
      made(quantized_as("nvfp4"), usual_values(sizes.n, 256, 4), sizes.n, std::int64_t{256});
  const MadeOperand y =
      made(valued_as(DType::bf16), usual_values(sizes.m, 256, 5), sizes.m, std::int64_t{256});
  const ForcedLibrary library(true);
  expect_product(to_host(gemm(to_device(y.values.view(), kThere), to_device(q.quantized, kThere),
                              {.out = DType::bf16})
                             .view()),
                 y.numbers, q.numbers, Accumulator::f32, "bf16 by nvfp4");
}

struct Fp8Case {
  const char* scaling;
  Format a, b;
};
const Fp8Case kFp8[] = {{"fp8", e4m3fn, e4m3fn},
                        {"fp8", e4m3fn, e5m2},
                        {"fp8", e5m2, e4m3fn},
                        {"fp8-channel", e4m3fn, e4m3fn},
                        {"fp8-channel", e4m3fn, e5m2}};

QuantizedTensor quantized(const std::vector<float>& values, std::int64_t rows, std::int64_t cols,
                          const Fp8Case& kind, const Format& format) {
  return quantize(values_as(values, {rows, cols}, DType::f32).view(),
                  scaling_of(kind.scaling, format), {.backend = &reference_backend()});
}

std::string to_text(const Fp8Case& kind) {
  return text(kind.scaling, ", ", format_name(kind.a), " by ", format_name(kind.b));
}

// Sums on the FP8 tensor cores, in runs of at most 128 and any order: by docs/numerics/gemm.md an
// instruction is off by 33 units of 2^(E - 13), where 2^E is at most the largest product of those
// 32, or the run so far, which is at most the magnitudes R of its products; and by 2^-13 of the
// run. A code below the smallest normal number counts as that for E. So K / 32 instructions of at
// most four a run are off by 2^-13 (33 (K / 32 P + 4 S) + 4 S), with P the largest such product;
// then f32.
double bound_fp8(const oracle::Numbers& a, const oracle::Numbers& b, const Fp8Case& kind,
                 std::int64_t row, std::int64_t col, double magnitude) {
  const auto least = [](const Format& format) { return format == e4m3fn ? 0x1p-6 : 0x1p-14; };
  double largest = 0;
  for (std::int64_t k = 0; k < a.cols; ++k) {
    const auto i = static_cast<std::size_t>(row * a.cols + k),
               j = static_cast<std::size_t>(col * b.cols + k);
    if (a.unscaled[i] == 0 || b.unscaled[j] == 0) continue;
    largest = std::max(largest, std::max(std::fabs(a.unscaled[i]), least(kind.a)) * a.scale[i] *
                                    std::max(std::fabs(b.unscaled[j]), least(kind.b)) * b.scale[j]);
  }
  const auto instructions = static_cast<double>((a.cols + 31) / 32);
  return 0x1p-13 * (33 * (instructions * largest + 4 * magnitude) + 4 * magnitude) +
         oracle::bound_f32(a.cols, magnitude);
}

TEST_F(GemmCublasLt, Fp8IsWithinItsBound) {
  for (const Fp8Case& kind : kFp8)
    for (const DType out_type : {DType::f32, DType::bf16})
      for (const Sizes& sizes :
           {Sizes{256, 256, 256}, Sizes{64, 208, 144}, Sizes{272, 144, 1040}}) {
        const QuantizedTensor a = quantized(usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k,
                                            kind, kind.a),
                              b = quantized(usual_values(sizes.n, sizes.k, 2), sizes.n, sizes.k,
                                            kind, kind.b),
                              x = to_device(a, kThere), w = to_device(b, kThere);
        const Tensor out = empty_there(sizes.m, sizes.n, out_type);
        const std::string where =
            text(to_text(kind), " to ", dtype_name(out_type), ", ", testing::to_text(sizes));
        if (!gemm_cublaslt(kExecThere, job_of(operand_of(x), operand_of(w), out))) {
          // Per-row scales came with CUDA 12.9; an older library has everything else.
          if (std::string(kind.scaling) == "fp8-channel")
            GTEST_SKIP() << "this cuBLASLt declines " << where;
          FAIL() << "declined: " << where;
        }
        const oracle::Numbers p = oracle::numbers_of(a), q = oracle::numbers_of(b);
        Wrong wrong;
        for_each_element(to_host(out.view()), [&](std::int64_t row, std::int64_t col, double got) {
          const oracle::Element exact = oracle::element_of(p, q, row, col);
          double off = bound_fp8(p, q, kind, row, col, exact.magnitude);
          off += oracle::bound_rounded(std::fabs(exact.sum) + off, out_type);
          if (!(std::fabs(got - exact.sum) <= off)) wrong.add(row, col, got, exact.sum);
        });
        EXPECT_EQ(wrong.report(), "") << where;
      }
}

// Relative error over all elements: at most that of the reference's model with promotion every 128
// products, which native promises to keep. Without promotion a quarter to a tenth of the bits is
// left: 10 times the error on normal data, 100 times on data of one sign.
TEST_F(GemmCublasLt, Fp8KeepsNoLessThanHopperPromotedEvery128) {
  const Sizes sizes{64, 80, 4096};
  for (const Fp8Case& kind : kFp8)
    for (const bool positive : {false, true}) {
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
      const auto values = [&](std::int64_t rows) {
        std::vector<float> all(static_cast<std::size_t>(rows * sizes.k));
        for (float& x : all) x = positive ? uniform(random) : normal(random);
        return all;
      };
      const QuantizedTensor a = quantized(values(sizes.m), sizes.m, sizes.k, kind, kind.a),
                            b = quantized(values(sizes.n), sizes.n, sizes.k, kind, kind.b),
                            x = to_device(a, kThere), w = to_device(b, kThere);
      const Tensor out = empty_there(sizes.m, sizes.n, DType::f32);
      if (!gemm_cublaslt(kExecThere, job_of(operand_of(x), operand_of(w), out)))
        GTEST_SKIP() << "this cuBLASLt declines " << to_text(kind);
      const Tensor got = to_host(out.view()), model = model_of(a, b);
      const oracle::Numbers p = oracle::numbers_of(a), q = oracle::numbers_of(b);
      double library = 0, promised = 0;
      int same = 0;
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const double exact = oracle::element_of(p, q, row, col).sum,
                     ours = oracle::number_at(model.view(), row, col);
        library += (value - exact) * (value - exact);
        promised += (ours - exact) * (ours - exact);
        same += value == ours;
      });
      // 5120 elements: two samples of one error differ by a few hundredths.
      EXPECT_LE(std::sqrt(library), 1.1 * std::sqrt(promised))
          << to_text(kind) << (positive ? ", of one sign" : ", normal");
      RecordProperty(text("same_bits_", kind.scaling, "_", format_name(kind.a), "_",
                          format_name(kind.b), positive ? "_positive" : "_normal"),
                     same);
    }
}

// Both tensors may be on a device, and NaN marks elements that were not written.
std::string difference(const Tensor& got, const Tensor& wanted) {
  const Tensor a = to_host(got.view()), b = to_host(wanted.view());
  Wrong wrong;
  for_each_element(a, [&](std::int64_t row, std::int64_t col, double value) {
    const double other = oracle::number_at(b.view(), row, col);
    if (value != other) wrong.add(row, col, value, other);
  });
  return wrong.report();
}

// Accumulators with promises of their own, f32 results, and callers that ask for octavo's kernels.
TEST_F(GemmCublasLt, OthersHaveTheBitsOfOctavosKernels) {
  const std::int64_t m = 128, n = 144, k = 1040;
  const Tensor x = to_device(values_as(usual_values(m, k, 1), {m, k}, DType::bf16).view(), kThere),
               w = to_device(values_as(usual_values(n, k, 2), {n, k}, DType::bf16).view(), kThere);
  const QuantizedTensor a = quantized(usual_values(m, k, 3), m, k, kFp8[0], e4m3fn),
                        b = quantized(usual_values(n, k, 4), n, k, kFp8[0], e4m3fn),
                        p = to_device(a, kThere), q = to_device(b, kThere);
  for (const DType out : {DType::f32, DType::bf16}) {
    const Tensor sums = [&] {
      const OwnKernels own;
      return gemm(x, w, {.out = out, .accumulator = Accumulator::f32});
    }();
    const Tensor model =
        gemm(a, b,
             {.out = out, .accumulator = Accumulator::hopper_fp8, .backend = &reference_backend()});
    for (const bool library : {false, true}) {
      const ForcedLibrary forced(library);
      const std::string where = text(dtype_name(out), library ? ", library" : ", own");
      EXPECT_EQ(difference(gemm(x, w, {.out = out, .accumulator = Accumulator::f32}), sums), "")
          << where;
      EXPECT_EQ(difference(gemm(p, q, {.out = out, .accumulator = Accumulator::hopper_fp8}), model),
                "")
          << where;
      if (library && out != DType::f32) continue;
      EXPECT_EQ(difference(gemm(x, w, {.out = out}), sums), "") << where;
      EXPECT_EQ(difference(gemm(p, q, {.out = out}), model), "") << where;
    }
  }
}

// The bits show which implementation ran: unless forced, the environment decides, else the table.
TEST_F(GemmCublasLt, IsChosenByTheTable) {
  const std::int64_t k = 1040;
  for (const Sizes& sizes : {Sizes{16, 144, k}, Sizes{128, 144, k}, Sizes{1024, 2048, k}}) {
    const auto there = [&](std::int64_t rows, unsigned seed) {
      return to_device(values_as(usual_values(rows, k, seed), {rows, k}, DType::bf16).view(),
                       kThere);
    };
    const Tensor x = there(sizes.m, 1), w = there(sizes.n, 2),
                 by_library = empty_there(sizes.m, sizes.n, DType::bf16);
    ASSERT_TRUE(gemm_cublaslt(kExecThere, job_of(operand_of(x), operand_of(w), by_library)));
    const bool library = env_cuda_library_gemm().value_or(
        cuda::prefers_cublaslt(cuda::GemmKind::bf16, sizes.m, sizes.n, k));
    const Tensor got = gemm(x, w, {.out = DType::bf16}),
                 own = gemm(x, w, {.out = DType::bf16, .accumulator = Accumulator::f32});
    EXPECT_EQ(difference(got, library ? by_library : own), "")
        << to_text(sizes) << (library ? ", library" : ", own");
  }
}

// A shape that is new, so that the heuristic is queried and kernels are loaded during capture.
TEST_F(GemmCublasLt, CanBeCaptured) {
  const std::int64_t m = 176, n = 208, k = 328;
  const MadeOperand a = made(valued_as(DType::bf16), usual_values(m, k, 1), m, k),
                    b = made(valued_as(DType::bf16), usual_values(n, k, 2), n, k);
  const Tensor x = to_device(a.values.view(), kThere), w = to_device(b.values.view(), kThere),
               out = empty_there(m, n, DType::bf16);
  support::must(cudaDeviceSynchronize());
  const support::Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  support::must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  const bool done = gemm_cublaslt(stream.exec(), job_of(operand_of(x), operand_of(w), out));
  support::must(cudaStreamEndCapture(stream.get(), &graph));
  ASSERT_TRUE(done);
  support::must(cudaGraphInstantiate(&ready, graph, 0));
  support::must(cudaGraphLaunch(ready, stream.get()));
  stream.wait();
  expect_product(to_host(out.view()), a.numbers, b.numbers, Accumulator::f32, "captured");
  support::must(cudaGraphExecDestroy(ready));
  support::must(cudaGraphDestroy(graph));
}

TEST_F(GemmCublasLt, ThreadsAtOnceHaveTheSameBits) {
  const std::int64_t m = 192, n = 256, k = 512;
  const Tensor x = to_device(values_as(usual_values(m, k, 1), {m, k}, DType::bf16).view(), kThere),
               w = to_device(values_as(usual_values(n, k, 2), {n, k}, DType::bf16).view(), kThere);
  constexpr int kThreads = 4, kEach = 8;
  std::vector<Tensor> results;
  for (int i = 0; i < kThreads * kEach; ++i) results.push_back(empty_there(m, n, DType::bf16));
  support::must(cudaDeviceSynchronize());
  std::vector<std::thread> threads;
  std::vector<int> done(kThreads, 0);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const support::Stream stream;
      for (int i = 0; i < kEach; ++i)
        done[static_cast<std::size_t>(t)] +=
            gemm_cublaslt(stream.exec(), job_of(operand_of(x), operand_of(w),
                                                results[static_cast<std::size_t>(t * kEach + i)]))
                ? 1
                : 0;
      stream.wait();
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : done) EXPECT_EQ(count, kEach);
  for (const Tensor& result : results) EXPECT_EQ(difference(result, results[0]), "");
}

}  // namespace
}  // namespace octavo::testing
