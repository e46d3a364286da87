// Gradients of every backend against reference's. Others compute in f32: with x the largest sum of
// |q k| softmax_scale, a weight is off by about sqrt(D) 2^-24 x, and sums of gradients are as long
// again; compared by L2, so that roundings to nearest count as the square root of their number.
#include "tests/agreement/attention_backward_cases.h"

namespace octavo::testing {
namespace {

const std::vector<BackwardCase>& cases() {
  static const std::vector<BackwardCase> all = {
      {"one", {.queries = 1, .keys = 1, .depth = 1, .width = 1}},
      {"square", {.heads = 2, .kv_heads = 2, .queries = 130, .keys = 130, .depth = 64}},
      {"around tiles", {.queries = 48, .keys = 49, .depth = 24, .width = 40}},
      {"odd", {.queries = 47, .keys = 97, .depth = 33, .width = 7}},
      {"causal", {.queries = 200, .keys = 200, .depth = 64}, {.causal = true}},
      {"bottom right",
       {.queries = 70, .keys = 30, .depth = 16},
       {.causal = true, .bottom_right = true}},
      {"window", {.queries = 150, .keys = 150, .depth = 32}, {.left = 17, .right = 5}},
      {"groups and lengths",
       {.batches = 3,
        .heads = 6,
        .kv_heads = 2,
        .queries = 60,
        .keys = 210,
        .depth = 32,
        .width = 48},
       {.causal = true, .bottom_right = true},
       {60, 7, 0},
       {210, 33, 5}},
      {"bf16", {.queries = 90, .keys = 120, .depth = 64}, {}, {}, {}, DType::bf16},
      {"f16", {.queries = 90, .keys = 120, .depth = 64}, {}, {}, {}, DType::f16},
      {.name = "soft cap",
       .sizes = {.heads = 2, .kv_heads = 2, .queries = 70, .keys = 130, .depth = 64},
       .soft_cap = 0.5},
      {.name = "sinks, grouped",
       .sizes = {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 60, .keys = 90, .depth = 32},
       .mask = {.causal = true, .bottom_right = true, .left = 30},
       .query_lengths = {60, 11},
       .key_lengths = {90, 40},
       .sinks = {-HUGE_VALF, -2.0F, 3.0F, 20.0F}},
      {.name = "soft cap and sinks",
       .sizes = {.heads = 2, .kv_heads = 1, .queries = 50, .keys = 60, .depth = 32},
       .mask = {.causal = true},
       .soft_cap = 2.0,
       .sinks = {0.5F, 4.0F}},
      {.name = "dropout, grouped",
       .sizes = {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 70, .keys = 110, .depth = 32},
       .mask = {.causal = true, .bottom_right = true},
       .dropout = {0.3, 12345}},
      {.name = "dropout, soft cap and sinks",
       .sizes = {.heads = 2, .kv_heads = 1, .queries = 50, .keys = 61, .depth = 32},
       .soft_cap = 2.0,
       .sinks = {0.5F, 4.0F},
       .dropout = {0.1, 1}},
  };
  return all;
}

TEST(AttentionBackward, EveryBackend) {
  for (const BackwardCase& how : cases()) {
    const Made made = make_inputs(how.sizes, Kind::normal, 5, how.dtype);
    const Tensor d_out = gradient_of_out(how);
    const Gradients want = gradients_of(how, made, d_out, &reference_backend(), 1);
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.kernels == &reference_backend() || support::is_staged(backend)) continue;
      const Gradients got = gradients_of(how, made, d_out, backend.kernels, 1);
      const std::string name = how.name + " on " + std::string(backend.name);
      expect_near(got.q, want.q, bound_of(how.dtype), name + ", dQ");
      expect_near(got.k, want.k, bound_of(how.dtype), name + ", dK");
      expect_near(got.v, want.v, bound_of(how.dtype), name + ", dV");
      expect_near_sinks(got, want, bound_of(how.dtype), name);
      const Gradients threads = gradients_of(how, made, d_out, backend.kernels, 5);
      EXPECT_TRUE(std::ranges::equal(got.q.bytes(), threads.q.bytes()) &&
                  std::ranges::equal(got.k.bytes(), threads.k.bytes()) &&
                  std::ranges::equal(got.v.bytes(), threads.v.bytes()))
          << name << ": depends on threads";
    }
  }
}

