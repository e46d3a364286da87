// Data-oblivious check of products under valgrind: the elements and scales of both operands are
// hidden, and so are bias and residual.
#include "checker.h"
#include "octavo/base/error.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/quantize.h"

namespace octavo::oblivious {
namespace {

using Bytes = Checker::Bytes;

// Rows below and at the limits of kernels for small M, whole tiles and ragged ones.
struct Size {
  std::int64_t rows, cols, depth;
};
constexpr Size kSizes[] = {{1, 48, 64}, {5, 33, 96}, {16, 64, 128}, {40, 48, 160}, {70, 130, 288}};

constexpr std::pair<const char*, const char*> kPairs[] = {{"float32", "float32"},
                                                          {"bfloat16", "bfloat16"},
                                                          {"float16", "float16"},
                                                          {"fp8", "fp8"},
                                                          {"fp8-channel", "fp8-channel"},
                                                          {"fp8-1x128", "fp8-block"},
                                                          {"mxfp8", "mxfp8"},
                                                          {"mxfp4", "mxfp4"},
                                                          {"nvfp4", "nvfp4"},
                                                          {"bfloat16", "fp8"},
                                                          {"bfloat16", "mxfp4"},
                                                          {"bfloat16", "nvfp4"},
                                                          {"float32", "mxfp8"},
                                                          {"int8-channel", "int8-channel"}};

void check_product(Checker& checker, const Kernels& kernels, const char* a_name, const char* b_name,
                   const Size& size, bool has_epilogue) {
  const HiddenOperand a(a_name, {size.rows, size.depth}), b(b_name, {size.cols, size.depth});
  const Tensor out = Tensor::values({size.rows, size.cols}, DType::f32),
               bias = Tensor::values({size.cols}, DType::f32),
               residual = Tensor::values({size.rows, size.cols}, DType::bf16);
  std::vector<Bytes> inputs;
  a.add_to(inputs);
  b.add_to(inputs);
  GemmOptions options{.oblivious = true, .threads = 1, .backend = &kernels};
  if (has_epilogue) {
    options.bias = bias.view();
    options.residual = residual.view();
    options.activation = ActivationKind::gelu;
    inputs.push_back(bytes_of(bias));
    inputs.push_back(bytes_of(residual));
  }
  std::uint64_t seed = 8;
  for (const Bytes input : inputs) fill(input, seed++);
  checker.judge(text(kernels.name, ": ", a_name, " by ", b_name, ", ", size.rows, " x ", size.cols,
                     " x ", size.depth, has_epilogue ? ", bias, activation and residual" : ""),
                inputs, {bytes_of(out)},
                [&] { gemm_into(a.operand(), b.operand(), out.view(), options); });
}

}  // namespace

void check_products(Checker& checker, const Kernels& kernels) {
  if (kernels.gemm == nullptr) return;
  for (const auto& [a, b] : kPairs)
    for (const Size& size : kSizes)
      for (const bool has_epilogue : {false, true})
        check_product(checker, kernels, a, b, size, has_epilogue);
}

}  // namespace octavo::oblivious
