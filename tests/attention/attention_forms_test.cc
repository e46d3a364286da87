// Shapes, masks, heads that share keys, kinds of scales: 'exact' against the oracle, so that every
// difference is a mistake. Its sums are f64 in another order: 1e-12 is far above them.
#include <limits>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Form {
  std::string name;
  Sizes sizes;
  AttentionMask mask{};
  std::vector<std::int64_t> query_lengths{}, key_lengths{};
  std::optional<double> softmax_scale{};
  double soft_cap = 0.0;
  std::vector<float> sinks{};
};

oracle::Sees sees_of(const Form& form, std::int64_t batch) {
  const auto at = static_cast<std::size_t>(batch);
  const std::int64_t keys = form.key_lengths.empty() ? form.sizes.keys : form.key_lengths[at];
  const std::int64_t rows =
      form.query_lengths.empty() ? form.sizes.queries : form.query_lengths[at];
  return {.causal = form.mask.causal,
          .left = form.mask.left,
          .right = form.mask.right,
          .diagonal = form.mask.bottom_right ? keys - rows : 0,
          .keys = keys};
}

void check_form(Form form, DType dtype) {
  form.mask.query_lengths = form.query_lengths;
  form.mask.key_lengths = form.key_lengths;
  const Sizes& sizes = form.sizes;
  const Made made = make_inputs(sizes, Kind::normal, 11, dtype);
  const Tensor lse = Tensor::values({sizes.batches, sizes.heads, sizes.queries}, DType::f32);
  const Tensor out = attention(made.q, made.k, made.v,
                               {.rung = AttentionRung::exact,
                                .mask = form.mask,
                                .softmax_scale = form.softmax_scale,
                                .soft_cap = form.soft_cap,
                                .sinks = view_of_sinks(form.sinks),
                                .out = DType::f64,
                                .log_sum_exp = lse.view()});
  const double scale =
      form.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(sizes.depth)));
  for (std::int64_t batch = 0; batch < sizes.batches; ++batch)
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      const std::int64_t kv = head / (sizes.heads / sizes.kv_heads);
      const oracle::Rows q = rows_of(made.q.view(), batch, head),
                         k = rows_of(made.k.view(), batch, kv),
                         v = rows_of(made.v.view(), batch, kv),
                         got = rows_of(out.view(), batch, head);
      const std::int64_t rows = form.query_lengths.empty()
                                    ? sizes.queries
                                    : form.query_lengths[static_cast<std::size_t>(batch)];
      for (std::int64_t row = 0; row < sizes.queries; ++row) {
        const auto at = static_cast<std::size_t>(row);
        oracle::AttendedRow exact;
        exact.out.assign(got[at].size(), 0.0);
        const oracle::Logits logits = logits_of(form.soft_cap, form.sinks, head);
        if (row < rows && !k.empty())
          exact = oracle::attended(q[at], k, v, scale, sees_of(form, batch), row, logits);
        if (row < rows && k.empty()) exact.log_sum_exp = logits.sink;
        for (std::size_t e = 0; e < exact.out.size(); ++e)
          ASSERT_NEAR(got[at][e], exact.out[e], 1e-12)
              << form.name << ", batch " << batch << ", head " << head << ", row " << row;
        const double logged = static_cast<double>(
            lse.span<float>()
                [static_cast<std::size_t>((batch * sizes.heads + head) * sizes.queries) + at]);
        if (std::isinf(exact.log_sum_exp)) {
          ASSERT_EQ(logged, exact.log_sum_exp) << form.name << ", row " << row;
        } else {
          ASSERT_NEAR(logged, exact.log_sum_exp, 1e-6 * (1.0 + std::abs(exact.log_sum_exp)))
              << form.name << ", row " << row;
        }
      }
    }
}

