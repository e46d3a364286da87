// Certified bounds: no row is above its own, natural or adversarial, on any rung, backend and mask;
// tight cases reach a good share of them, so that a bound that is too small by a factor is seen.
#include "octavo/base/error_testing_internal.h"
#include "tests/attention/attention_attack_families.h"
#include "tests/attention/attention_bounds.h"
#include "tests/support/sanitizer.h"

namespace octavo::testing {
namespace {

// Each family of adversarial inputs: 64 of its rows on five rungs.
TEST(AttentionBound, NoAdversarialRowIsAbove) {
  BoundedRows all;
  // Numbers are for plain programs; a sanitizer is after the code, which a few of them run.
  const std::size_t step = support::under_sanitizer() ? 24 : 1;
  const std::vector<Attack> every = attacks();
  for (std::size_t i = 0; i < every.size(); i += step) all.add(bounded_attack(every[i], 3, 64));
  EXPECT_GE(all.rows, 30000 / static_cast<std::int64_t>(step));
  std::cout << all.rows << " rows, of which " << all.above << " above the bound, "
            << all.above_probabilistic << " above the probabilistic one; median bound / error "
            << median_of(all.ratios) << "\n";
}

struct Case {
  std::string name;
  Sizes sizes{.heads = 2, .kv_heads = 1, .queries = 96, .keys = 160, .depth = 64};
  Kind kind = Kind::normal;
  DType dtype = DType::f32;
  AttentionMask mask{};
  double soft_cap = 0.0;
  std::vector<float> sinks{};
};

// What changes the arithmetic, on every backend.
TEST(AttentionBound, EveryKindOfCallOnEveryBackend) {
  std::vector<Case> cases{{.name = "plain"}};
  for (const Kind kind : {Kind::outlier, Kind::peaked, Kind::biased, Kind::ones})
    cases.push_back({.name = name_of(kind), .kind = kind});
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64})
    cases.push_back({.name = "type " + std::string(dtype_name(dtype)), .dtype = dtype});
  cases.push_back({.name = "causal", .mask = {.causal = true}});
  cases.push_back({.name = "window", .mask = {.left = 9, .right = 3}});
  cases.push_back({.name = "soft cap", .kind = Kind::peaked, .soft_cap = 3.0});
  cases.push_back({.name = "sinks", .sinks = {-2.0F, 6.0F}});
  cases.push_back({.name = "odd sizes", .sizes = {.queries = 7, .keys = 33, .depth = 20}});
  cases.push_back({.name = "one query", .sizes = {.queries = 1, .keys = 300, .depth = 64}});
  cases.push_back({.name = "one query of bf16",
                   .sizes = {.queries = 1, .keys = 300, .depth = 64},
                   .dtype = DType::bf16});
  cases.push_back({.name = "two keys", .sizes = {.queries = 64, .keys = 2, .depth = 64}});
  cases.push_back({.name = "one key", .sizes = {.queries = 64, .keys = 1, .depth = 64}});
  const std::vector<BackendInfo> backends = backends_with_bounds();
  std::size_t bounded = 0;
  for (const Case& one : cases) {
    const Made made = make_inputs(one.sizes, one.kind, 4, one.dtype);
    AttentionOptions options{
        .mask = one.mask, .soft_cap = one.soft_cap, .sinks = view_of_sinks(one.sinks)};
    const Tensor exact = exact_of(made.q, made.k, made.v, options);
    for (const BackendInfo& backend : backends)
      for (const AttentionRung rung : kBoundedRungs) {
        options.rung = rung;
        options.backend = backend.kernels;
        try {
          const BoundedRows found = bounded_rows(made.q, made.k, made.v, exact, options);
          EXPECT_EQ(found.above, 0)
              << one.name << ", " << octavo::name_of(rung) << " on " << backend.name << ": of "
              << found.rows << " rows, " << found.closest << " of the bound";
          EXPECT_EQ(found.unknown, 0) << one.name << ", " << octavo::name_of(rung);
          ++bounded;
        } catch (const Error& error) {
          // Kernels that sum in f16 state no bound, and say so; f32 always does.
          EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
          EXPECT_NE(rung, AttentionRung::f32) << backend.name;
        }
      }
  }
  EXPECT_GE(bounded, cases.size() * backends.size());  // those of f32, if of no other rung
}

