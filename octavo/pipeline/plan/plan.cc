// Plans every tensor: first what the user wants, then what the target can hold.
#include "octavo/pipeline/plan/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/checkpoint/expert_stack.h"
#include "octavo/checkpoint/verify/architecture_internal.h"
#include "octavo/pipeline/plan/choose_recipe_internal.h"
#include "octavo/pipeline/plan/gguf_plan_internal.h"
#include "octavo/pipeline/plan/measured_format_internal.h"
#include "octavo/pipeline/plan/name_patterns_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/plan_statistics_internal.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/report/choose_format.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

void refuse_quantized(const CheckpointReader& source) {
  const Recognized found = recognize(source);
  if (found.quantized)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(source.path(), 200),
         "' is quantized already (", name_of(found.dialect), ", ",
         counted(found.weights.size(), "weight"),
         "); expected a plain checkpoint; dequantize it first, or convert it");
  for (const StoredTensor& tensor : source.tensors()) {
    const auto type = safetensors::element_type(tensor.entry->type);
    if (type && type->dtype == DType::code)
      fail(ErrorCode::invalid_argument, kOp, shown_tensor(tensor.name()), " holds ",
           safetensors::stored_name(tensor.entry->type),
           " codes; expected a checkpoint that is not quantized; dequantize it first");
  }
}

// A config.json that contradicts itself describes a model that no loader builds.
void refuse_contradictions(const CheckpointReader& source, Dialect target) {
  if (!is_for_servers(target) || !source.config().is_object()) return;
  for (const std::string& what : contradictions_of(source.config()))
    fail(ErrorCode::invalid_argument, kOp, "config.json of '", shown(source.path(), 200), "' says ",
         what, ": no loader builds that model; mend it, or use the target octavo");
}

Shape shape_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::int64_t> out;
  for (const std::uint64_t size : sizes) out.push_back(static_cast<std::int64_t>(size));
  return Shape(out);
}

class Planning {
 public:
  Planning(const CheckpointReader& source, const QuantizePlanOptions& options)
      : source_(source),
        options_(options),
        include_("include", options.include),
        exclude_("exclude", options.exclude) {
    plan_.options = options;
    check_plan_options(options);
    for (const auto& [expression, recipe] : options.recipe_for)
      recipe_for_.emplace_back(NamePattern("recipe_for", expression), recipe);
  }

  QuantizePlan run() {
    check_found();
    std::vector<Decision> decisions;
    for (std::size_t i = 0; i < source_.tensors().size(); ++i) decisions.push_back(decide(i));
    decide_groups(source_, options_.target, decisions);
    find_cache(decisions);
    for (Decision& decision : decisions) take(std::move(decision));
    share_scales();
    apply_statistics(source_, plan_);
    if (options_.target == Dialect::gguf) plan_gguf(source_, plan_);
    place_actions(kOp, source_, plan_);
    note_left_alone();
    describe_model();
    if (std::string note = plan_dtype(source_, plan_); !note.empty())
      plan_.notes.push_back(std::move(note));
    if (!plan_.model.weights.empty()) try_config();
    return std::move(plan_);
  }

 private:
  // An expression without a match is probably a typing error. For `include` the result would be an
  // unquantized copy, so it is an error; the others are noted.
  void check_found() {
    check_included(source_, include_);
    const auto note = [&](std::string_view option, const NamePattern& pattern) {
      if (!finds_any(source_, pattern)) plan_.notes.push_back(found_nowhere(option, pattern));
    };
    for (const NamePattern& pattern : exclude_.all()) note("exclude", pattern);
    for (const auto& [pattern, recipe] : recipe_for_) note("recipe_for", pattern);
  }

  // What the user wants of a tensor: a recipe, or why it stays unquantized.
  void wish(Decision& decision, const std::string& name, const ModelTensorRole& role) const {
    const auto leave = [&](SkipReason left, std::string why) {
      decision.recipe.clear();
      decision.left = left;
      decision.why = std::move(why);
    };
    decision.recipe = options_.recipe;
    if (exclude_.match(name)) return leave(SkipReason::excluded, "excluded");
    if (!include_.empty()) {
      if (!include_.match(name)) return leave(SkipReason::not_included, "not included");
      decision.named = true;
    } else if (role.role != Role::linear && role.role != Role::expert_stack) {
      return leave(SkipReason::by_role, role.why);
    }
    for (const auto& [pattern, recipe] : recipe_for_) {
      if (!pattern.matches(name)) continue;
      if (recipe == "none") return leave(SkipReason::recipe_none, "recipe none");
      decision.recipe = recipe;
      decision.named = true;
      break;
    }
  }

