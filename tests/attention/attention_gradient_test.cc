// Gradients: against differences of the forward pass in f64, and against the textbook's formulas at
// the inputs that a rung has.
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

Tensor drawn(const Shape& shape, unsigned seed, DType dtype = DType::f64) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(element_count(shape)));
  for (float& number : numbers) number = normal(random);
  return tensor_of(shape, numbers, dtype);
}

double loss(const Made& made, const Tensor& d_out, const AttentionOptions& options) {
  const Tensor out = attention(made.q, made.k, made.v, options);
  double sum = 0.0;
  for (std::size_t i = 0; i < out.span<double>().size(); ++i)
    sum += out.span<double>()[i] * d_out.span<double>()[i];
  return sum;
}

TEST(AttentionGradient, DifferencesOfTheForwardPass) {
  const Sizes sizes{
      .batches = 2, .heads = 4, .kv_heads = 2, .queries = 6, .keys = 9, .depth = 4, .width = 3};
  const std::int64_t lengths[] = {9, 5};
  for (const AttentionMask& mask :
       {AttentionMask{}, AttentionMask{.causal = true, .bottom_right = true},
        AttentionMask{.left = 2, .right = 1}, AttentionMask{.key_lengths = lengths}}) {
    const Made made = make_inputs(sizes, Kind::normal, 21, DType::f64);
    const Tensor d_out = drawn({2, 4, 6, 3}, 22);
    const AttentionOptions options{
        .rung = AttentionRung::exact, .mask = mask, .softmax_scale = 0.7F, .out = DType::f64};
    const AttentionGradients gradients =
        attention_backward(made.q, made.k, made.v, d_out.view(), options);
    const auto check = [&](const Tensor& input, const Tensor& gradient, const char* name) {
      for (std::size_t i = 0; i < input.span<double>().size(); ++i) {
        double& number = input.span<double>()[i];
        const double before = number, step = 1e-5;
        number = before + step;
        const double above = loss(made, d_out, options);
        number = before - step;
        const double below = loss(made, d_out, options);
        number = before;
        // The third derivative times step^2 / 6 is below 1e-9, rounding of the loss 1e-15 / step.
        ASSERT_NEAR(gradient.span<double>()[i], (above - below) / (2 * step), 2e-8)
            << name << " " << i;
      }
    };
    check(made.q, gradients.q, "dQ");
    check(made.k, gradients.k, "dK");
    check(made.v, gradients.v, "dV");
  }
}

// The same with a soft cap, sinks or both, and the gradient of the sinks; some rows see no key, and
// scores reach far beyond the smallest cap.
TEST(AttentionGradient, DifferencesWithSoftCapsAndSinks) {
  const Sizes sizes{
      .batches = 2, .heads = 4, .kv_heads = 2, .queries = 6, .keys = 5, .depth = 4, .width = 3};
  std::vector<float> sinks = {-HUGE_VALF, -1.0F, 0.5F, 3.0F};
  for (const double cap : {0.0, 0.4, 2.0, 30.0})
    for (const bool has_sinks : {false, true}) {
      const Made made = make_inputs(sizes, Kind::normal, 21, DType::f64);
      const Tensor d_out = drawn({2, 4, 6, 3}, 22);
      const AttentionOptions options{.rung = AttentionRung::exact,
                                     .mask = {.causal = true, .bottom_right = true},
                                     .softmax_scale = 0.7F,
                                     .soft_cap = cap,
                                     .sinks = has_sinks ? view_of_sinks(sinks) : View{},
                                     .out = DType::f64};
      const AttentionGradients gradients =
          attention_backward(made.q, made.k, made.v, d_out.view(), options);
      const std::string what =
          "cap " + std::to_string(cap) + (has_sinks ? ", sinks, " : ", no sinks, ");
      const auto difference = [&](auto& number, double step) {
        const auto before = number;
        number = before + static_cast<std::remove_reference_t<decltype(number)>>(step);
        const double above = loss(made, d_out, options), high = static_cast<double>(number);
        number = before - static_cast<std::remove_reference_t<decltype(number)>>(step);
        const double below = loss(made, d_out, options), low = static_cast<double>(number);
        number = before;
        return (above - below) / (high - low);
      };
      const auto check = [&](const Tensor& input, const Tensor& gradient, const char* name) {
        for (std::size_t i = 0; i < input.span<double>().size(); ++i)
          // The third derivative of a cap of 0.4 is at most 2 / 0.4^2 times its numbers': 1e-8.
          ASSERT_NEAR(gradient.span<double>()[i], difference(input.span<double>()[i], 1e-5), 3e-8)
              << what << name << " " << i;
      };
      check(made.q, gradients.q, "dQ");
      check(made.k, gradients.k, "dK");
      check(made.v, gradients.v, "dV");
      ASSERT_EQ(gradients.sinks.owner() != nullptr, has_sinks);
      for (std::size_t h = 0; has_sinks && h < 4; ++h) {
        const float gradient = gradients.sinks.span<float>()[h];
        if (h == 0) {  // -inf, which has no neighbours to take a difference of
          ASSERT_EQ(gradient, 0.0F);
          continue;
        }
        // Sinks are f32: a step of 2^-8, whose square times a third derivative of up to 30 / 6 (a
        // sum over 12 rows) is 8e-5.
        ASSERT_NEAR(static_cast<double>(gradient), difference(sinks[h], 0x1p-8), 1e-4)
            << what << "sink " << h;
      }
    }
}

