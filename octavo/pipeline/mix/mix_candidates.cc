#include "octavo/pipeline/mix/mix_candidates_internal.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/checkpoint/verify/verify_planned_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo::mix {
namespace {

// Is there a loader for weights of all these recipes in one folder? Those of no server are read
// where they can be written.
bool is_possible(const CheckpointReader& source, Dialect target, const Units& units,
                 std::uint32_t set) {
  QuantizedModel model;
  for (std::size_t i = 0; i < units.none(); ++i)
    if ((set >> i & 1U) != 0)
      for (QuantizedWeight& weight : samples_of(units, i))
        model.weights.push_back(std::move(weight));
  if (model.weights.empty()) return true;
  try {
    const std::vector<Finding> findings = verify_planned(source, target, model);
    return !is_for_servers(target) || !verdict_of(planned_loaders(), findings).loads.empty();
  } catch (const Error&) {
    return false;  // the target has one scheme for a model
  }
}

}  // namespace

std::vector<std::string> default_candidates(Dialect target) {
  switch (target) {
    case Dialect::compressed_tensors:
      return {"nvfp4", "mxfp4", "int4", "mxfp8", "fp8-channel", "none"};
    case Dialect::modelopt:
      return {"nvfp4", "mxfp8", "fp8-channel", "none"};
    case Dialect::deepseek:
      return {"fp8-block", "mxfp8", "none"};
    case Dialect::comfyui:
      return {"nvfp4", "mxfp8", "fp8", "none"};
    case Dialect::octavo:
      return {"nvfp4", "mxfp4", "int4", "mxfp6", "mxfp8", "none"};
    case Dialect::gguf:
      return {"mxfp4", "mxint8", "none"};
  }
  return {"none"};
}

std::vector<Candidate> plan_candidates(const CheckpointReader& source,
                                       const QuantizePlanOptions& options,
                                       const std::vector<std::string>& recipes) {
  std::vector<Candidate> out;
  std::exception_ptr first;
  for (const std::string& recipe : recipes) {
    if (recipe == "none") continue;
    Candidate candidate{.recipe = recipe};
    QuantizePlanOptions with = options;
    with.recipe = recipe;
    try {
      candidate.plan = plan_quantize(source, with);
      if (candidate.plan->model.weights.empty()) {
        candidate.plan.reset();
        candidate.why_not = "nothing would be quantized";
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      if (!first) first = std::current_exception();
      candidate.why_not = reason_of(error);
    }
    out.push_back(std::move(candidate));
  }
  const bool any = std::any_of(out.begin(), out.end(),
                               [](const Candidate& one) { return one.plan.has_value(); });
  if (!any && first) std::rethrow_exception(first);
  check(any, ErrorCode::invalid_argument, "mix", "'", shown(source.path(), 200),
        "' has no weight that any of the candidates quantizes; name others (option candidates)");
  return out;
}

std::vector<std::vector<bool>> possible_sets(const CheckpointReader& source, Dialect target,
                                             const Units& units) {
  const std::size_t count = units.none();
  // The user's own recipes are in all of them.
  std::uint32_t always = 0;
  for (const Unit& unit : units.units) {
    const auto possible = std::count_if(unit.choices.begin(), unit.choices.end(),
                                        [](const auto& one) { return one.has_value(); });
    for (std::size_t i = 0; i < count; ++i)
      if (possible == 1 && unit.choices[i]) always |= 1U << i;
  }
  std::vector<std::uint32_t> sets;
  for (std::uint32_t set = 1; set < 1U << count; ++set)
    if ((set & always) == always) sets.push_back(set);
  std::stable_sort(sets.begin(), sets.end(), [](std::uint32_t a, std::uint32_t b) {
    return std::popcount(a) > std::popcount(b);
  });
  std::vector<std::uint32_t> largest;
  for (const std::uint32_t set : sets) {
    const bool within = std::any_of(largest.begin(), largest.end(),
                                    [&](std::uint32_t other) { return (set & other) == set; });
    if (!within && is_possible(source, target, units, set)) largest.push_back(set);
  }
  std::vector<std::vector<bool>> out;
  for (const std::uint32_t set : largest) {
    std::vector<bool> has(count + 1, true);
    for (std::size_t i = 0; i < count; ++i) has[i] = (set >> i & 1U) != 0;
    out.push_back(std::move(has));
  }
  return out;
}

}  // namespace octavo::mix
