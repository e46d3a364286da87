// The GEMM epilogue (bias, activation, residual), and every memory layout of operands and results.
#include <functional>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

struct NamedActivation {
  const char* name;
  std::optional<ActivationKind> kind;
  std::function<double(double)> formula;
};

std::vector<NamedActivation> every_activation() {
  const double root = std::sqrt(2.0), tanh_scale = std::sqrt(2.0 / std::acos(-1.0));
  return {
      {"none", {}, [](double x) { return x; }},
      {"relu", ActivationKind::relu, [](double x) { return x > 0 ? x : 0.0; }},
      {"silu", ActivationKind::silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu", ActivationKind::gelu, [root](double x) { return x * 0.5 * std::erfc(-x / root); }},
      {"gelu_tanh", ActivationKind::gelu_tanh, [tanh_scale](double x) {
         return x / (1 + std::exp(-2 * tanh_scale * (x + 0.044715 * x * x * x)));
       }}};
}

// No slope of an activation is above 1.2. A backend may compute the epilogue in f32: bias,
// activation and residual round three times, and exp is off by a few units.
void expect_epilogue(const Tensor& got, const MadeOperand& a, const MadeOperand& b,
                     const NamedActivation& activation, const View& bias, const View& residual,
                     const std::string& where) {
  int shown = 0;
  for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
    const oracle::Element exact = oracle::element_of(a.numbers, b.numbers, row, col);
    const double before =
        exact.sum + (bias.data != nullptr ? oracle::number_at(bias, 0, col) : 0.0);
    const double after = activation.formula(before);
    const double beside = residual.data != nullptr ? oracle::number_at(residual, row, col) : 0.0;
    double bound = 1.2 * (oracle::bound_f32(a.numbers.cols, exact.magnitude) +
                          oracle::kUnitF32 * std::fabs(before)) +
                   oracle::kUnitF32 * (16 * std::fabs(after) + std::fabs(after + beside));
    bound += oracle::bound_rounded(std::fabs(after + beside) + bound, got.dtype());
    if (!(std::fabs(value - (after + beside)) <= bound) && ++shown <= 3)
      ADD_FAILURE() << where << ", row " << row << ", column " << col << ": got " << value
                    << "; expected " << after + beside << " within " << bound;
  });
}

TEST(GemmForms, BiasActivationResidualAndTypes) {
  const std::int64_t m = 21, n = 37, k = 70;
  for (const char* name : {"fp8", "mxfp8", "nvfp4", ""}) {
    const OperandKind kind = *name != '\0' ? quantized_as(name) : valued_as(DType::bf16);
    const MadeOperand a = made(kind, usual_values(m, k, 1), m, k),
                      b = made(kind, usual_values(n, k, 2), n, k);
    unsigned seed = 3;
    for (const NamedActivation& activation : every_activation())
      for (const DType out : {DType::f32, DType::bf16, DType::f16})
        for (const DType beside : {DType::f32, DType::bf16, DType::f16, DType::f64})
          for (const int given : {0, 1, 2, 3}) {
            const Tensor bias = values_as(usual_values(1, n, ++seed), {n}, beside),
                         residual = values_as(usual_values(m, n, ++seed), {m, n}, beside);
            GemmOptions options{.out = out, .activation = activation.kind};
            if ((given & 1) != 0) options.bias = bias.view();
            if ((given & 2) != 0) options.residual = residual.view();
            for (const BackendInfo& backend : multiplying_backends()) {
              options.backend = backend.kernels;
              const Tensor got = gemm(a.operand(), b.operand(), options);
              ASSERT_EQ(got.dtype(), out);
              expect_epilogue(got, a, b, activation, options.bias, options.residual,
                              text(kind.name, ", ", activation.name, ", ", dtype_name(out), ", ",
                                   dtype_name(beside), ", ", given, ", ", backend.name));
              if (HasFailure()) return;
            }
          }
  }
}

