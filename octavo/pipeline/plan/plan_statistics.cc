// What statistics of inputs give a plan: weights for policy wmse, static scales of inputs and of
// the KV cache. Everything that is missing is found here, before a byte is written.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/made_scales.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/plan_statistics_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += text(i > 0 ? ", '" : "'", shown(names[i], 120), "'");
  if (names.size() > kShown) out += text(" and ", names.size() - kShown, " more");
  return out;
}

// What a file of statistics says of itself, with its name; of many notes the first ones.
void add_notes(const InputStatistics& statistics, std::vector<std::string>& notes) {
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> said = statistics.notes();
  const std::string file = text("'", shown(statistics.name(), 200), "': ");
  for (std::size_t i = 0; i < std::min(said.size(), kShown); ++i) notes.push_back(file + said[i]);
  if (said.size() > kShown)
    notes.push_back(text(file, said.size() - kShown, " more notes of this kind"));
}

class Statistics {
 public:
  explicit Statistics(QuantizePlan& plan) : plan_(plan), options_(plan.options) {}

  // Errors of every weight by policy wmse are weighted, or a message says which cannot be.
  void weigh() {
    std::vector<std::string> missing;
    std::int64_t unseen = 0;
    for (TensorAction& action : plan_.actions) {
      if (!action.quantize || action.scaling.policy != AmaxPolicy::wmse) continue;
      const auto range = range_of(action.weight, "policy wmse", missing);
      if (!range) continue;
      if (range->rows == 0) {
        action.scaling.policy = action.weight.scaling.policy = AmaxPolicy::mse;
        ++unseen;
        continue;
      }
      for (const float square : statistics().mean_square(action.weight.module))
        check(std::isfinite(square) && square >= 0.0F, ErrorCode::invalid_argument, kOp, "'",
              file(), "' has an E[x^2] of ", square, " for '", shown(action.weight.module, 160),
              "'; expected finite numbers that are not negative; collect it again");
    }
    refuse(missing);
    if (unseen > 0)
      plan_.notes.push_back(text("no token reached ",
                                 counted(unseen, "expert matrix", "expert matrices"),
                                 " of the statistics: their errors are not weighted (policy mse)"));
  }

  void scale_inputs() {
    const bool is_one = options_.input_scales == StaticScaleSource::one;
    const std::map<std::string, float> alikes =
        is_one ? std::map<std::string, float>() : largest_of_alikes();
    std::int64_t made = 0, unseen = 0;
    for (TensorAction& action : plan_.actions) {
      if (!action.quantize || !takes_input_scale(options_.target, action.weight)) continue;
      std::optional<float> scale;
      if (is_one) {
        scale = 1.0F;
      } else {
        const float amax = *statistics().range_of(action.weight.module)->amax;
        unseen += amax == 0.0F;
        const float most = alikes.at(alike_module(action.weight.module));
        check(std::isfinite(most) && most > 0.0F, ErrorCode::invalid_argument, kOp,
              "the largest input of '", shown(action.weight.module, 160), "' is ", most, " by '",
              file(),
              "'; expected a positive number; collect statistics on more text, or exclude it");
        scale = input_scale_of(action.weight, amax > 0.0F ? amax : most);
      }
      action.outputs.push_back(input_scale_tensor(options_.target, action.weight, *scale));
      action.weight.static_input = true;
      ++made;
    }
    check(made > 0, ErrorCode::unsupported, kOp, "option input_scales: target ",
          name_of(options_.target), " has no static input scales for recipe ",
          shown(options_.recipe), "; leave it out: inputs are quantized as they come");
    if (unseen > 0)
      plan_.notes.push_back(
          text("no token reached ", counted(unseen, "expert matrix", "expert matrices"),
               " of the statistics: their input scales are the largest of their layer"));
  }

