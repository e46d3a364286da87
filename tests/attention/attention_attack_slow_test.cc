// Every family of inputs against `auto`, at a wide tolerance, which lets the cheapest rungs
// through, at the gate's, and at a narrow one.
#include <iostream>

#include "tests/attention/attention_attack_families.h"

namespace octavo::testing {
namespace {

class AttentionAttackSlow : public ::testing::TestWithParam<double> {};

TEST_P(AttentionAttackSlow, AutoKeepsItsPromise) {
  for (const Attack& attack : attacks()) {
    const Outcome outcome = outcome_of(attack, 3, GetParam());
    EXPECT_EQ(outcome.failures, 0)
        << attack.name << ": of " << outcome.elements << ", worst " << outcome.worst
        << " times the tolerance, on " << outcome.chosen;
    std::cout << attack.name << ": worst " << outcome.worst << " of " << GetParam() << ", on "
              << outcome.chosen << "; rows done again: " << outcome.redone << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Within, AttentionAttackSlow, ::testing::Values(2e-2, 5e-3, 1e-3));

}  // namespace
}  // namespace octavo::testing