// Against the textbook: the sink is a key whose value is zero.
TEST(AttentionGradient, ASinkIsAKeyWithoutAValue) {
  const Sizes sizes{.queries = 70, .keys = 60, .depth = 16};
  const Made made = make_inputs(sizes, Kind::normal, 2, DType::f32);
  const Tensor d_out = drawn({1, 1, 70, 16}, 5, DType::f32);
  const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                     v = rows_of(made.v.view(), 0, 0), d = rows_of(d_out.view(), 0, 0);
  for (const float sink : {-5.0F, 0.0F, 4.0F, 20.0F}) {
    double exact = 0.0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const oracle::AttendedRow row =
          oracle::attended(q[i], k, v, 0.25, {}, 0, {.sink = static_cast<double>(sink)});
      const double weight = std::exp(static_cast<double>(sink) - row.log_sum_exp);
      for (std::size_t e = 0; e < v[0].size(); ++e) exact -= weight * d[i][e] * row.out[e];
    }
    for (const BackendInfo& backend : support::every_backend()) {
      if (support::is_staged(backend)) continue;
      const std::vector<float> sinks = {sink};
      double into[1] = {77.0};
      const AttentionOptions options{
          .rung = AttentionRung::f32, .sinks = view_of_sinks(sinks), .backend = backend.kernels};
      const Tensor d_q = Tensor::values(made.q.shape(), DType::f32),
                   d_k = Tensor::values(made.k.shape(), DType::f32),
                   d_v = Tensor::values(made.v.shape(), DType::f32);
      attention_backward_into(made.q, made.k, made.v, d_out.view(), d_q.view(), d_k.view(),
                              d_v.view(), options, {}, value_view(into, DType::f64, {1}));
      EXPECT_NEAR(into[0], exact, 1e-5 * std::abs(exact)) << backend.name << ", sink " << sink;
    }
  }
}

struct Exact {
  oracle::Rows q, k, v;
};

// One head, from the weights of each row: dV = P^T dO, dS = P o (dO V^T - rowsum), and so on.
Exact exact_gradients(const oracle::Rows& q, const oracle::Rows& k, const oracle::Rows& v,
                      const oracle::Rows& d_out, double scale, const oracle::Sees& sees) {
  const auto zeros = [](const oracle::Rows& like) {
    return oracle::Rows(like.size(), std::vector<double>(like[0].size(), 0.0));
  };
  Exact to{zeros(q), zeros(k), zeros(v)};
  for (std::size_t i = 0; i < q.size(); ++i) {
    const oracle::AttendedRow row =
        oracle::attended(q[i], k, v, scale, sees, static_cast<std::int64_t>(i));
    double mean = 0.0;
    for (std::size_t e = 0; e < v[0].size(); ++e) mean += d_out[i][e] * row.out[e];
    for (std::size_t j = 0; j < k.size(); ++j) {
      double d_p = 0.0;
      for (std::size_t e = 0; e < v[0].size(); ++e) {
        d_p += d_out[i][e] * v[j][e];
        to.v[j][e] += row.weights[j] * d_out[i][e];
      }
      for (std::size_t d = 0; d < q[0].size(); ++d) {
        to.q[i][d] += row.weights[j] * (d_p - mean) * scale * k[j][d];
        to.k[j][d] += row.weights[j] * (d_p - mean) * scale * q[i][d];
      }
    }
  }
  return to;
}

double relative_l2(const Tensor& got, const oracle::Rows& exact) {
  const oracle::Rows rows = rows_of(got.view(), 0, 0);
  double error = 0.0, sum = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    for (std::size_t d = 0; d < exact[i].size(); ++d) {
      error += (rows[i][d] - exact[i][d]) * (rows[i][d] - exact[i][d]);
      sum += exact[i][d] * exact[i][d];
    }
  return std::sqrt(error / sum);
}