// One head of these rows.
Made made_of(const Numbers& q, const Numbers& k, const Numbers& v, DType dtype = DType::f32) {
  const auto tensor = [&](const Numbers& rows) {
    std::vector<float> all;
    for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
    return tensor_of(
        {1, 1, static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())},
        all, dtype);
  };
  return {.q = tensor(q), .k = tensor(k), .v = tensor(v)};
}

// The largest error over its bound.
double closest(const Made& made, AttentionOptions options) {
  const Tensor exact = exact_of(made.q, made.k, made.v, options);
  const BoundedRows found = bounded_rows_of(made, exact, options);
  EXPECT_EQ(found.above, 0);
  return found.closest;
}

// All elements of q are rounded by half a step in the same direction, 2^-8 of themselves, and two
// keys are parallel to what is rounded off, one to each side; values are as far apart as they can
// be. Scores are small, so that weights are near a half, where they move most. On the portable
// kernels, which every CPU has and which keep weights in f32: others round them to bf16, and their
// bound has that beside it.
TEST(AttentionBound, RoundingOfQueriesReachesItsBound) {
  const Kernels* const kernels = &backend_named("cpu/portable");
  const std::vector<float> ones(64, 1.0F), minus(64, -1.0F), tie(64, 1.0F + 0x1p-8F);
  EXPECT_GE(closest(made_of({tie}, {ones, minus}, {ones, minus}),
                    {.rung = AttentionRung::bf16, .softmax_scale = 1e-3, .backend = kernels}),
            0.9);
  // And that of keys.
  std::vector<float> other = tie;
  for (float& number : other) number = -number;
  EXPECT_GE(closest(made_of({ones}, {tie, other}, {ones, minus}),
                    {.rung = AttentionRung::bf16, .softmax_scale = 1e-3, .backend = kernels}),
            0.9);
}

// All values are rounded by half a step: the output is, too.
TEST(AttentionBound, RoundingOfValuesReachesItsBound) {
  const std::vector<float> ones(64, 1.0F), tie(64, 1.0F + 0x1p-8F);
  EXPECT_GE(closest(made_of({ones}, Numbers(100, ones), Numbers(100, tie)),
                    {.rung = AttentionRung::bf16}),
            0.99);
}

// By definition weights are e4m3: that of one of two keys is between two codes, off by 1 / 17. A
// sink, if of no weight, keeps K from being smoothed, and the largest score is 0.
TEST(AttentionBound, RoundingOfWeightsReachesAGoodShareOfItsBound) {
  const std::vector<float> ones(64, 1.0F), minus(64, -1.0F), zeros(64, 0.0F);
  const double apart = std::log(0.53126);  // above a tie, which goes down to 1/2
  std::vector<float> key(64, 0.0F);
  key[0] = 1.0F;
  std::vector<float> query(64, 0.0F);
  query[0] = 1.0F;
  const std::vector<float> none{-std::numeric_limits<float>::infinity()};
  const double share =
      closest(made_of({query}, {zeros, key}, {ones, minus}), {.rung = AttentionRung::fast,
                                                              .softmax_scale = apart,
                                                              .sinks = view_of_sinks(none),
                                                              .backend = &reference_backend()});
  EXPECT_GE(share, 0.39);  // the largest weight is known to 1 / 8 alone
}

// Inf and NaN: nothing can be said of rows that may see them; rows that see no key are exact.
TEST(AttentionBound, IsInfiniteWhereNothingCanBeSaid) {
  Made made = make_inputs({.queries = 4, .keys = 600, .depth = 64}, Kind::normal, 2, DType::f32);
  made.v.span<float>()[599 * 64] = std::numeric_limits<float>::quiet_NaN();
  const Tensor bound = Tensor::values({1, 1, 4}, DType::f32);
  AttentionOptions options{.rung = AttentionRung::f32, .bound = bound.view()};
  (void)attention(made.q, made.k, made.v, options);
  for (const float number : bound.span<float>()) EXPECT_EQ(number, HUGE_VALF);
  // Rows of a causal mask do not see the last key.
  options.mask.causal = true;
  (void)attention(made.q, made.k, made.v, options);
  for (const float number : bound.span<float>()) EXPECT_LT(number, 1e-3F);
  const std::int64_t none[] = {0};
  options.mask = {.key_lengths = none};
  (void)attention(made.q, made.k, made.v, options);
  for (const float number : bound.span<float>()) EXPECT_EQ(number, 0.0F);
}

