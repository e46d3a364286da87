// The units of a mixed plan: what gets one recipe. Fused matrices and the experts of a layer are
// one unit for targets that servers load; else each tensor is one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/pipeline/mix/mix_solve_internal.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo::mix {

// The model under one recipe; `plan` is null where the target cannot hold it so.
struct Candidate {
  std::string recipe;
  std::optional<QuantizePlan> plan{};
  std::string why_not{};
};

struct Unit {
  std::string name;                    // the module of its first tensor
  std::vector<std::size_t> tensors{};  // of the source, in its order
  std::int64_t elements = 0;
  std::uint64_t bytes_before = 0;
  Choices choices{};  // errors are filled in by measuring
};

struct Units {
  // Names of the choices: the candidates' recipes, those that the user named for some tensors, and
  // last "none".
  std::vector<std::string> recipes{};
  // For each of these the plan to measure it by: of its own candidate, or of any.
  std::vector<const QuantizePlan*> plans{};
  std::vector<Unit> units{};
  std::uint64_t other_bytes = 0;  // of the output's tensors that are in no unit
  std::int64_t elements = 0;      // of all units

  [[nodiscard]] std::size_t none() const { return recipes.size() - 1; }
};

// At least one candidate has a plan. `may_stay`: "none" is a choice for every unit that the user
// named no recipe for; else for those alone that no candidate fits.
[[nodiscard]] Units units_of(const CheckpointReader& source,
                             const std::vector<Candidate>& candidates, bool may_stay);

// A weight that a unit would be by this recipe: the first, and the first of an expert.
[[nodiscard]] std::vector<QuantizedWeight> samples_of(const Units& units, std::size_t recipe);

}  // namespace octavo::mix