  Decision decide(std::size_t index) {
    const StoredTensor& tensor = source_.tensors()[index];
    const safetensors::TensorEntry& entry = *tensor.entry;
    const ModelTensorRole role = role_of(entry.name, entry.shape, source_.config());
    Decision decision{.tensor = index, .role = role.role};
    other_way_ |= role.role == Role::other && !role.never.empty();
    wish(decision, entry.name, role);
    if (decision.recipe.empty()) return decision;
    const std::string no_weight = why_no_weight(decision, tensor);
    const std::string why = !role.never.empty()  ? std::string(role.never)
                            : !no_weight.empty() ? no_weight
                                                 : plan_weight(decision, tensor);
    if (why.empty()) return decision;
    // Norms and biases, which an expression for a layer finds too, are left with a note. A matrix
    // that this recipe cannot quantize is for the user to decide.
    const bool passed_over = !include_.empty() && role.never.empty() && !no_weight.empty();
    if (decision.named && !passed_over)
      fail(ErrorCode::unsupported, kOp, shown_tensor(entry.name), " cannot be quantized: ", why,
           "; exclude it (option exclude)",
           role.never.empty() ? ", or name another recipe for it (option recipe_for)" : "");
    decision.recipe.clear();
    decision.left = passed_over ? SkipReason::no_weight : SkipReason::impossible;
    decision.why = why;
    decision.actions.clear();
    return decision;
  }

  // Why no recipe could quantize it, or "": it is no matrix of numbers.
  static std::string why_no_weight(const Decision& decision, const StoredTensor& tensor) {
    const safetensors::TensorEntry& entry = *tensor.entry;
    const auto type = safetensors::element_type(entry.type);
    if (!type || !is_value(type->dtype))
      return text("it holds ", safetensors::stored_name(entry.type),
                  ", not floating-point numbers");
    const std::size_t rank = entry.shape.size();
    if (rank < 2 || rank > 3 || (rank == 3 && decision.role != Role::expert_stack))
      return text("it has ", counted(rank, "dimension"),
                  ", and only matrices and expert stacks are quantized");
    if (tensor.nbytes() == 0) return "it is empty";
    return "";
  }

  // Fills in the actions; returns why there can be none, or "".
  std::string plan_weight(Decision& decision, const StoredTensor& tensor) {
    const safetensors::TensorEntry& entry = *tensor.entry;
    const auto type = safetensors::element_type(entry.type);
    const std::size_t rank = entry.shape.size();
    TensorAction action{.tensor = decision.tensor, .quantize = true, .preset = decision.recipe};
    action.weight = {.name = entry.name,
                     .module = std::string(module_of(entry.name)),
                     .shape = shape_of(entry.shape),
                     .source = type->dtype,
                     .scaling = scaling_of(decision.recipe)};
    action.scaling = working_scaling(action.weight.scaling, options_);
    const bool fixed = decision.recipe.find(':') != std::string::npos;
    if (options_.format == kMeasuredFormat && !fixed && action.weight.scaling.format == e4m3fn)
      choose_format(action);
    if (rank == 3) return plan_stack(action, decision.actions);
    std::string why = why_not(options_.target, action.weight);
    if (why.empty()) decision.actions.push_back(std::move(action));
    return why;
  }

  // For the format `auto`. A target that holds E4M3 alone leaves nothing to choose.
  void choose_format(TensorAction& action) const {
    QuantizedWeight other = action.weight;
    other.scaling.format = e5m2;
    if (why_not(options_.target, action.weight).empty() && !why_not(options_.target, other).empty())
      fail(ErrorCode::unsupported, kOp, "option format: ", kMeasuredFormat,
           " chooses between e4m3fn and e5m2, and target ", name_of(options_.target),
           " holds FP8 of e4m3fn alone; leave it out, or choose target octavo, or comfyui with "
           "recipe fp8");
    action.weight.scaling.format = action.scaling.format = measured_format(source_, action);
  }