TEST(AttentionForms, MasksAndHeads) {
  const Sizes square{.heads = 2, .kv_heads = 2, .queries = 37, .keys = 37, .depth = 16};
  const Sizes wide{.batches = 2, .heads = 4, .kv_heads = 2, .queries = 19, .keys = 70, .depth = 24};
  const Sizes tall{.queries = 50, .keys = 7, .depth = 8, .width = 5};
  const Sizes odd{.heads = 3, .kv_heads = 1, .queries = 5, .keys = 130, .depth = 80, .width = 33};
  const std::vector<Form> forms = {
      {"square", square},
      {"wide", wide},
      {"tall", tall},
      {"odd", odd},
      {"one", {.queries = 1, .keys = 1, .depth = 1}},
      {"causal", square, {.causal = true}},
      {"causal, wide", wide, {.causal = true}},
      {"causal, wide, bottom right", wide, {.causal = true, .bottom_right = true}},
      {"causal, tall, bottom right: rows that see nothing",
       tall,
       {.causal = true, .bottom_right = true}},
      {"window", square, {.left = 3, .right = 2}},
      {"window of one", square, {.left = 0, .right = 0}},
      {"causal window", wide, {.causal = true, .bottom_right = true, .left = 11}},
      {"window to the left of everything", tall, {.left = 1, .right = 0}},
      {"lengths", wide, {}, {19, 4}, {70, 33}},
      {"lengths, causal", wide, {.causal = true, .bottom_right = true}, {19, 4}, {70, 3}},
      {"no keys in a batch", wide, {}, {19, 0}, {0, 70}},
      {"zero keys", {.queries = 4, .keys = 0, .depth = 8}},
      {"scale", square, {}, {}, {}, 0.5F},
      {"negative scale", square, {}, {}, {}, -0.25F},
      {"scale of zero", square, {.causal = true}, {}, {}, 0.0F},
      {"soft cap", square, {.causal = true}, {}, {}, 1.5, 4.0},
      {"soft cap far below the scores", wide, {}, {}, {}, 3.0, 0.1},
      {"soft cap far above them", square, {.left = 3}, {}, {}, {}, 1e12},
      {"sinks", wide, {.causal = true}, {}, {}, {}, 0.0, {-kInf, -3.0F, 2.0F, 20.0F}},
      {"sinks, lengths", wide, {}, {19, 4}, {70, 33}, {}, 0.0, {0.0F, 1.0F, -1.0F, 300.0F}},
      {"sinks, no keys in a batch",
       wide,
       {},
       {19, 0},
       {0, 70},
       {},
       0.0,
       {-kInf, 1.0F, -9.0F, 0.5F}},
      {"sink, rows that see nothing",
       tall,
       {.causal = true, .bottom_right = true},
       {},
       {},
       {},
       0.0,
       {0.25F}},
      {"sink, zero keys", {.queries = 4, .keys = 0, .depth = 8}, {}, {}, {}, {}, 0.0, {-2.0F}},
      {"soft cap and sinks", square, {.left = 5, .right = 5}, {}, {}, 2.0, 3.0, {2.5F, -1.0F}},
  };
  for (const Form& form : forms)
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      check_form(form, dtype);
}

// Every granularity of scales that an operand may have.
TEST(AttentionForms, KindsOfScales) {
  const Sizes sizes{
      .batches = 2, .heads = 2, .kv_heads = 2, .queries = 40, .keys = 150, .depth = 64};
  const Made made = make_inputs(sizes, Kind::normal, 4, DType::f32);
  std::vector<std::pair<std::string, Scaling>> kinds;
  const auto add = [&](const std::string& name, const std::string& base, Tile tile) {
    Scaling scaling = preset(base);
    scaling.tile = tile;
    kinds.emplace_back(name, scaling);
  };
  add("per tensor", "fp8", {0, 0});
  add("per head", "fp8", {150, 0});
  add("per token", "fp8", {1, 0});
  add("per channel", "fp8", {0, 1});
  add("per 128 tokens", "fp8", {128, 0});
  add("mx", "mxfp8", {1, 32});
  add("mx e5m2", "mxfp8:e5m2", {1, 32});
  add("int8", "mxint8", {1, 32});
  add("blocks", "fp8-block", {128, 128});
  for (const auto& [name, scaling] : kinds) {
    const QuantizedTensor q = quantize(made.q.view(), scaling),
                          k = quantize(made.k.view(), scaling),
                          v = quantize(made.v.view(), scaling);
    const Tensor out = attention(q, k, v, {.rung = AttentionRung::exact, .out = DType::f64});
    for (std::int64_t batch = 0; batch < 2; ++batch)
      for (std::int64_t head = 0; head < 2; ++head) {
        const oracle::Rows queries = rows_of(q, batch, head), keys = rows_of(k, batch, head),
                           values = rows_of(v, batch, head), got = rows_of(out.view(), batch, head);
        for (std::size_t row = 0; row < queries.size(); ++row) {
          const oracle::AttendedRow exact = oracle::attended(queries[row], keys, values, 0.125, {},
                                                             static_cast<std::int64_t>(row));
          for (std::size_t e = 0; e < exact.out.size(); ++e)
            ASSERT_NEAR(got[row][e], exact.out[e], 1e-12) << name << ", row " << row;
        }
      }
  }
}