// The results of the forward pass may be handed over: gradients are within the bound of those that
// recompute it, and it is not recomputed: with log-sum-exps that are 0.5 more, weights and dV are
// exp(-0.5) of theirs.
TEST(AttentionBackward, ForwardIsHandedOver) {
  for (const BackwardCase& how : cases())
    for (const BackendInfo& backend : support::every_backend()) {
      if (support::is_staged(backend)) continue;
      const Made made = make_inputs(how.sizes, Kind::normal, 5, how.dtype);
      const Tensor d_out = gradient_of_out(how);
      AttentionMask mask = how.mask;
      mask.query_lengths = how.query_lengths;
      mask.key_lengths = how.key_lengths;
      const Shape& q = made.q.shape();
      const Tensor lse = Tensor::values({q[0], q[1], q[2]}, DType::f32);
      AttentionOptions options{.rung = AttentionRung::f32,
                               .mask = mask,
                               .soft_cap = how.soft_cap,
                               .sinks = view_of_sinks(how.sinks),
                               .dropout = how.dropout,
                               .out = DType::f32,
                               .log_sum_exp = lse.view(),
                               .threads = 2,
                               .backend = backend.kernels};
      const Tensor out = attention(made.q, made.k, made.v, options);
      options.log_sum_exp = {};
      const AttentionForward forward{.out = out.view(), .log_sum_exp = lse.view()};
      const Gradients want = gradients_of(how, made, d_out, backend.kernels, 2);
      const AttentionGradients got =
          attention_backward(made.q, made.k, made.v, d_out.view(), options, forward);
      const std::string name = how.name + " on " + std::string(backend.name);
      expect_near(got.q, want.q, bound_of(how.dtype), name + ", dQ");
      expect_near(got.k, want.k, bound_of(how.dtype), name + ", dK");
      expect_near(got.v, want.v, bound_of(how.dtype), name + ", dV");
      expect_near_sinks({got.q, got.k, got.v, got.sinks}, want, bound_of(how.dtype), name);
      if (backend.kernels == &reference_backend() || how.dtype != DType::f32) continue;
      for (float& number : lse.span<float>()) number += 0.5F;
      const Tensor less =
          attention_backward(made.q, made.k, made.v, d_out.view(), options, forward).v;
      for (std::size_t i = 0; i < less.span<float>().size(); ++i)
        ASSERT_NEAR(less.span<float>()[i], want.v.span<float>()[i] * std::exp(-0.5F), 1e-4) << name;
    }
}

TEST(AttentionBackward, ForwardThatCannotBeOne) {
  const Made made =
      make_inputs({.queries = 9, .keys = 12, .depth = 8}, Kind::normal, 5, DType::f32);
  const Tensor d_out = Tensor::values({1, 1, 9, 8}, DType::f32), out = d_out,
               lse = Tensor::values({1, 1, 9}, DType::f32),
               short_lse = Tensor::values({1, 1, 8}, DType::f32),
               narrow = Tensor::values({1, 1, 9, 8}, DType::bf16);
  const auto says = [&](const AttentionForward& forward, AttentionRung rung,
                        const std::string& what) {
    try {
      (void)attention_backward(made.q, made.k, made.v, d_out.view(), {.rung = rung}, forward);
      ADD_FAILURE() << "no error of " << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  const AttentionRung f32 = AttentionRung::f32;
  says({.out = out.view()}, f32, "expected both or neither");
  says({.log_sum_exp = lse.view()}, f32, "expected both or neither");
  says({out.view(), short_lse.view()}, f32, "log_sum_exp has shape [1, 1, 8]");
  says({narrow.view(), lse.view()}, f32, "the output is bfloat16");
  says({out.view(), lse.view()}, AttentionRung::bf16, "expected it on 'f32'");
}

// No rows, no keys, no heads: gradients of what there is are zeros.
TEST(AttentionBackward, OfNothing) {
  for (const BackendInfo& backend : support::every_backend()) {
    if (support::is_staged(backend)) continue;
    for (const Sizes& sizes :
         {Sizes{.queries = 0, .keys = 50, .depth = 8}, Sizes{.queries = 50, .keys = 0, .depth = 8},
          Sizes{.batches = 0, .queries = 5, .keys = 5, .depth = 8},
          Sizes{.heads = 0, .kv_heads = 0, .queries = 5, .keys = 5, .depth = 8}}) {
      const BackwardCase how{"nothing", sizes};
      const Made made = make_inputs(sizes, Kind::normal, 5, DType::f32);
      const Gradients got = gradients_of(how, made, gradient_of_out(how), backend.kernels, 2);
      for (const Tensor* tensor : {&got.q, &got.k, &got.v})
        for (const float number : tensor->span<float>()) ASSERT_EQ(number, 0.0F) << backend.name;
    }
  }
}

// A bias, and keys that it masks: from some rows, from all of them (one that is NaN), and all keys
// from one row.
TEST(AttentionBackward, BiasOnEveryBackend) {
  BackwardCase how{
      "bias",
      {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 70, .keys = 110, .depth = 32},
      {.causal = true, .bottom_right = true}};
  for (const Shape& shape : {Shape{2, 4, 70, 110}, Shape{4, 1, 110}, Shape{70, 110}}) {
    const Tensor bias = Tensor::values(shape, DType::f32);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    std::size_t i = 0;
    for (float& number : bias.span<float>()) {
      const std::size_t key = i % 110, row = i / 110 % 70;
      const bool hidden = key == 9 || i % 7 == 2 || (row == 50 && shape[shape.rank() - 2] > 1);
      number = hidden ? -HUGE_VALF : normal(random);
      ++i;
    }
    how.mask.bias = bias.view();
    Made made = make_inputs(how.sizes, Kind::normal, 5, DType::f32);
    for (std::size_t head = 0; head < 4; ++head) {
      made.k.span<float>()[(head * 110 + 9) * 32 + 5] = std::numeric_limits<float>::quiet_NaN();
      made.v.span<float>()[(head * 110 + 9) * 32 + 6] = std::numeric_limits<float>::infinity();
    }
    const Tensor d_out = gradient_of_out(how);
    const Gradients want = gradients_of(how, made, d_out, &reference_backend(), 1);
    for (const float number : want.q.span<float>()) ASSERT_TRUE(std::isfinite(number));
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.kernels == &reference_backend() || support::is_staged(backend)) continue;
      const std::string name = to_string(shape) + " on " + std::string(backend.name);
      // Computed by this backend, without fallback to the reference.
      Log log([&](std::string_view message) { ADD_FAILURE() << name << ": " << message; });
      const Gradients got = gradients_of(how, made, d_out, backend.kernels, 2, &log);
      expect_near(got.q, want.q, 1e-5, name + ", dQ");
      expect_near(got.k, want.k, 1e-5, name + ", dK");
      expect_near(got.v, want.v, 1e-5, name + ", dV");
    }
  }
}

