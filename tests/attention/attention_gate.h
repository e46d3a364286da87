// One cell of the gate: a rung, a kind of input and a size, and how it compares with f64.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {

struct GateCell {
  AttentionRung rung = AttentionRung::bf16;
  Kind kind = Kind::normal;
  std::int64_t tokens = 0, depth = 0;
  bool causal = false;
  unsigned seed = 1;
  std::int64_t heads = 1;
  std::int64_t rows = 0;       // 0: all of them
  bool of_own_inputs = false;  // against attention of what the rung's inputs are; else as given
  double soft_cap = 0.0;
  std::vector<float> sinks{};  // of every head, or empty

  [[nodiscard]] std::string name() const {
    return std::string(octavo::name_of(rung)) + ", " + testing::name_of(kind) + ", S " +
           std::to_string(tokens) + ", D " + std::to_string(depth) + (causal ? ", causal" : "") +
           ", seed " + std::to_string(seed) +
           (soft_cap != 0.0 ? ", soft cap " + std::to_string(soft_cap) : "") +
           (sinks.empty() ? "" : ", sinks");
  }
};

inline Errors errors_of(const GateCell& cell, AttentionReport* report = nullptr) {
  const Sizes sizes{.heads = cell.heads,
                    .kv_heads = cell.heads,
                    .queries = cell.tokens,
                    .keys = cell.tokens,
                    .depth = cell.depth};
  const Made made = make_inputs(sizes, cell.kind, cell.seed);
  const std::vector<AttentionRange> ranges =
      spread_rows(sizes, cell.rows == 0 ? cell.tokens : cell.rows);
  const AttentionOptions options{.rung = cell.rung,
                                 .mask = {.causal = cell.causal},
                                 .soft_cap = cell.soft_cap,
                                 .sinks = view_of_sinks(cell.sinks),
                                 .out = DType::f32,
                                 .report = report,
                                 .ranges = ranges};
  const Tensor out = attention(made.q, made.k, made.v, options);
  Truth truth{.q = made.q.view(),
              .k = made.k.view(),
              .v = made.v.view(),
              .sees = {.causal = cell.causal},
              .soft_cap = cell.soft_cap,
              .sinks = cell.sinks};
  AttentionInputs inputs;
  if (cell.of_own_inputs) {
    inputs = attention_inputs(made.q, made.k, made.v, options);
    truth.q = inputs.q.view();
    truth.k = inputs.k.view();
    truth.v = inputs.v.view();
  }
  Errors errors;
  compare(errors, out.view(), truth, ranges);
  return errors;
}

// What a gate is tried with: every combination, of which each must be without a failure.
struct GateSize {
  std::int64_t tokens, depth, rows;  // rows: as in a cell
};
struct GateGrid {
  AttentionRung rung;
  std::vector<GateSize> sizes;
  std::vector<Kind> kinds{kGateKinds.begin(), kGateKinds.end()};
  std::vector<bool> causal{false, true};
  std::vector<unsigned> seeds{1U};

  void for_each(const std::function<void(const GateCell&)>& visit) const {
    for (const GateSize& size : sizes)
      for (const Kind kind : kinds)
        for (const bool is_causal : causal)
          for (const unsigned seed : seeds)
            visit({.rung = rung,
                   .kind = kind,
                   .tokens = size.tokens,
                   .depth = size.depth,
                   .causal = is_causal,
                   .seed = seed,
                   .rows = size.rows,
                   .of_own_inputs = rung == AttentionRung::strict});
  }
};

// Returns how many cells there were, so that a grid that is empty by mistake is seen.
inline int expect_no_failures(const GateGrid& grid) {
  int cells = 0;
  grid.for_each([&](const GateCell& cell) {
    const Errors errors = errors_of(cell);
    EXPECT_EQ(errors.failures, 0) << cell.name() << ": " << errors;
    ++cells;
  });
  return cells;
}

// FP8 everywhere has an error of its own, which no scale removes: 2.6 % of Q, K, P and V each.
// Where rows are peaked it does not average out: there the limit guards against a broken kernel and
// is no accuracy, and errors are printed.
inline void expect_fast_bounds(const GateGrid& grid) {
  grid.for_each([&](const GateCell& cell) {
    const Errors errors = errors_of(cell);
    if (cell.kind == Kind::peaked) {
      std::cout << cell.name() << ": " << errors << "\n";
      EXPECT_LE(errors.relative_l2(), 0.2) << cell.name() << ": " << errors;
      return;
    }
    EXPECT_GE(errors.cosine(), 0.998) << cell.name() << ": " << errors;
    EXPECT_LE(errors.relative_l2(), 0.06) << cell.name() << ": " << errors;
  });
}

}  // namespace octavo::testing
