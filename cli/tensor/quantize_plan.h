// The Scaling of octavo quantize, from the options as typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/quant/scaling.h"

namespace octavo::cli {

// As typed; an option not given is empty.
struct QuantizeArguments {
  std::string input, output, plot;
  std::optional<std::string> recipe, format, tile, scale, rule, policy, arith, rounding, overflow,
      nan, non_finite, from;
  std::optional<int> margin, axis, threads, stochastic_bits;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> gates, sweep;
};

// The recipe with the options applied. Throws UsageError for an invalid combination.
Scaling plan_scaling(const QuantizeArguments& options);

// Values of the options, for help and completion.
std::vector<std::string> tile_names();
std::vector<std::string> scale_format_names();
std::vector<std::string> scale_rule_names();
std::vector<std::string> scale_policy_names();
std::vector<std::string> arith_names();
std::vector<std::string> non_finite_names();

}  // namespace octavo::cli
