// The gate at lengths up to 16384, on rows spread over each head: the oracle computes those alone.
#include "tests/attention/attention_gate.h"

namespace octavo::testing {
namespace {

struct Size {
  std::int64_t tokens, rows;
};
constexpr std::array kSizes = {Size{128, 0}, Size{512, 128}, Size{2048, 64}, Size{8192, 32},
                               Size{16384, 24}};

TEST(AttentionGateSlow, StrictBf16AndAuto) {
  for (const std::int64_t depth : {64, 128, 256})
    for (const Size& size : kSizes)
      for (const Kind kind : kGateKinds)
        for (const bool causal : {false, true})
          for (const unsigned seed : {1U, 2U})
            for (const AttentionRung rung :
                 {AttentionRung::strict, AttentionRung::bf16, AttentionRung::automatic}) {
              const GateCell cell{.rung = rung,
                                  .kind = kind,
                                  .tokens = size.tokens,
                                  .depth = depth,
                                  .causal = causal,
                                  .seed = seed,
                                  .rows = size.rows,
                                  .of_own_inputs = rung == AttentionRung::strict};
              const Errors errors = errors_of(cell);
              EXPECT_EQ(errors.failures, 0) << cell.name() << ": " << errors;
            }
}

TEST(AttentionGateSlow, BalancedAndFast) {
  for (const std::int64_t depth : {64, 128, 256})
    for (const Size& size : kSizes)
      for (const Kind kind : kGateKinds) {
        GateCell cell{.rung = AttentionRung::balanced,
                      .kind = kind,
                      .tokens = size.tokens,
                      .depth = depth,
                      .rows = size.rows};
        if (size.tokens >= 1024 && (kind == Kind::normal || kind == Kind::biased)) {
          const Errors errors = errors_of(cell);
          EXPECT_EQ(errors.failures, 0) << cell.name() << ": " << errors;
        }
        cell.rung = AttentionRung::fast;
        const Errors errors = errors_of(cell);
        if (kind == Kind::peaked) {
          std::cout << cell.name() << ": " << errors << "\n";
          continue;
        }
        EXPECT_GE(errors.cosine(), 0.998) << cell.name() << ": " << errors;
        EXPECT_LE(errors.relative_l2(), 0.06) << cell.name() << ": " << errors;
      }
}

TEST(AttentionGateSlow, OnesStayOnesAt16384) {
  for (const AttentionRung rung :
       {AttentionRung::bf16, AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast,
        AttentionRung::automatic}) {
    const Errors errors =
        errors_of({.rung = rung, .kind = Kind::ones, .tokens = 16384, .depth = 128, .rows = 24});
    EXPECT_LE(errors.largest, 1e-3) << octavo::name_of(rung);
  }
}

TEST(AttentionGateSlow, AutoLeavesBf16WhereHeadsAreLong) {
  AttentionReport report;
  const GateCell cell{.rung = AttentionRung::automatic,
                      .tokens = 16384,
                      .depth = 128,
                      .seed = 9,
                      .heads = 4,
                      .rows = 256};
  const Errors errors = errors_of(cell, &report);
  EXPECT_EQ(errors.failures, 0) << errors;
  std::int64_t low = 0, all = 0;
  for (const AttentionChoice& choice : report.choices) {
    all += choice.rows.count;
    if (choice.rung == AttentionRung::fast || choice.rung == AttentionRung::balanced)
      low += choice.rows.count;
  }
  EXPECT_GE(low, all * 9 / 10) << low << " of " << all << " rows, " << report.redone << " redone";
  EXPECT_LE(report.redone, all / 10);
}

}  // namespace
}  // namespace octavo::testing