// What f32 costs: a score is a sum of D products, of which each addition rounds by 2^-24 of at most
// sum |q k|. Roundings are either way, so the square root of their number counts, and what a score
// is off by in natural units is the relative error of its weight. dS has the difference of two
// numbers of that error, and meets K, Q or dO in sums as long again: four times in all.
double rounding_of(const Tensor& q, const Tensor& k) {
  const oracle::Rows rows = rows_of(q.view(), 0, 0), keys = rows_of(k.view(), 0, 0);
  double most = 0.0;
  for (const auto& row : rows)
    for (const auto& key : keys) {
      double sum = 0.0;
      for (std::size_t d = 0; d < row.size(); ++d) sum += std::abs(row[d] * key[d]);
      most = std::max(most, sum);
    }
  const auto depth = static_cast<double>(rows[0].size());
  return 4.0 * std::sqrt(depth) * 0x1p-24 * most / std::sqrt(depth);
}

TEST(AttentionGradient, RungsAtTheirInputsAndNearThoseGiven) {
  const Sizes sizes{.queries = 96, .keys = 96, .depth = 64};
  const Tensor d_out = drawn({1, 1, 96, 64}, 5, DType::f32);
  for (const Kind kind : {Kind::normal, Kind::outlier})
    for (const bool causal : {false, true}) {
      const Made made = make_inputs(sizes, kind, 31, DType::f32);
      const auto exact_at = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return exact_gradients(rows_of(q.view(), 0, 0), rows_of(k.view(), 0, 0),
                               rows_of(v.view(), 0, 0), rows_of(d_out.view(), 0, 0), 0.125,
                               {.causal = causal});
      };
      const Exact given = exact_at(made.q, made.k, made.v);
      // The error of inputs, three of which meet in dQ and dK, each again in the scores: e4m3 has
      // 2.6 %, int8 0.9 %, bf16 0.16 %, f16 0.02 %. strict does not smooth K, whose outliers are 10
      // times larger.
      const bool far = kind == Kind::outlier;
      for (const auto& [rung, bound] :
           {std::pair{AttentionRung::f32, 1e-5}, std::pair{AttentionRung::bf16, far ? 3e-2 : 1e-2},
            std::pair{AttentionRung::f16, far ? 4e-3 : 2e-3},
            std::pair{AttentionRung::balanced, 5e-2}, std::pair{AttentionRung::fast, 0.15},
            std::pair{AttentionRung::strict, far ? 0.35 : 0.15},
            std::pair{AttentionRung::automatic, 1e-5}}) {
        const AttentionOptions options{.rung = rung, .mask = {.causal = causal}};
        const AttentionGradients got =
            attention_backward(made.q, made.k, made.v, d_out.view(), options);
        const AttentionInputs inputs = attention_inputs(made.q, made.k, made.v, options);
        const Exact own = exact_at(inputs.q, inputs.k, inputs.v);
        const std::string name =
            std::string(octavo::name_of(rung)) + ", " + name_of(kind) + (causal ? ", causal" : "");
        const double rounding = rounding_of(inputs.q, inputs.k);
        EXPECT_LE(relative_l2(got.q, own.q), rounding) << name;
        EXPECT_LE(relative_l2(got.k, own.k), rounding) << name;
        EXPECT_LE(relative_l2(got.v, own.v), rounding) << name;
        EXPECT_LE(relative_l2(got.q, given.q), bound) << name;
        EXPECT_LE(relative_l2(got.k, given.k), bound) << name;
        EXPECT_LE(relative_l2(got.v, given.v), bound) << name;
      }
    }
}

TEST(AttentionGradient, WhatIsNotSeenHasNone) {
  const Sizes sizes{.queries = 8, .keys = 3, .depth = 4};
  const Made made = make_inputs(sizes, Kind::normal, 1, DType::f32);
  const Tensor d_out = drawn({1, 1, 8, 4}, 5, DType::f32);
  // The first five rows stand before the first key.
  const AttentionGradients got = attention_backward(
      made.q, made.k, made.v, d_out.view(),
      {.rung = AttentionRung::f32, .mask = {.causal = true, .bottom_right = true}});
  for (std::size_t i = 0; i < 5 * 4; ++i) EXPECT_EQ(got.q.span<float>()[i], 0.0F);
  for (std::size_t i = 6 * 4; i < 8 * 4; ++i) EXPECT_NE(got.q.span<float>()[i], 0.0F);
}

}  // namespace
}  // namespace octavo::testing