  // An expert stack: kept where the target's loaders take stacks, else split into one weight per
  // matrix. Returns why neither is possible, or "" when it is planned.
  std::string plan_stack(const TensorAction& like, std::vector<TensorAction>& actions) const {
    const ExpertStack stack = expert_stack(source_, source_.tensors()[like.tensor]);
    if (!stack.known) return "it is not known which way its experts lie";
    const bool whole = takes_stacks(options_.target);
    if (whole && stack.in_out)
      return text("its experts are [in, out], and target ", name_of(options_.target),
                  " does not support that");
    if (whole) {
      std::string why = why_not(options_.target, like.weight);
      if (why.empty()) actions.push_back(like);
      return why;
    }
    return split_experts(stack, like, options_.target, actions);
  }

  const Scaling& scaling_of(const std::string& recipe) {
    const auto found = scalings_.find(recipe);
    return found != scalings_.end()
               ? found->second
               : scalings_.emplace(recipe, recipe_scaling(recipe, options_)).first->second;
  }

  // KV cache quantization in a source with unquantized weights: its config is rewritten, and its
  // scales get the target's names. Where nothing is quantized all stays unchanged.
  void find_cache(const std::vector<Decision>& decisions) {
    if (std::all_of(decisions.begin(), decisions.end(),
                    [](const Decision& one) { return one.recipe.empty(); }))
      return;
    statics_.emplace(source_, Recognized{}, options_.target);
    plan_.model.cache = statics_->cache();
    if (loses_cache(source_, plan_.model)) plan_.notes.emplace_back(kCacheLost);
  }

  void take(Decision decision) {
    for (TensorAction& action : decision.actions) {
      action.outputs = dialect_tensors(options_.target, action.weight);
      plan_.actions.push_back(std::move(action));
    }
    if (decision.recipe.empty()) copy(decision);
  }

  void copy(const Decision& decision) {
    const safetensors::TensorEntry& entry = *source_.tensors()[decision.tensor].entry;
    TensorAction action{.tensor = decision.tensor, .left = decision.left, .why = decision.why};
    const DialectTensor* const number = statics_ ? statics_->target_tensor(entry.name) : nullptr;
    if (number != nullptr) {
      action.outputs.push_back(*number);
    } else {
      action.outputs.push_back(
          {.plan = {entry.name, plain_type(source_, entry.type), entry.shape}});
    }
    plan_.actions.push_back(std::move(action));
    note_plain(plan_.model, entry.name, entry.shape, decision.role);
    if (decision.left == SkipReason::by_role && entry.shape.size() >= 2) {
      adapters_ += decision.role == Role::adapter;
      state_spaces_ += decision.role == Role::state_space;
    }
    const bool no_weight = decision.left == SkipReason::no_weight;
    if (!no_weight && decision.left != SkipReason::impossible &&
        decision.left != SkipReason::with_its_group)
      return;
    plan_.notes.push_back(text(shown_tensor(entry.name), " stays unquantized: ", decision.why));
    std::string& first = no_weight ? first_passed_over_ : first_refused_;
    if (first.empty()) first = text(shown_tensor(entry.name), ": ", decision.why);
  }