// Smoothing takes q mean from every score of a row, and the log-sum-exp gets it back; the Hadamard
// transform rotates Q, K and the mean alike. The rungs' own errors are all that is left.
TEST(AttentionForms, LogSumExpOfSmoothedKeys) {
  const Sizes sizes{.queries = 60, .keys = 300, .depth = 64};
  for (const Kind kind : {Kind::normal, Kind::outlier}) {
    const Made made = make_inputs(sizes, kind, 8);
    const auto lse_of = [&](AttentionRung rung) {
      const Tensor lse = Tensor::values({1, 1, 60}, DType::f32);
      (void)attention(made.q, made.k, made.v, {.rung = rung, .log_sum_exp = lse.view()});
      return lse;
    };
    const Tensor exact = lse_of(AttentionRung::exact);
    for (const AttentionRung rung :
         {AttentionRung::bf16, AttentionRung::balanced, AttentionRung::fast, AttentionRung::f32}) {
      const Tensor got = lse_of(rung);
      // The mean of an outlier's channel is 10 and Q of e4m3 is 2.6 % off in each of four: 0.52 / 8
      // in a score, six times which is 0.4.
      const float bound = rung == AttentionRung::f32        ? 1e-5F
                          : rung == AttentionRung::bf16     ? 2e-3F
                          : rung == AttentionRung::balanced ? 0.15F
                                                            : 0.4F;
      for (std::size_t i = 0; i < 60; ++i)
        EXPECT_NEAR(got.span<float>()[i], exact.span<float>()[i], bound)
            << name_of(kind) << ", " << octavo::name_of(rung) << ", row " << i;
    }
  }
}

// Fewer dimensions are the same numbers.
TEST(AttentionForms, WithoutBatchAndHeads) {
  const Sizes sizes{.heads = 2, .kv_heads = 2, .queries = 6, .keys = 9, .depth = 8};
  const Made made = make_inputs(sizes, Kind::normal, 2, DType::f32);
  const Tensor four = attention(made.q, made.k, made.v, {.rung = AttentionRung::f32});
  const auto without = [](const Tensor& tensor, int dimensions) {
    const Shape& shape = tensor.shape();
    return value_view(tensor.view().data, DType::f32,
                      Shape(shape.sizes().subspan(static_cast<std::size_t>(dimensions))));
  };
  const Tensor three = attention(without(made.q, 1), without(made.k, 1), without(made.v, 1),
                                 {.rung = AttentionRung::f32});
  EXPECT_EQ(three.shape(), (Shape{2, 6, 8}));
  EXPECT_TRUE(std::equal(three.bytes().begin(), three.bytes().end(), four.bytes().begin()));
  const Tensor two = attention(without(made.q, 2), without(made.k, 2), without(made.v, 2),
                               {.rung = AttentionRung::f32});
  EXPECT_EQ(two.shape(), (Shape{6, 8}));
  EXPECT_TRUE(std::equal(two.bytes().begin(), two.bytes().end(), four.bytes().begin()));
}

}  // namespace
}  // namespace octavo::testing
