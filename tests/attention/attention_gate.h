// One cell of the gate: a rung, a kind of input and a size, and how it compares with f64.
#pragma once

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

  [[nodiscard]] std::string name() const {
    return std::string(octavo::name_of(rung)) + ", " + testing::name_of(kind) + ", S " +
           std::to_string(tokens) + ", D " + std::to_string(depth) + (causal ? ", causal" : "") +
           ", seed " + std::to_string(seed);
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
                                 .out = DType::f32,
                                 .report = report,
                                 .ranges = ranges};
  const Tensor out = attention(made.q, made.k, made.v, options);
  Truth truth{
      .q = made.q.view(), .k = made.k.view(), .v = made.v.view(), .sees = {.causal = cell.causal}};
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

}  // namespace octavo::testing