  void share_scales() {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      const TensorAction& action = plan_.actions[i];
      if (!options_.share || !action.quantize || !has_tensor_scale(action.scaling)) continue;
      const std::string key = fusion_key(action.weight.module);
      if (!key.empty()) groups[text(key, "\n", action.preset)].push_back(i);
    }
    for (const auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      for (const std::size_t member : members) plan_.actions[member].group = plan_.groups;
      ++plan_.groups;
    }
  }

  // Calls the dialect's configure() now, so that its errors come before the work.
  void try_config() const {
    Json config = source_.config(), side = source_.hf_quant_config();
    configure(options_.target, plan_.model, config, side);
  }

  // Matrices that look like a linear layer's and stay as they are.
  void note_left_alone() {
    const auto note = [&](std::int64_t count, std::string_view what) {
      if (count > 0)
        plan_.notes.push_back(text(count, count == 1 ? " matrix " : " matrices ", what));
    };
    note(adapters_,
         "of a LoRA adapter left alone: loaders add them to the weights of another checkpoint");
    note(state_spaces_,
         "of state-space layers (Mamba) left alone: errors add up along a sequence there");
  }

  void describe_model() {
    double weights = 0, bytes = 0;
    plan_.model.weights = planned_weights(plan_);
    for (const TensorAction& action : plan_.actions) {
      if (!action.quantize) continue;
      weights += static_cast<double>(element_count(action.weight.shape));
      bytes += static_cast<double>(bytes_after(action));
    }
    plan_.bits_per_weight = weights > 0 ? 8 * bytes / weights : 0;
    // A tied head has no tensor, and loaders make a Linear of it.
    const bool has_head = source_.find("lm_head.weight") != nullptr;
    const Json& names = source_.config()["architectures"];
    if (!has_head && names.is_array() && !names.elements().empty() &&
        names.elements().front().string_or("").ends_with("ForCausalLM"))
      plan_.model.plain_modules.emplace_back("lm_head");
    if (plan_.model.weights.empty() && !first_refused_.empty())
      fail(ErrorCode::unsupported, "quantize", "target ", name_of(options_.target),
           " can hold no weight of this model with recipe ", shown(options_.recipe), " (",
           first_refused_, "); choose another target or recipe");
    if (plan_.model.weights.empty() && !first_passed_over_.empty())
      fail(ErrorCode::unsupported, kOp, "option include finds nothing that can be quantized (",
           first_passed_over_, "); name the weights of linear layers; inspect lists them");
    if (plan_.model.weights.empty()) {
      const bool by_wish =
          std::any_of(plan_.actions.begin(), plan_.actions.end(), [](const TensorAction& action) {
            return action.left == SkipReason::excluded || action.left == SkipReason::recipe_none;
          });
      plan_.notes.emplace_back(
          by_wish ? "nothing is quantized: what could be is excluded, or has the recipe none"
          : other_way_
              ? "nothing is quantized: the weights of linear layers are stored as [in, out] here, "
                "which is not supported"
              : "nothing is quantized: no tensor has the name of a linear layer's weight; name "
                "some (option include)");
    }
    for (const std::string& note : source_.notes()) plan_.notes.push_back(note);
  }

  const CheckpointReader& source_;
  const QuantizePlanOptions& options_;
  NamePatterns include_, exclude_;
  std::vector<std::pair<NamePattern, std::string>> recipe_for_;
  std::map<std::string, Scaling> scalings_;
  std::optional<StaticScales> statics_;  // if anything is quantized
  QuantizePlan plan_;
  std::int64_t adapters_ = 0, state_spaces_ = 0;
  bool other_way_ = false;  // some weights are stored as [in, out]
  // The first weight that the target cannot hold, and the first tensor that include finds and that
  // is no weight; with why.
  std::string first_refused_, first_passed_over_;
};

}  // namespace

bool loses_cache(const CheckpointReader& source, const QuantizedModel& model) {
  return model.cache == CacheScheme::plain && cache_scheme_of(source) != CacheScheme::plain;
}

std::vector<QuantizedWeight> planned_weights(const QuantizePlan& plan) {
  std::vector<QuantizedWeight> weights;
  for (const TensorAction& action : plan.actions)
    if (action.quantize) weights.push_back(action.weight);
  return weights;
}

QuantizePlan plan_quantize(const CheckpointReader& source, const QuantizePlanOptions& given) {
  const QuantizePlanOptions options = spelled_out(given);
  // All else would stay as it is, and a copy of the model is not what was meant.
  check(given.recipe != "experts-nvfp4" ||
            finds_any(source, NamePattern("recipe", options.recipe_for.rbegin()[1].first)),
        ErrorCode::invalid_argument, kOp, "recipe experts-nvfp4: '", shown(source.path(), 200),
        "' has no experts; expected a mixture of experts, or another recipe, such as nvfp4");
  check(!source.is_decoded() || !options.recipe.empty(), ErrorCode::invalid_argument, kOp, "'",
        shown(source.path(), 200),
        "' is quantized already; name the recipe that it is to have instead (option recipe), or "
        "convert it");
  refuse_quantized(source);
  refuse_contradictions(source, options.target);
  return choose_recipe(source, options, [&](const QuantizePlanOptions& with_recipe) {
    return Planning(source, with_recipe).run();
  });
}

}  // namespace octavo
