// Results of octavo attention-report: the error of each rung (precision) on each kind of input.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/report/operation/attention_error.h"

namespace octavo::cli {

// One kind of input, and every rung on it.
struct AttentionCase {
  std::string name;  // "normal, causal"
  std::vector<AttentionRungError> rungs;
};

struct AttentionFindings {
  std::vector<AttentionCase> cases{};
  Shape q{}, k{};
  std::int64_t rows = 0;  // sampled per head
  double rtol = 0, atol = 0;
};

// What a rung is, in a line; and its form of Q and K, of V and of P, and its cost, in columns.
struct RungWords {
  std::string_view line, q_k, v, p, cost;
};
const RungWords& words_of(AttentionRung rung);

// The rungs that the findings have, each once.
std::vector<AttentionRung> rungs_of(const AttentionFindings& findings);

// What to choose for such inputs: a sentence for each kind, and one for all.
std::vector<std::string> advice_of(const AttentionFindings& findings);

// Of the elements, 0 to 1.
double share_of(const AttentionRungError& error, std::int64_t failures);
// "fast 12, bf16 500" of auto.
std::string chosen_rungs(const AttentionRungError& error);

std::string table_of(const AttentionFindings& findings);
nlohmann::ordered_json json_of(const AttentionFindings& findings);
std::string plot_attention(const AttentionFindings& findings);  // SVG
std::string html_of(const AttentionFindings& findings);

}  // namespace octavo::cli
