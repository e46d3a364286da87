// Rows that attend to a few keys, as the first ones of a causal mask do. Nothing averages out
// there: in millions of elements the largest errors of scores and weights meet the largest
// differences of values. Such rows are recomputed by a more precise method.
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kHeads = 64, kRows = 24;

std::vector<BackendInfo> fast_backends() {
  std::vector<BackendInfo> all = support::every_backend();
  std::erase_if(all, [](const BackendInfo& one) { return one.name == "reference"; });
  return all;
}

Tensor drawn(std::int64_t size, unsigned seed, float factor) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(kHeads * kRows * size));
  for (float& number : numbers) number = factor * normal(random);
  return tensor_of({1, kHeads, kRows, size}, numbers, DType::bf16);
}

Errors errors_of(const Tensor& out, const View& q, const View& k, const View& v) {
  Errors errors;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const oracle::Rows queries = rows_of(q, 0, head), keys = rows_of(k, 0, head),
                       values = rows_of(v, 0, head), got = rows_of(out.view(), 0, head);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::vector<double> exact =
          oracle::attended(queries[at], keys, values,
                           1.0 / std::sqrt(static_cast<double>(queries[at].size())),
                           {.causal = true, .diagonal = 0}, row)
              .out;
      for (std::size_t e = 0; e < exact.size(); ++e) errors.add(got[at][e], exact[e]);
    }
  }
  return errors;
}

TEST(AttentionEarlyRows, AreWithinTheGate) {
  for (const std::int64_t size : {64, 128, 256})
    for (const unsigned seed : {1U, 2U, 3U}) {
      // Norms near those that sums in f16 are offered for, in every other.
      const Tensor q = drawn(size, 3 * seed, seed % 2 == 0 ? 1.5F : 1.0F),
                   k = drawn(size, 3 * seed + 1, 1.0F), v = drawn(size, 3 * seed + 2, 1.0F);
      const QuantizedTensor codes[] = {quantize(q.view(), preset("fp8-channel")),
                                       quantize(k.view(), preset("fp8-channel")),
                                       quantize(v.view(), preset("fp8-channel"))};
      for (const BackendInfo& backend : fast_backends()) {
        const auto options = [&](AttentionRung rung) {
          return AttentionOptions{.rung = rung,
                                  .mask = {.causal = true},
                                  .out = DType::f32,
                                  .backend = backend.kernels};
        };
        const std::string where = std::string(backend.name) + ", D " + std::to_string(size) +
                                  ", seed " + std::to_string(seed);
        for (const AttentionRung rung : {AttentionRung::strict, AttentionRung::automatic}) {
          const Errors errors = errors_of(attention(codes[0], codes[1], codes[2], options(rung)),
                                          dequantize(codes[0]).view(), dequantize(codes[1]).view(),
                                          dequantize(codes[2]).view());
          EXPECT_EQ(errors.failures, 0)
              << octavo::name_of(rung) << " of codes on " << where << ": " << errors;
        }
        for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::automatic}) {
          const Errors errors = errors_of(attention(q.view(), k.view(), v.view(), options(rung)),
                                          q.view(), k.view(), v.view());
          EXPECT_EQ(errors.failures, 0)
              << octavo::name_of(rung) << " of bf16 on " << where << ": " << errors;
        }
      }
    }
}

}  // namespace
}  // namespace octavo::testing
