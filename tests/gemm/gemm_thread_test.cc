// GEMM has the same bits for any number of threads.
#include <cstring>

#include "tests/gemm/gemm_cases.h"
#include "tests/support/sanitizer.h"

namespace octavo::testing {
namespace {

struct Case {
  OperandKind a, b;
  Accumulator accumulator = Accumulator::f32;
};

// Quantized by the fast backend; no oracle is needed here.
MadeOperand quickly_made(const OperandKind& kind, const std::vector<float>& values,
                         std::int64_t rows, std::int64_t cols) {
  MadeOperand made{.is_quantized = kind.scaling.has_value()};
  if (made.is_quantized)
    made.quantized = quantize(values_as(values, {rows, cols}, DType::f32).view(), *kind.scaling);
  else
    made.values = values_as(values, {rows, cols}, kind.dtype);
  return made;
}

TEST(GemmThreads, SameBits) {
  const Case cases[] = {
      {quantized_as("fp8"), quantized_as("fp8")},
      {quantized_as("fp8-1x128"), quantized_as("fp8-block")},
      {quantized_as("mxfp8"), quantized_as("mxfp8")},
      {quantized_as("mxfp4"), quantized_as("mxfp4")},
      {quantized_as("nvfp4"), quantized_as("nvfp4")},
      {valued_as(DType::f32), valued_as(DType::f32)},
      {valued_as(DType::bf16), quantized_as("fp8-channel")},
      {quantized_as("fp8"), quantized_as("fp8"), Accumulator::f16},
  };
  // Enough products that every backend uses all the threads it is given, and ends that fit nothing;
  // with many rows and few columns, threads take several blocks of the same columns.
  int turn = 0;
  for (const Sizes& sizes :
       {Sizes{1, 4099, 2101}, Sizes{9, 1031, 1033}, Sizes{133, 259, 301}, Sizes{1061, 37, 97}}) {
    ++turn;
    const std::vector<float> a_values = usual_values(sizes.m, sizes.k, 1),
                             b_values = usual_values(sizes.n, sizes.k, 2);
    for (const Case& c : cases) {
      // A sanitizer takes ten times as long: half of the cases of each size, the others of the
      // next.
      if (++turn % 2 == 0 && support::under_sanitizer()) continue;
      // GEMV has its own kernel for one-byte codes; otherwise M = 1 is like any small M.
      if (sizes.m == 1 && !(c.b.scaling && c.b.scaling->format == e4m3fn)) continue;
      const MadeOperand a = quickly_made(c.a, a_values, sizes.m, sizes.k),
                        b = quickly_made(c.b, b_values, sizes.n, sizes.k);
      for (const BackendInfo& backend : multiplying_backends()) {
        const Kernels& kernels = *backend.kernels;
        if (&kernels == &reference_backend() || support::is_staged(backend)) continue;
        // Where a backend leaves it to the reference there are no threads, and it takes long.
        const GemmJob like{.accumulator = c.accumulator};
        if (kernels.gemm_offered != nullptr && !kernels.gemm_offered(like)) continue;
        std::vector<Tensor> results;
        // Races need two threads, not every number of them, and take ten times as long to look for.
        const std::vector<int> numbers =
            support::under_sanitizer() ? std::vector{1, 3} : std::vector{1, 2, 3, 16};
        for (const int threads : numbers)
          results.push_back(
              gemm(a.operand(), b.operand(),
                   {.accumulator = c.accumulator, .threads = threads, .backend = &kernels}));
        for (const Tensor& other : results)
          EXPECT_EQ(std::memcmp(other.bytes().data(), results[0].bytes().data(),
                                results[0].bytes().size()),
                    0)
              << c.a.name << " x " << c.b.name << ", " << to_text(sizes) << ", " << backend.name
              << ", " << name_of(c.accumulator);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