// Scores beyond what f32 has a fraction of. Weights of a row add up to one all the same, so the sum
// of dV over keys is that of dO over rows, whatever scores were rounded to. Rows attend to one key
// where scores are a million, and what is left of dP - sum P dP is roundings of dP: 2^-24 for each
// of P, its divisor and two sums, of |dP| softmax_scale |k|. A forward pass that is given changes
// nothing.
TEST(AttentionBackward, LargeScoresOnEveryBackend) {
  const BackwardCase how{"large", {.queries = 130, .keys = 160, .depth = 32}};
  for (const float times : {40.0F, 200.0F, 3000.0F})
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.kernels == &reference_backend() || support::is_staged(backend)) continue;
      Made made = make_inputs(how.sizes, Kind::normal, 5, DType::f32);
      for (Tensor* side : {&made.q, &made.k})
        for (float& number : side->span<float>()) number *= times;
      const Tensor d_out = gradient_of_out(how);
      const Tensor lse = Tensor::values({1, 1, 130}, DType::f32);
      AttentionOptions options{.rung = AttentionRung::f32,
                               .out = DType::f32,
                               .log_sum_exp = lse.view(),
                               .backend = backend.kernels};
      const Tensor out = attention(made.q, made.k, made.v, options);
      options.log_sum_exp = {};
      const Gradients exact = gradients_of(how, made, d_out, &reference_backend(), 1);
      for (const bool given : {false, true}) {
        const std::string name =
            std::to_string(times) + (given ? ", given" : "") + " on " + std::string(backend.name);
        const AttentionForward forward{.out = out.view(), .log_sum_exp = lse.view()};
        const AttentionGradients got = attention_backward(
            made.q, made.k, made.v, d_out.view(), options, given ? forward : AttentionForward{});
        for (std::size_t e = 0; e < 32; ++e) {
          double keys = 0.0, rows = 0.0;
          for (std::size_t j = 0; j < 160; ++j)
            keys += static_cast<double>(got.v.span<float>()[j * 32 + e]);
          for (std::size_t i = 0; i < 130; ++i)
            rows += static_cast<double>(d_out.span<float>()[i * 32 + e]);
          ASSERT_NEAR(keys, rows, 130 * 4 * 0x1p-23) << name;
        }
        if (times < 3000.0F) continue;
        const double d_p = 32.0, along = 5.5 * static_cast<double>(times) / std::sqrt(32.0);
        for (std::size_t i = 0; i < 130 * 32; ++i)
          ASSERT_NEAR(got.q.span<float>()[i], exact.q.span<float>()[i], 8 * 0x1p-24 * d_p * along)
              << name;
        expect_near(got.v, exact.v, 1e-6, name + ", dV");
      }
    }
}

}  // namespace
}  // namespace octavo::testing
