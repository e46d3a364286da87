// The gate at lengths up to 16384, on rows spread over each head: the oracle computes those alone.
#include "tests/attention/attention_gate.h"

namespace octavo::testing {
namespace {

class AttentionGateSlow : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static std::vector<GateSize> sizes(std::int64_t least = 0) {
    std::vector<GateSize> all;
    for (const auto& [tokens, rows] : {std::pair<std::int64_t, std::int64_t>{128, 0},
                                       {512, 128},
                                       {2048, 64},
                                       {8192, 32},
                                       {16384, 24}})
      if (tokens >= least) all.push_back({tokens, GetParam(), rows});
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(HeadSize, AttentionGateSlow, ::testing::Values(256, 128, 64),
                         ::testing::PrintToStringParamName());

TEST_P(AttentionGateSlow, StrictBf16AndAuto) {
  for (const AttentionRung rung :
       {AttentionRung::strict, AttentionRung::bf16, AttentionRung::automatic}) {
    const int cells = expect_no_failures({.rung = rung, .sizes = sizes(), .seeds = {1U, 2U}});
    EXPECT_EQ(cells, 5 * 4 * 2 * 2);
    std::cout << cells << " cells of " << octavo::name_of(rung) << "\n";
  }
}

TEST_P(AttentionGateSlow, BalancedAndFast) {
  EXPECT_EQ(expect_no_failures({.rung = AttentionRung::balanced,
                                .sizes = sizes(1024),
                                .kinds = {Kind::normal, Kind::biased},
                                .causal = {false}}),
            3 * 2);
  expect_fast_bounds({.rung = AttentionRung::fast, .sizes = sizes(), .causal = {false}});
}

TEST(AttentionSlow, OnesStayOnesAt16384) {
  for (const AttentionRung rung :
       {AttentionRung::bf16, AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast,
        AttentionRung::automatic}) {
    const Errors errors =
        errors_of({.rung = rung, .kind = Kind::ones, .tokens = 16384, .depth = 128, .rows = 24});
    EXPECT_LE(errors.largest, 1e-3) << octavo::name_of(rung);
  }
}

// All rows of four heads; the oracle checks some of them.
TEST(AttentionSlow, AutoLeavesBf16WhereHeadsAreLong) {
  const Sizes sizes{.heads = 4, .kv_heads = 4, .queries = 16384, .keys = 16384, .depth = 128};
  const Made made = make_inputs(sizes, Kind::normal, 9);
  AttentionReport report;
  const Tensor out = attention(made.q, made.k, made.v, {.out = DType::f32, .report = &report});
  Errors errors;
  compare(errors, out.view(), {.q = made.q.view(), .k = made.k.view(), .v = made.v.view()},
          spread_rows(sizes, 64));
  EXPECT_EQ(errors.failures, 0) << errors;
  // A head is off bf16 where nine tenths of its rows are.
  std::array<std::int64_t, 4> low{};
  for (const AttentionChoice& choice : report.choices)
    if (choice.rung == AttentionRung::fast || choice.rung == AttentionRung::balanced)
      low[static_cast<std::size_t>(choice.rows.head)] += choice.rows.count;
  for (const std::int64_t rows : low) EXPECT_GE(rows, 16384 * 9 / 10);
  EXPECT_LE(report.redone, 4 * 16384 / 20);
  std::cout << errors << "; rows done again: " << report.redone << "\n";
}

}  // namespace
}  // namespace octavo::testing
