// The gate that FP8 attention kernels are judged by: no element outside 5e-3 + 5e-3 |exact|, at
// sizes that are quick; attention_gate_slow_test.cc has the long ones.
#include "tests/attention/attention_gate.h"

namespace octavo::testing {
namespace {

TEST(AttentionGate, StrictIsExactAttentionOfItsInputs) {
  EXPECT_EQ(
      expect_no_failures(
          {.rung = AttentionRung::strict,
           .sizes =
               {{128, 64, 0}, {128, 256, 0}, {512, 64, 64}, {1024, 128, 48}, {2048, 128, 32}}}),
      5 * 4 * 2);
}

TEST(AttentionGate, Bf16MeetsItOnTheInputsAsGiven) {
  EXPECT_EQ(expect_no_failures({.rung = AttentionRung::bf16,
                                .sizes = {{128, 64, 0}, {512, 256, 48}, {2048, 128, 32}}}),
            3 * 4 * 2);
}

// Regression: sums of weighted values in f16 lost what is added after one large weight.
TEST(AttentionGate, Bf16MeetsItInARowOfOneLargeWeight) {
  const GateCell cell{.rung = AttentionRung::bf16,
                      .kind = Kind::peaked,
                      .tokens = 128,
                      .depth = 256,
                      .causal = true,
                      .seed = 2};
  const Errors errors = errors_of(cell);
  EXPECT_EQ(errors.failures, 0) << cell.name() << ": " << errors;
}

TEST(AttentionGate, BalancedMeetsItFrom1024Keys) {
  EXPECT_EQ(expect_no_failures({.rung = AttentionRung::balanced,
                                .sizes = {{1024, 64, 96}, {1024, 128, 96}, {2048, 128, 64}},
                                .kinds = {Kind::normal, Kind::biased},
                                .causal = {false}}),
            3 * 2);
}

// Causal rows see few keys at first: those are bf16's, the rest balanced's.
TEST(AttentionGate, BalancedMeetsItOnCausalRowsFrom1024On) {
  const Sizes sizes{.queries = 2048, .keys = 2048, .depth = 128};
  for (const Kind kind : {Kind::normal, Kind::biased}) {
    const Made made = make_inputs(sizes, kind, 5);
    std::vector<AttentionRange> early, late;
    for (const AttentionRange& range : spread_rows(sizes, 96))
      (range.first < 1024 ? early : late).push_back(range);
    const Tensor out = Tensor::values({1, 1, 2048, 128}, DType::f32);
    AttentionOptions options{.rung = AttentionRung::bf16, .mask = {.causal = true}};
    options.ranges = early;
    attention_into(made.q, made.k, made.v, out.view(), options);
    options.rung = AttentionRung::balanced;
    options.ranges = late;
    attention_into(made.q, made.k, made.v, out.view(), options);
    Errors errors;
    compare(errors, out.view(),
            {.q = made.q.view(), .k = made.k.view(), .v = made.v.view(), .sees = {.causal = true}},
            spread_rows(sizes, 96));
    EXPECT_EQ(errors.failures, 0) << name_of(kind) << ": " << errors;
  }
}

TEST(AttentionGate, FastIsWithinItsBounds) {
  expect_fast_bounds({.rung = AttentionRung::fast, .sizes = {{512, 64, 64}, {2048, 128, 48}}});
}

// What the gate is for: e4m3 without scales, and weights below e4m3's range.
TEST(AttentionGate, NaiveFails) {
  const Errors few =
      errors_of({.rung = AttentionRung::naive, .tokens = 512, .depth = 64, .rows = 64});
  EXPECT_GT(few.failures, few.elements / 4) << few;
  const Errors many =
      errors_of({.rung = AttentionRung::naive, .tokens = 2048, .depth = 128, .rows = 32});
  EXPECT_GT(many.failures, many.elements / 2) << many;
  EXPECT_LT(many.cosine(), 0.95) << many;
}

TEST(AttentionGate, OnesStayOnes) {
  for (const AttentionRung rung :
       {AttentionRung::bf16, AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast,
        AttentionRung::automatic}) {
    const Errors errors =
        errors_of({.rung = rung, .kind = Kind::ones, .tokens = 2048, .depth = 64, .rows = 16});
    EXPECT_LE(errors.largest, 1e-3) << octavo::name_of(rung);
  }
  const Errors naive = errors_of(
      {.rung = AttentionRung::naive, .kind = Kind::ones, .tokens = 2048, .depth = 64, .rows = 16});
  EXPECT_GT(naive.largest, 0.05);
}

TEST(AttentionGate, AutoMeetsItEverywhere) {
  EXPECT_EQ(expect_no_failures({.rung = AttentionRung::automatic,
                                .sizes = {{128, 64, 0}, {1024, 64, 64}, {2048, 128, 64}},
                                .seeds = {3U}}),
            3 * 4 * 2);
}

// Ranges of rows, chosen by a few of them.
TEST(AttentionGate, AutoMeetsItOnAllRowsOfWholeHeads) {
  for (const std::int64_t tokens : {100, 300, 1024})
    for (const Kind kind : kGateKinds)
      for (const bool causal : {false, true}) {
        const Sizes sizes{
            .heads = 2, .kv_heads = 2, .queries = tokens, .keys = tokens, .depth = 64};
        const Made made = make_inputs(sizes, kind, 13);
        AttentionReport report;
        const Tensor out =
            attention(made.q, made.k, made.v,
                      {.mask = {.causal = causal}, .out = DType::f32, .report = &report});
        Errors errors;
        compare(errors, out.view(),
                {.q = made.q.view(),
                 .k = made.k.view(),
                 .v = made.v.view(),
                 .sees = {.causal = causal}},
                spread_rows(sizes, std::min<std::int64_t>(tokens, 300)));
        EXPECT_EQ(errors.failures, 0)
            << name_of(kind) << ", S " << tokens << (causal ? ", causal: " : ": ") << errors << "; "
            << report.redone << " rows done again";
      }
}

}  // namespace
}  // namespace octavo::testing
