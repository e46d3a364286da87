// Routing of a mixture of experts: which experts a token goes to, with which weights, and the order
// of rows sorted by expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/nn/mixture_of_experts.h"

namespace octavo {

struct Routing {
  std::int64_t top_k = 0;
  // [tokens, top_k]: the expert, its weight, and the row of this pair among rows sorted by expert.
  std::vector<std::int32_t> experts{};
  std::vector<float> weights{};
  std::vector<std::int64_t> sorted_rows{};
  std::vector<std::int64_t> counts{};  // of each expert
  std::vector<std::int64_t> tokens{};  // of each sorted row
};

// From the router's logits, [tokens, experts]. Of equal logits the first expert is taken; NaN is
// smaller than all numbers.
[[nodiscard]] Routing route(std::span<const float> logits, std::int64_t experts,
                            const MixtureOfExperts& layer);

}  // namespace octavo
