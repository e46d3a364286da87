// A product that is quantized: the bytes of quantize(gemm(...)).
#include <cstring>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

std::string difference(const QuantizedTensor& got, const QuantizedTensor& wanted) {
  if (got.shape != wanted.shape || !(got.scaling == wanted.scaling)) return "another kind";
  const auto parts = [](const QuantizedTensor& q) {
    return std::array{q.rowwise.codes,    q.rowwise.scales,    q.rowwise.tensor_scale,
                      q.columnwise.codes, q.columnwise.scales, q.columnwise.tensor_scale};
  };
  const auto a = parts(got), b = parts(wanted);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if ((a[i].owner() == nullptr) != (b[i].owner() == nullptr)) return text("part ", i, " missing");
    if (a[i].owner() == nullptr) continue;
    const auto x = a[i].bytes(), y = b[i].bytes();
    if (x.size() != y.size()) return text("part ", i, " has another size");
    for (std::size_t at = 0; at < x.size(); ++at)
      if (x[at] != y[at]) return text("part ", i, ", byte ", at);
  }
  return "";
}

std::vector<OperandKind> every_scaling() {
  std::vector<OperandKind> kinds;
  for (const std::string& name : preset_names()) kinds.push_back(quantized_as(name));
  const auto with = [&](const char* base, const char* name, auto&& edit) {
    kinds.push_back(changed(base, name, edit));
  };
  with("mxfp8", "both copies", [](Scaling& s) { s.columnwise = true; });
  with("mxfp4", "stochastic", [](Scaling& s) {
    s.encode.rounding = Rounding::stochastic;
    s.encode.seed = 11;
  });
  with("fp8-1x128", "col_major", [](Scaling& s) { s.scale_order = ScaleOrder::col_major; });
  with("nvfp4", "hadamard", [](Scaling& s) { s.hadamard = {.rowwise = true, .signs = 0x1234}; });
  with("mxfp4", "hadamard mx", [](Scaling& s) { s.hadamard = {.rowwise = true, .signs = 0x1234}; });
  with("fp8", "tile_6x5", [](Scaling& s) { s.tile = {6, 5}; });
  with("fp8", "axis 0", [](Scaling& s) {
    s.tile = {1, 32};
    s.axis = 0;
  });
  with("mxfp6", "axis 1", [](Scaling& s) { s.axis = 1; });
  return kinds;
}

// `a` and `b` in every kind of output, with every epilogue.
void expect_same_bytes(const MadeOperand& a, const MadeOperand& b, std::int64_t m, std::int64_t n,
                       const std::vector<OperandKind>& scalings,
                       std::optional<ActivationKind> activation, const std::string& where) {
  const Tensor bias = values_as(usual_values(1, n, 3), {n}, DType::f32),
               residual = values_as(usual_values(m, n, 4), {m, n}, DType::bf16);
  for (const BackendInfo& backend : multiplying_backends()) {
    const GemmOptions options{.bias = bias.view(),
                              .activation = activation,
                              .residual = residual.view(),
                              .backend = backend.kernels};
    const Tensor values = gemm(a.operand(), b.operand(), options);
    for (const OperandKind& kind : scalings)
      EXPECT_EQ(difference(gemm_quantized(a.operand(), b.operand(), *kind.scaling, options),
                           quantize(values.view(), *kind.scaling, {.backend = backend.kernels})),
                "")
          << where << ", to " << kind.name << ", " << backend.name;
  }
}

TEST(GemmQuantized, EveryScaling) {
  const std::int64_t m = 37, n = 70, k = 50;
  for (const char* name : {"fp8", "mxfp8", "fp8-block"}) {
    const MadeOperand a = made(quantized_as(name), usual_values(m, k, 1), m, k),
                      b = made(quantized_as(name), usual_values(n, k, 2), n, k);
    expect_same_bytes(a, b, m, n, every_scaling(), ActivationKind::silu, name);
  }
}

// More rows than the row block that is kept in f32, with few rows left over (small M), which must
// have the bits of a large product.
TEST(GemmQuantized, InRowBlocks) {
  const auto scaling_named = [](std::string_view name) {
    for (const OperandKind& kind : every_scaling())
      if (kind.name == name) return kind;
    return OperandKind{};
  };
  const std::pair<OperandKind, const char*> cases[] = {{valued_as(DType::f32), "mxfp8"},
                                                       {quantized_as("fp8"), "fp8-block"},
                                                       {quantized_as("fp8-channel"), "stochastic"},
                                                       {changed("fp8", "tile_7x0",
                                                                [](Scaling& s) {
                                                                  s.tile = {7, 0};
                                                                }),
                                                        "tile_6x5"},
                                                       {quantized_as("fp8-block"), "fp8-channel"},
                                                       {quantized_as("fp8"), "both copies"}};
  const std::int64_t k = 40;
  for (const auto& [kind, to] : cases) {
    // Wide results use the smallest row blocks.
    const bool wide = kind.name == "fp8-channel";
    const std::int64_t m = wide ? 130 : 1030, n = wide ? 20000 : 1024;
    expect_same_bytes(made(kind, usual_values(m, k, 1), m, k),
                      made(quantized_as("fp8"), usual_values(n, k, 2), n, k), m, n,
                      {scaling_named(to)}, {}, kind.name);
  }
}

TEST(GemmQuantized, AResidualOfAnotherShape) {
  const Tensor a = values_as(usual_values(1030, 2, 1), {1030, 2}, DType::f32),
               b = values_as(usual_values(1024, 2, 2), {1024, 2}, DType::f32);
  for (const Shape& shape : {Shape{2048, 1024}, Shape{6, 1024}, Shape{1030}}) {
    const Tensor residual = Tensor::values(shape, DType::f32);
    std::ranges::fill(residual.bytes(), std::byte{0});
    try {
      (void)gemm_quantized(a, b, preset("mxfp8"), {.residual = residual.view()});
      ADD_FAILURE() << "no error about " << to_string(shape);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), text("[gemm] the residual has shape ", to_string(shape),
                                                "; expected [1030, 1024]"));
    }
  }
}

TEST(GemmQuantized, Batches) {
  const Tensor x = values_as(usual_values(2 * 9, 40, 1), {2, 9, 40}, DType::f32),
               w = values_as(usual_values(33, 40, 2), {33, 40}, DType::f32);
  for (const char* name : {"mxfp8", "nvfp4", "fp8"}) {
    const QuantizedTensor a = quantize(x.view(), preset(name)),
                          b = quantize(w.view(), preset(name));
    EXPECT_EQ(
        difference(gemm_quantized(a, b, preset(name)), quantize(gemm(a, b).view(), preset(name))),
        "")
        << name;
  }
}

}  // namespace
}  // namespace octavo::testing