TEST(AttentionBound, RefusesWhatItHasNoBoundOf) {
  const Made made = make_inputs({.queries = 4, .keys = 8, .depth = 64}, Kind::normal, 2);
  const Tensor bound = Tensor::values({1, 1, 4}, DType::f32),
               narrow = Tensor::values({1, 1, 4}, DType::bf16),
               other = Tensor::values({1, 1, 5}, DType::f32);
  const auto message_of = [&](const AttentionOptions& options) {
    return error_testing::message_of([&] { (void)attention(made.q, made.k, made.v, options); });
  };
  EXPECT_NE(message_of({.rung = AttentionRung::naive, .bound = bound.view()}).find("naive"),
            std::string::npos);
  EXPECT_NE(
      message_of(
          {.rung = AttentionRung::f32, .dropout = {.probability = 0.5}, .bound = bound.view()})
          .find("dropout"),
      std::string::npos);
  EXPECT_NE(message_of({.rung = AttentionRung::f32, .certified = true}).find("expected auto"),
            std::string::npos);
  EXPECT_NE(message_of({.rung = AttentionRung::f32, .bound = narrow.view()}).find("float32"),
            std::string::npos);
  EXPECT_NE(message_of({.rung = AttentionRung::f32, .bound = other.view()}).find("shape"),
            std::string::npos);
}

// auto by certified bounds: all elements are within the gate, nothing is computed twice, and codes
// take a rung cheaper than f32.
TEST(AttentionBound, CertifiedAutoKeepsItsTolerance) {
  for (const Kind kind : kGateKinds)
    for (const bool is_causal : {false, true}) {
      const Made made =
          make_inputs({.heads = 2, .kv_heads = 2, .queries = 300, .keys = 300, .depth = 64}, kind,
                      6, DType::bf16);
      for (const DType out : {DType::f32, DType::bf16}) {
        const Tensor bound = Tensor::values({1, 2, 300}, DType::f32);
        AttentionReport report;
        const AttentionOptions options{.mask = {.causal = is_causal},
                                       .out = out,
                                       .bound = bound.view(),
                                       .certified = true,
                                       .report = &report};
        const Tensor got = attention(made.q, made.k, made.v, options);
        Errors errors;
        compare(errors, got.view(),
                {.q = made.q.view(),
                 .k = made.k.view(),
                 .v = made.v.view(),
                 .sees = {.causal = is_causal}},
                spread_rows({.heads = 2, .queries = 300}, 300));
        EXPECT_EQ(errors.failures, 0) << name_of(kind) << ": " << errors;
        EXPECT_EQ(report.redone, 0);
        ASSERT_EQ(report.choices.size(), 6U);
        for (const AttentionChoice& choice : report.choices) {
          if (!(choice.predicted <= choice.tolerance)) continue;
          // What was promised before the run is no less than what is known after it.
          for (std::int64_t r = 0; r < choice.rows.count && out == DType::f32; ++r)
            EXPECT_LE(static_cast<double>(bound.span<float>()[static_cast<std::size_t>(
                          choice.rows.head * 300 + choice.rows.first + r)]),
                      choice.predicted * (1.0 + 1e-6))
                << name_of(kind) << ", " << octavo::name_of(choice.rung) << ": "
                << choice.explanation;
        }
      }
    }
}

TEST(AttentionBound, CertifiedAutoTakesWhatPasses) {
  const Made made =
      make_inputs({.queries = 256, .keys = 256, .depth = 64}, Kind::normal, 6, DType::f32);
  const auto rung_of = [&](const Operand& q, const Operand& k, const Operand& v, double tolerance) {
    AttentionReport report;
    (void)attention(q, k, v,
                    {.rtol = 0.0, .atol = tolerance, .certified = true, .report = &report});
    EXPECT_FALSE(report.choices.at(0).explanation.empty());
    return report.choices.at(0);
  };
  // Values of f32 that may be off by less than any rung but f32.
  EXPECT_EQ(rung_of(made.q, made.k, made.v, 5e-3).rung, AttentionRung::f32);
  // Any rung: all outputs are within the range of values.
  EXPECT_EQ(rung_of(made.q, made.k, made.v, 20.0).rung, AttentionRung::fast);
  // None.
  const AttentionChoice none = rung_of(made.q, made.k, made.v, 1e-9);
  EXPECT_EQ(none.rung, AttentionRung::f32);
  EXPECT_GT(none.predicted, none.tolerance);
  EXPECT_NE(none.explanation.find("no certified bound"), std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