  void scale_caches(const CheckpointReader& source) {
    check(
        takes_cache_scales(options_.target), ErrorCode::unsupported, kOp,
        "option kv_scales: target ", name_of(options_.target),
        " has no place for scales of a KV cache; expected compressed-tensors, modelopt or octavo");
    check(plan_.model.cache == CacheScheme::plain, ErrorCode::invalid_argument, kOp,
          "option kv_scales: the source has scales of a KV cache already, and they are kept; leave "
          "it out");
    // Where they are written: with the first tensor of the attention.
    std::map<std::string, std::size_t> attentions;
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      const std::string& name = name_of(source, plan_.actions[i]);
      for (const std::string_view part : {".k_proj.weight", ".qkv_proj.weight"})
        if (name.ends_with(part)) attentions.emplace(name.substr(0, name.size() - part.size()), i);
    }
    check(!attentions.empty(), ErrorCode::unsupported, kOp,
          "option kv_scales: no tensor is called k_proj or qkv_proj; this model's attention has a "
          "cache of another kind");
    std::map<std::string, CacheRange> ranges;
    const bool is_one = options_.kv_scales == StaticScaleSource::one;
    if (!is_one)
      for (CacheRange& range : statistics().caches()) ranges[range.module] = range;
    std::vector<std::string> missing;
    for (const auto& [attention, action] : attentions) {
      const auto range = ranges.find(attention);
      if (!is_one && range == ranges.end()) {
        missing.push_back(attention);
        continue;
      }
      for (const bool is_value : {false, true}) {
        const float amax = is_one ? 448.0F : is_value ? range->second.v_amax : range->second.k_amax;
        check(std::isfinite(amax) && amax > 0.0F, ErrorCode::invalid_argument, kOp, "the largest ",
              is_value ? "value" : "key", " of '", shown(attention, 160), "' is ", amax, " by '",
              file(), "'; expected a positive number; collect it again");
        plan_.actions[action].outputs.push_back(
            cache_scale_tensor(options_.target, attention, is_value, amax / 448.0F));
      }
    }
    refuse(missing);
    plan_.model.cache = CacheScheme::fp8;
  }

 private:
  [[nodiscard]] const InputStatistics& statistics() const { return *options_.statistics; }
  // Its name in messages.
  [[nodiscard]] std::string file() const {
    return options_.statistics != nullptr ? shown(statistics().name(), 200) : std::string();
  }

  // Null and one name more in `missing` where there is nothing about it.
  std::optional<InputRange> range_of(const QuantizedWeight& weight, std::string_view what,
                                     std::vector<std::string>& missing) const {
    check(options_.statistics != nullptr, ErrorCode::invalid_argument, kOp, what,
          " needs statistics of the model's inputs (option statistics); calibrate makes them");
    const auto range = statistics().range_of(weight.module);
    if (!range) {
      missing.push_back(weight.module);
      return std::nullopt;
    }
    const std::int64_t width = weight.shape[weight.shape.rank() - 1];
    check(range->width == width, ErrorCode::invalid_argument, kOp, "'", file(), "' has ",
          range->width, " channels for '", shown(weight.module, 160), "', and its weight has ",
          width, "; expected statistics of this model");
    return range;
  }

  void refuse(const std::vector<std::string>& missing) const {
    check(missing.empty(), ErrorCode::invalid_argument, kOp, "'", file(), "' has nothing about ",
          listed(missing),
          "; expected all that are quantized; collect them anew, or exclude these");
  }

  // The largest amax of modules that are alike; all of them have one.
  [[nodiscard]] std::map<std::string, float> largest_of_alikes() const {
    std::vector<std::string> missing;
    std::map<std::string, float> most;
    for (const TensorAction& action : plan_.actions) {
      if (!action.quantize || !takes_input_scale(options_.target, action.weight)) continue;
      const auto range = range_of(action.weight, "option input_scales", missing);
      if (!range) continue;
      check(range->amax.has_value(), ErrorCode::invalid_argument, kOp, "'", file(),
            "' has no largest inputs, which static input scales are made of; expected a file of "
            "octavo calibrate");
      float& of_all = most[alike_module(action.weight.module)];
      of_all = std::isnan(*range->amax) ? *range->amax : std::max(of_all, *range->amax);
    }
    refuse(missing);
    return most;
  }

  QuantizePlan& plan_;
  const QuantizePlanOptions& options_;
};

}  // namespace

std::string alike_module(const std::string& module) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.find(kExperts);
  if (at == std::string::npos) return module;
  const std::size_t number = at + kExperts.size(), end = module.find('.', number);
  return end == std::string::npos ? module : module.substr(0, number) + "*" + module.substr(end);
}

std::size_t own_outputs(const QuantizePlan& plan, const TensorAction& action) {
  if (!action.quantize) return std::min<std::size_t>(1, action.outputs.size());
  return dialect_tensors(plan.options.target, action.weight).size();
}

void apply_statistics(const CheckpointReader& source, QuantizePlan& plan) {
  Statistics statistics(plan);
  if (plan.options.statistics != nullptr) add_notes(*plan.options.statistics, plan.notes);
  statistics.weigh();
  if (plan.options.input_scales != StaticScaleSource::none) statistics.scale_inputs();
  if (plan.options.kv_scales != StaticScaleSource::none) {
    check(plan.options.kv_scales == StaticScaleSource::one || plan.options.statistics != nullptr,
          ErrorCode::invalid_argument, kOp,
          "option kv_scales needs statistics of the model (option statistics); calibrate makes "
          "them");
    statistics.scale_caches(source);
  }
}

}  // namespace octavo