View transposed_view(const Tensor& tensor) {
  View view = tensor.view();
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

TEST(GemmForms, StridesOfEverything) {
  const std::int64_t m = 19, n = 23, k = 45;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor a_memory = values_as(usual_values(k, m, 1), {k, m}, dtype),
                 b_memory = values_as(usual_values(n, 2 * k, 2), {n, 2 * k}, dtype);
    // A is a transpose, B every second column from the last to the first.
    const View a = transposed_view(a_memory);
    View b = b_memory.view();
    b.data = static_cast<std::byte*>(b.data) + (2 * k - 1) * b.strides[1];
    b.shape = {n, k};
    b.strides[1] *= -2;
    MadeOperand x{.numbers = oracle::numbers_of(a)}, y{.numbers = oracle::numbers_of(b)};
    const Tensor bias_memory = values_as(usual_values(1, 3 * n, 3), {3 * n}, DType::f32),
                 residual_memory = values_as(usual_values(n, m, 4), {n, m}, DType::f32);
    View bias = bias_memory.view();
    bias.shape = {n};
    bias.strides[0] *= 3;
    const View residual = transposed_view(residual_memory);
    for (const BackendInfo& backend : multiplying_backends())
      for (const DType out : {DType::f32, DType::f16, DType::bf16})
        expect_epilogue(
            gemm(a, b,
                 {.out = out, .bias = bias, .residual = residual, .backend = backend.kernels}),
            x, y, every_activation()[0], bias, residual,
            text(dtype_name(dtype), ", ", backend.name));
  }
}

// Matrix i of a stack.
Tensor matrix_of(const Tensor& stack, std::int64_t i) {
  View view = stack.view();
  const int rank = view.shape.rank();
  const std::int64_t rows = view.shape[rank - 2], cols = view.shape[rank - 1];
  view.data = static_cast<std::byte*>(view.data) + i * rows * view.strides[rank - 2];
  view.strides = {view.strides[rank - 2], view.strides[rank - 1]};
  view.shape = {rows, cols};
  return Tensor::adopt(view, stack.owner());
}

