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

// All rows of four heads; the oracle looks at some of them.
TEST(AttentionGateSlow, AutoLeavesBf16WhereHeadsAreLong) {
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
