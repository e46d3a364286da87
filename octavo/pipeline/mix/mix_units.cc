#include "octavo/pipeline/mix/mix_units_internal.h"

#include <algorithm>

#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo::mix {
namespace {

// What a plan makes of one tensor of the source.
struct Fate {
  bool quantized = false;
  std::string preset{};
  std::uint64_t bytes = 0;
};

std::vector<Fate> fates_of(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<Fate> out(source.tensors().size());
  for (const TensorAction& action : plan.actions) {
    Fate& fate = out[action.tensor];
    fate.quantized |= action.quantize;
    if (action.quantize) fate.preset = action.preset;
    fate.bytes += bytes_after(action);
  }
  return out;
}

std::int64_t elements_of(const StoredTensor& tensor) {
  std::int64_t count = 1;
  for (const std::uint64_t size : tensor.entry->shape) count *= static_cast<std::int64_t>(size);
  return count;
}

class Finding {
 public:
  Finding(const CheckpointReader& source, const std::vector<Candidate>& candidates)
      : source_(source) {
    for (const Candidate& candidate : candidates) {
      if (!candidate.plan) continue;
      out_.recipes.push_back(candidate.recipe);
      out_.plans.push_back(&*candidate.plan);
      fates_.push_back(fates_of(source, *candidate.plan));
    }
    own_ = out_.recipes.size();
    // What the user named for some tensors and is no candidate.
    for (const Fate& fate : fates_.front())
      if (fate.quantized &&
          std::find(out_.recipes.begin(), out_.recipes.end(), fate.preset) == out_.recipes.end()) {
        out_.recipes.push_back(fate.preset);
        out_.plans.push_back(out_.plans.front());
      }
    out_.recipes.emplace_back("none");
    out_.plans.push_back(nullptr);
  }

  Units run(bool may_stay) {
    for (Unit& unit : grouped()) {
      for (const std::size_t tensor : unit.tensors) {
        unit.elements += elements_of(source_.tensors()[tensor]);
        unit.bytes_before += source_.tensors()[tensor].nbytes();
      }
      fill(unit, may_stay);
      out_.elements += unit.elements;
      out_.units.push_back(std::move(unit));
    }
    out_.other_bytes = out_.plans.front()->bytes_after;
    for (const Unit& unit : out_.units)
      for (const std::size_t tensor : unit.tensors)
        out_.other_bytes -= fates_.front()[tensor].bytes;
    return std::move(out_);
  }

 private:
  // Tensors that some candidate quantizes, in units, in the order of the source.
  [[nodiscard]] std::vector<Unit> grouped() const {
    std::vector<Unit> units;
    std::map<std::string, std::size_t> places;
    const bool fused = is_for_servers(out_.plans.front()->options.target);
    for (std::size_t i = 0; i < source_.tensors().size(); ++i) {
      const bool any = std::any_of(fates_.begin(), fates_.end(),
                                   [&](const auto& fates) { return fates[i].quantized; });
      if (!any) continue;
      const std::string& name = source_.tensors()[i].name();
      std::string key = fused ? group_key(module_of(name)) : std::string();
      if (key.empty()) key = name;
      const auto [at, is_new] = places.try_emplace(key, units.size());
      if (is_new) units.push_back({.name = std::string(module_of(name))});
      units[at->second].tensors.push_back(i);
    }
    return units;
  }

  void fill(Unit& unit, bool may_stay) const {
    unit.choices.assign(out_.recipes.size(), std::nullopt);
    bool named = false, any = false;
    for (std::size_t c = 0; c < own_; ++c)
      for (const std::size_t tensor : unit.tensors)
        named |= fates_[c][tensor].quantized && fates_[c][tensor].preset != out_.recipes[c];
    for (std::size_t c = 0; c < out_.recipes.size() - 1; ++c) {
      const std::vector<Fate>& fates = fates_[c < own_ ? c : 0];
      const bool fits =
          std::all_of(unit.tensors.begin(), unit.tensors.end(), [&](std::size_t tensor) {
            return fates[tensor].quantized && fates[tensor].preset == out_.recipes[c];
          });
      if (!fits) continue;
      Choice choice;
      for (const std::size_t tensor : unit.tensors) choice.bytes += fates[tensor].bytes;
      unit.choices[c] = choice;
      any = true;
    }
    if (!any || (may_stay && !named))
      unit.choices.back() = Choice{.bytes = unit.bytes_before, .error = 0};
  }

  const CheckpointReader& source_;
  Units out_;
  std::vector<std::vector<Fate>> fates_;  // of each candidate
  std::size_t own_ = 0;                   // candidates; recipes after them are the user's
};

}  // namespace

Units units_of(const CheckpointReader& source, const std::vector<Candidate>& candidates,
               bool may_stay) {
  return Finding(source, candidates).run(may_stay);
}

std::vector<QuantizedWeight> samples_of(const Units& units, std::size_t recipe) {
  std::vector<QuantizedWeight> out;
  bool plain = false, expert = false;
  for (const TensorAction& action : units.plans[recipe]->actions) {
    if (!action.quantize || action.preset != units.recipes[recipe]) continue;
    bool& seen = action.weight.module.find(".experts.") == std::string::npos ? plain : expert;
    if (seen) continue;
    seen = true;
    out.push_back(action.weight);
    // Another place in the model, so that weights of several recipes are no parts of one matrix.
    const std::string place = "mix" + std::to_string(recipe) + ".";
    out.back().module.insert(0, place);
    out.back().name.insert(0, place);
  }
  return out;
}

}  // namespace octavo::mix
