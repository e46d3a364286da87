// Results of octavo attention-report: the error of each rung (precision) on each kind of input.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "octavo/report/attention_error.h"

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

std::string table_of(const AttentionFindings& findings);
nlohmann::ordered_json json_of(const AttentionFindings& findings);
std::string html_of(const AttentionFindings& findings);

}  // namespace octavo::cli