// Quantized as a stack, the numbers of each matrix are those of its own quantization, but for a
// scale of the whole.
TEST(GemmForms, BatchesOfEveryKind) {
  const std::int64_t m = 6, n = 10, k = 72;
  const Shape stacks[] = {{m, k}, {4, m, k}, {2, 2, m, k}},
              weights[] = {{n, k}, {4, n, k}, {2, 2, n, k}};
  for (const char* name : {"fp8", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8", "nvfp4", ""}) {
    const OperandKind kind = *name != '\0' ? quantized_as(name) : valued_as(DType::f32);
    for (const Shape& a_shape : stacks)
      for (const Shape& b_shape : weights) {
        if (a_shape.rank() > 2 && b_shape.rank() > 2 && a_shape.rank() != b_shape.rank()) continue;
        const Tensor x = values_as(usual_values(element_count(a_shape) / k, k, 1), a_shape,
                                   DType::f32),
                     w = values_as(usual_values(element_count(b_shape) / k, k, 2), b_shape,
                                   DType::f32);
        Shape out_shape = a_shape.rank() > 2 ? a_shape : b_shape;
        out_shape[out_shape.rank() - 2] = m;
        out_shape[out_shape.rank() - 1] = n;
        const std::int64_t matrices = element_count(out_shape) / (m * n);
        QuantizedTensor qx, qw;
        Tensor back_x = x, back_w = w;
        if (kind.scaling) {
          qx = quantize(x.view(), *kind.scaling);
          qw = quantize(w.view(), *kind.scaling);
          back_x = dequantize(qx, DType::f64);
          back_w = dequantize(qw, DType::f64);
        }
        const Tensor residual = values_as(usual_values(matrices * m, n, 3), out_shape, DType::f32);
        for (const BackendInfo& backend : multiplying_backends()) {
          const GemmOptions options{.residual = residual.view(), .backend = backend.kernels};
          const Tensor got = kind.scaling ? gemm(qx, qw, options) : gemm(x, w, options);
          const std::string where = text(kind.name, ", ", to_string(a_shape), " x ",
                                         to_string(b_shape), ", ", backend.name);
          ASSERT_EQ(got.shape(), residual.shape()) << where;
          for (std::int64_t i = 0; i < matrices; ++i) {
            const Tensor a = matrix_of(back_x, a_shape.rank() > 2 ? i : 0),
                         b = matrix_of(back_w, b_shape.rank() > 2 ? i : 0);
            const MadeOperand p{.numbers = oracle::numbers_of(a.view())},
                q{.numbers = oracle::numbers_of(b.view())};
            expect_epilogue(matrix_of(got, i), p, q, every_activation()[0], {},
                            matrix_of(residual, i).view(), text(where, ", matrix ", i));
            if (HasFailure()) return;
          }
        }
      }
  }
}

// Stacks with rows between their matrices, which cannot be collapsed into one matrix: A's, the
// residual's, or both.
TEST(GemmForms, BatchesWithGaps) {
  const std::int64_t count = 3, m = 5, n = 7, k = 33, gap = 2;
  const auto stack = [&](std::int64_t cols, bool has_gap, unsigned seed) {
    const std::int64_t rows = m + (has_gap ? gap : 0);
    const Tensor memory =
        values_as(usual_values(count * rows, cols, seed), {count, rows, cols}, DType::f32);
    View view = memory.view();
    view.shape[1] = m;
    return Tensor::adopt(view, memory.owner());
  };
  const Tensor w = values_as(usual_values(n, k, 3), {n, k}, DType::f32);
  for (const auto& [a_gap, residual_gap] :
       {std::pair{false, true}, {true, false}, {true, true}, {false, false}}) {
    const Tensor x = stack(k, a_gap, 1), residual = stack(n, residual_gap, 2);
    const auto matrix = [&](const Tensor& of, std::int64_t i) {
      View view = of.view();
      view.data = static_cast<std::byte*>(view.data) + i * view.strides[0];
      view.shape = {view.shape[1], view.shape[2]};
      view.strides = {view.strides[1], view.strides[2]};
      return Tensor::adopt(view, of.owner());
    };
    for (const BackendInfo& backend : multiplying_backends()) {
      const Tensor got = gemm(x, w, {.residual = residual.view(), .backend = backend.kernels});
      for (std::int64_t i = 0; i < count; ++i) {
        const MadeOperand a{.numbers = oracle::numbers_of(matrix(x, i).view())},
            b{.numbers = oracle::numbers_of(w.view())};
        expect_epilogue(matrix(got, i), a, b, every_activation()[0], {}, matrix(residual, i).view(),
                        text(a_gap, residual_gap, backend.name, i));
      }
    }
  }
}

// Gradients: dx = dy w and dw = dy^T x, from the columnwise copies.
TEST(GemmForms, ProductsOfTraining) {
  const std::int64_t tokens = 70, in = 45, out = 33;
  for (const char* name : {"fp8", "fp8-1x128", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const OperandKind kind = changed(name, name, [](Scaling& s) { s.columnwise = true; });
    const MadeOperand x = made(kind, usual_values(tokens, in, 1), tokens, in),
                      w = made(kind, usual_values(out, in, 2), out, in),
                      dy = made(kind, usual_values(tokens, out, 3), tokens, out);
    const QuantizedTensor xt = transposed(x.quantized), wt = transposed(w.quantized),
                          dyt = transposed(dy.quantized);
    for (const BackendInfo& backend : multiplying_backends()) {
      const GemmOptions options{.backend = backend.kernels};
      expect_product(gemm(x.quantized, w.quantized, options), x.numbers, w.numbers,
                     Accumulator::f32, text(name, " y, ", backend.name));
      expect_product(gemm(dy.quantized, wt, options), dy.numbers, oracle::numbers_of(wt),
                     Accumulator::f32, text(name, " dx, ", backend.name));
      expect_product(gemm(dyt, xt, options), oracle::numbers_of(dyt), oracle::numbers_of(xt),
                     Accumulator::f32, text(name, " dw, ", backend.name));
    }
  }
}

}  // namespace
}  // namespace octavo::testing
