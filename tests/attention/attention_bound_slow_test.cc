// 100,000 rows and more beside their certified bounds: every row of every adversarial family, and
// natural inputs of several lengths and head sizes.
#include "tests/attention/attention_attack_families.h"
#include "tests/attention/attention_bounds.h"

namespace octavo::testing {
namespace {

void print(const std::string& name, const BoundedRows& rows) {
  std::cout << name << ": " << rows.rows << " rows, " << rows.above << " above the bound, "
            << rows.above_probabilistic << " above the probabilistic one; medians of bound / error "
            << median_of(rows.ratios) << " and " << median_of(rows.probabilistic_ratios) << "\n";
}

TEST(AttentionBoundSlow, NoAdversarialRowOf70000IsAbove) {
  BoundedRows all;
  for (const Attack& attack : attacks()) all.add(bounded_attack(attack, 5, 192));
  print("adversarial", all);
  EXPECT_GE(all.rows, 70000);
  EXPECT_EQ(all.above, 0);
}

TEST(AttentionBoundSlow, NoNaturalRowOf70000IsAbove) {
  BoundedRows all;
  for (const std::int64_t tokens : {256, 1024, 2048})
    for (const std::int64_t depth : {64, 128})
      for (const Kind kind : kGateKinds)
        for (const bool is_causal : {false, true}) {
          const Sizes sizes{
              .heads = 2, .kv_heads = 1, .queries = tokens, .keys = tokens, .depth = depth};
          const Made made = make_inputs(sizes, kind, 9, DType::f32);
          const std::vector<AttentionRange> rows = spread_rows(sizes, 160);
          AttentionOptions options{.mask = {.causal = is_causal}, .ranges = rows};
          const Tensor exact = exact_of(made.q, made.k, made.v, options);
          for (const AttentionRung rung : kBoundedRungs) {
            options.rung = rung;
            all.add(bounded_rows_of(made, exact, options));
          }
        }
  print("natural", all);
  EXPECT_GE(all.rows, 70000);
  EXPECT_EQ(all.above, 0);
  // Rows as that bound assumes them.
  EXPECT_EQ(all.above_probabilistic, 0);
  EXPECT_LE(median_of(all.probabilistic_ratios), 10.0);
}

}  // namespace
}  // namespace octavo::testing
