// Gradients of attention where scores, biases and inputs are at the ends of f32.
#include "tests/agreement/attention_backward_cases.h"

namespace octavo::testing {
namespace {

// The lowest f32 as a bias, which masks keys where others do not have it, and does not act as -inf
// where all have it: such rows are the mean of V. Multiplied by log2(e) it is beyond f32.
TEST(AttentionBackward, LeastFiniteBiasOnEveryBackend) {
  BackwardCase how{"bias", {.queries = 60, .keys = 70, .depth = 32}};
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  const Tensor bias = Tensor::values({60, 70}, DType::f32);
  for (std::size_t i = 0; i < 60 * 70; ++i) {
    const std::size_t row = i / 70, key = i % 70;
    float number = key < 30 ? 0.0F : kLeast;
    if (row < 10) number = kLeast;
    if (row >= 10 && row < 20) number = key % 2 == 0 ? kLeast : -HUGE_VALF;
    if (row >= 20 && row < 30) number = key < 7 ? -2.9e38F : kLeast;
    if (row >= 30 && row < 40) number = key < 5 ? 3e38F : 0.0F;
    bias.span<float>()[i] = number;
  }
  how.mask.bias = bias.view();
  const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::f32);
  const Tensor d_out = gradient_of_out(how);
  const Gradients want = gradients_of(how, made, d_out, &reference_backend(), 1);
  const oracle::Rows v = rows_of(made.v.view(), 0, 0);
  for (const BackendInfo& backend : support::every_backend()) {
    if (support::is_staged(backend)) continue;
    const std::string name(backend.name);
    const Gradients got = gradients_of(how, made, d_out, backend.kernels, 2);
    expect_near(got.q, want.q, 1e-5, name + ", dQ");
    expect_near(got.k, want.k, 1e-5, name + ", dK");
    expect_near(got.v, want.v, 1e-5, name + ", dV");
    const Tensor lse = Tensor::values({1, 1, 60}, DType::f32);
    const Tensor out = attention(made.q, made.k, made.v,
                                 {.rung = AttentionRung::f32,
                                  .mask = how.mask,
                                  .log_sum_exp = lse.view(),
                                  .backend = backend.kernels});
    for (std::size_t row = 0; row < 40; ++row)
      for (std::size_t e = 0; e < 32; ++e) {
        // Which keys have the largest bias: all of them, every other one, seven, or five.
        double sum = 0.0, count = 0.0;
        for (std::size_t j = 0; j < 70; ++j) {
          const bool seen = row < 10   ? true
                            : row < 20 ? j % 2 == 0
                                       : j < (row < 30 ? std::size_t{7} : std::size_t{5});
          sum += seen ? v[j][e] : 0.0;
          count += seen ? 1.0 : 0.0;
        }
        // Weights are equal; a mean of at most 70 values rounds less often than that.
        ASSERT_NEAR(out.span<float>()[row * 32 + e], sum / count, 70 * 0x1p-24 * 4) << name;
      }
    for (const std::size_t row : {0, 12, 22, 32}) {
      const float of_row = bias.span<float>()[row * 70];
      ASSERT_NEAR(lse.span<float>()[row] / of_row, 1.0, 1e-6) << name;
    }
  }
}

// Rows that see a NaN, and keys that such a row sees, have none but NaN; others are as they were.
TEST(AttentionBackward, NanGoesWhereItIsSeen) {
  const BackwardCase how{"causal", {.queries = 100, .keys = 100, .depth = 16}, {.causal = true}};
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels == &reference_backend() || support::is_staged(backend)) continue;
    for (const int which : {0, 1, 2, 3}) {
      Made made = make_inputs(how.sizes, Kind::normal, 5, DType::f32);
      Tensor d_out = gradient_of_out(how);
      Tensor* of[] = {&made.q, &made.k, &made.v, &d_out};
      of[which]->span<float>()[60 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
      const Gradients want = gradients_of(how, made, d_out, &reference_backend(), 1),
                      got = gradients_of(how, made, d_out, backend.kernels, 2);
      const std::string name = std::string(backend.name) + ", bad " + "QKVO"[which];
      expect_near(got.q, want.q, 1e-5, name + ", dQ");
      expect_near(got.k, want.k, 1e-5, name + ", dK");
      expect_near(got.v, want.v, 1e-5, name + ", dV");
    }
  }
}

}  // namespace
}  // namespace octavo::testing
