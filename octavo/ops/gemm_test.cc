#include "octavo/ops/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/base/product_threads.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

using error_testing::message_of;

Tensor values(const Shape& shape, const std::vector<float>& numbers) {
  const Tensor tensor = Tensor::values(shape, DType::f32);
  std::ranges::copy(numbers, tensor.span<float>().begin());
  return tensor;
}

Tensor ones(const Shape& shape) {
  return values(shape, std::vector<float>(static_cast<std::size_t>(element_count(shape)), 1.0F));
}

std::vector<float> list_of(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

TEST(Gemm, NumbersThatCanBeDoneByHand) {
  const Tensor a = values({2, 3}, {1, 2, 3, -1, 0, 2}), b = values({2, 3}, {2, 0, 1, 1, 1, -4});
  EXPECT_EQ(list_of(gemm(a, b)), (std::vector<float>{5, -9, 0, -9}));
  // Scales that are powers of two, and codes that have these numbers.
  const Tensor c = values({1, 4}, {4, -2, 1, 0}), d = values({2, 4}, {2, 2, 2, 2, -4, 1, 0.5F, 8});
  for (const char* name : {"mxfp8", "mxfp8:e5m2", "mxfp6", "mxfp6:e3m2fn"})
    for (const Accumulator accumulator : {Accumulator::f32, Accumulator::f16, Accumulator::f64})
      EXPECT_EQ(list_of(gemm(quantize(c.view(), preset(name)), quantize(d.view(), preset(name)),
                             {.accumulator = accumulator})),
                (std::vector<float>{6, -17.5F}))
          << name << ", " << name_of(accumulator);
  const Tensor bias = values({2}, {-6, 10}), residual = values({2, 2}, {100, 200, 300, 400});
  EXPECT_EQ(
      list_of(gemm(
          a, b,
          {.bias = bias.view(), .activation = ActivationKind::relu, .residual = residual.view()})),
      (std::vector<float>{100, 201, 300, 401}));
}

TEST(Gemm, ShapesOfResults) {
  EXPECT_EQ(gemm_shape(ones({2, 3}), ones({5, 3})), (Shape{2, 5}));
  EXPECT_EQ(gemm_shape(ones({4, 2, 3}), ones({5, 3})), (Shape{4, 2, 5}));
  EXPECT_EQ(gemm_shape(ones({2, 3}), ones({4, 7, 5, 3})), (Shape{4, 7, 2, 5}));
  EXPECT_EQ(gemm_shape(ones({4, 2, 3}), ones({4, 5, 3})), (Shape{4, 2, 5}));
  EXPECT_EQ(gemm(ones({2, 3}), ones({5, 3}), {.out = DType::bf16}).dtype(), DType::bf16);
}

TEST(Gemm, OperandsThatDoNotFitAreNamed) {
  const auto of = [](const Operand& a, const Operand& b, const GemmOptions& options = {}) {
    return message_of([&] { (void)gemm(a, b, options); });
  };
  EXPECT_EQ(of(ones({2, 3}), ones({5, 4})),
            "[gemm] A has shape [2, 3] and B has shape [5, 4]: K is 3 in A and 4 in B; the product "
            "is [M, K] x [N, K]^T, so both end with the same K");
  EXPECT_EQ(of(ones({2, 3}), ones({3, 5})),
            "[gemm] A has shape [2, 3] and B has shape [3, 5]: K is 3 in A and 5 in B; the product "
            "is [M, K] x [N, K]^T, so both end with the same K (B looks like [K, N]: give its "
            "transpose)");
  EXPECT_EQ(of(ones({4, 2, 3}), ones({5, 2, 3})),
            "[gemm] A is a batch of [4] and B is a batch of [5]; expected the same leading "
            "dimensions, or one operand without any");
  EXPECT_EQ(of(ones({3}), ones({5, 3})),
            "[gemm] A has shape [3]; expected at least two dimensions: rows, and what is summed "
            "along");
  const Tensor codes = Tensor::codes({5, 3}, e4m3fn);
  EXPECT_EQ(of(ones({2, 3}), codes),
            "[gemm] B holds codes without scales; give a QuantizedTensor (quantized_from puts "
            "codes and scales together), or values");
  EXPECT_EQ(of(ones({2, 3}), ones({5, 3}), {.threads = -1}).substr(0, 24),
            "[gemm] got threads = -1;");
}

TEST(Gemm, TheWrongDirectionIsNamed) {
  const auto of = [](const Scaling& scaling, const Shape& shape = {64, 64}) {
    const QuantizedTensor q = quantize(ones(shape).view(), scaling);
    return message_of([&] { (void)gemm(q, ones({5, 64})); });
  };
  Scaling scaling = preset("mxfp8");
  scaling.axis = 0;
  EXPECT_EQ(of(scaling),
            "[gemm] A is quantized along axis 0, and the product sums along the last one; quantize "
            "it with axis = -1");
  scaling = preset("fp8");
  scaling.tile = {0, 1};
  EXPECT_EQ(of(scaling),
            "[gemm] A is quantized along the wrong direction: its tiles are whole columns, and the "
            "product sums along rows; quantize the transpose, or use tiles along the last "
            "dimension");
  scaling.tile = {32, 1};
  EXPECT_NE(of(scaling).find("its tiles are one column wide"), std::string::npos) << of(scaling);
  scaling = preset("mxfp8");
  scaling.columnwise = true;
  scaling.rowwise = false;
  EXPECT_EQ(of(scaling),
            "[gemm] A has a columnwise copy only, which is that of its transpose; give "
            "transposed(A) where the product wants the transpose, or quantize it rowwise");
  // One scale for everything has no direction.
  scaling = preset("fp8");
  scaling.axis = 0;
  EXPECT_EQ(of(scaling), "");
}

TEST(Gemm, GridsThatDoNotFitAreNamed) {
  QuantizedTensor q = quantize(ones({4, 64}).view(), preset("mxfp8"));
  q.scaling.tile = {1, 16};
  EXPECT_EQ(message_of([&] {
              (void)gemm(q, ones({5, 64}));
            }),
            "[gemm] A has scales of shape [4, 2], and its tiles (e4m3fn, tile 1x16, scale e8m0 "
            "rceil) form a grid of [4, 4]; quantized_from puts codes and scales together");
  q.shape = {8, 64};
  EXPECT_EQ(message_of([&] {
              (void)gemm(ones({5, 64}), q);
            }),
            "[gemm] B is of shape [8, 64] and has codes of shape [4, 64]");
}

TEST(Gemm, HadamardOnBothSidesOrNone) {
  Scaling rotated = preset("nvfp4"), other = rotated;
  rotated.hadamard = {.rowwise = true, .signs = 3};
  other.hadamard = {.rowwise = true, .signs = 5};
  const QuantizedTensor plain = quantize(ones({2, 32}).view(), preset("nvfp4")),
                        a = quantize(ones({2, 32}).view(), rotated),
                        b = quantize(ones({2, 32}).view(), other);
  EXPECT_EQ(message_of([&] { (void)gemm(a, plain); }),
            "[gemm] A is Hadamard-transformed and B is not; the transforms cancel only where both "
            "operands have the same one");
  EXPECT_EQ(message_of([&] {
              (void)gemm(ones({2, 32}), a);
            }),
            "[gemm] A is not Hadamard-transformed and B is; the transforms cancel only where both "
            "operands have the same one");
  EXPECT_EQ(message_of([&] { (void)gemm(a, b); }),
            "[gemm] A and B are Hadamard-transformed with other signs; the transforms cancel only "
            "where both operands have the same one");
  EXPECT_EQ(message_of([&] { (void)gemm(a, a); }), "");
}

TEST(Gemm, OutputsThatDoNotFitAreNamed) {
  const Tensor a = ones({4, 4}), b = ones({4, 4});
  const auto into = [&](const View& out, const GemmOptions& options = {}) {
    return message_of([&] { gemm_into(a, b, out, options); });
  };
  EXPECT_EQ(into(a.view()),
            "[gemm] the output shares memory with A, which is still read while parts of the output "
            "are written; give other memory");
  EXPECT_EQ(into(b.view()),
            "[gemm] the output shares memory with B, which is still read while parts of the output "
            "are written; give other memory");
  const Tensor out = ones({4, 4});
  EXPECT_EQ(into(out.view(), {.residual = out.view()}),
            "[gemm] the output shares memory with the residual, which is still read while parts of "
            "the output "
            "are written; give other memory");
  EXPECT_EQ(into(ones({4, 5}).view()), "[gemm] the output has shape [4, 5]; expected [4, 4]");
  EXPECT_EQ(into(Tensor::codes({4, 4}, e4m3fn).view()),
            "[gemm] the output is codes; expected float32, float16 or bfloat16 (float64 with the "
            "float64 accumulator; for codes see gemm_quantized)");
  EXPECT_EQ(into(Tensor::values({4, 4}, DType::f64).view()),
            "[gemm] the output is float64; expected float32, float16 or bfloat16 (float64 with the "
            "float64 accumulator; for codes see gemm_quantized)");
  EXPECT_EQ(into(Tensor::values({4, 4}, DType::f64).view(), {.accumulator = Accumulator::f64}), "");
  View transposed_out = out.view();
  std::swap(transposed_out.strides[0], transposed_out.strides[1]);
  EXPECT_NE(into(transposed_out).find("the output is not contiguous"), std::string::npos);
  EXPECT_NE(into(as_read_only(out.view())).find("read"), std::string::npos);
  EXPECT_EQ(into(out.view(), {.bias = ones({3}).view()}),
            "[gemm] the bias has shape [3]; expected [4]");
  EXPECT_EQ(into(out.view(), {.bias = Tensor::codes({4}, e4m3fn).view()}),
            "[gemm] the bias holds codes; expected float64, float32, float16 or bfloat16");
  EXPECT_EQ(into(out.view(), {.residual = ones({4}).view()}),
            "[gemm] the residual has shape [4]; expected [4, 4]");
  EXPECT_EQ(list_of(out), std::vector<float>(16, 1.0F)) << "written to before an error";
}

TEST(Gemm, AccumulatorsThatDoNotFitAreNamed) {
  const QuantizedTensor q = quantize(ones({2, 64}).view(), preset("fp8")),
                        four = quantize(ones({2, 64}).view(), preset("mxfp4"));
  const auto with = [&](const Operand& b, std::int64_t promote_every) {
    return message_of([&] {
      (void)gemm(q, b, {.accumulator = Accumulator::hopper_fp8, .promote_every = promote_every});
    });
  };
  EXPECT_EQ(
      with(q, 17),
      "[gemm] got promote_every = 17; expected a multiple of 32 (what one instruction sums), or "
      "0 for never");
  EXPECT_NE(with(q, -32).find("got promote_every = -32"), std::string::npos);
  EXPECT_EQ(with(four, 128),
            "[gemm] B is not e4m3fn or e5m2, which is what the FP8 tensor cores multiply; quantize "
            "it, or use another accumulator");
  EXPECT_NE(with(ones({2, 64}), 128).find("B is not e4m3fn or e5m2"), std::string::npos);
  EXPECT_EQ(with(q, 0), "");
  for (const Accumulator accumulator :
       {Accumulator::f32, Accumulator::f16, Accumulator::f64, Accumulator::hopper_fp8,
        Accumulator::amx_bf16, Accumulator::native})
    EXPECT_EQ(parse_accumulator(name_of(accumulator)), accumulator);
  EXPECT_EQ(message_of([] { (void)parse_accumulator("f32"); }),
            "[gemm] got accumulator 'f32'; expected native, float32, float16, float64, hopper_fp8 "
            "or amx_bf16");
}

TEST(Gemm, TheTilesOfAmxMultiplyBf16) {
  const QuantizedTensor q = quantize(ones({2, 64}).view(), preset("fp8"));
  const auto with = [&](const Operand& b) {
    return message_of([&] { (void)gemm(q, b, {.accumulator = Accumulator::amx_bf16}); });
  };
  EXPECT_EQ(
      with(ones({2, 64})),
      "[gemm] B is neither bfloat16 nor codes that bfloat16 holds, which is what the tiles of "
      "AMX multiply; cast or quantize it, or use another accumulator");
  EXPECT_EQ(with(quantize(ones({2, 64}).view(), preset("mxfp4"))), "");
  EXPECT_EQ(with(quantize(ones({2, 64}).view(), preset("nvfp4"))), "");
}

// The default number of threads is that of products, not of casts.
TEST(Gemm, HasTheThreadsOfProducts) {
  static int threads = 0;
  Kernels kernels = reference_backend();
  kernels.gemm = [](const Exec& exec, const GemmJob&) { threads = exec.threads; };
  kernels.gemm_workspace = nullptr;
  const Tensor large = ones({256, 4096});
  (void)gemm(large, large, {.backend = &kernels});
  EXPECT_EQ(threads, product_threads());
  (void)gemm(large, large, {.threads = 5, .backend = &kernels});
  EXPECT_EQ(threads, 5);
  (void)gemm(ones({2, 64}), ones({2, 64}), {.backend = &kernels});
  EXPECT_EQ(threads, 1) << "too little work";
}

}  // namespace
}  // namespace octavo
