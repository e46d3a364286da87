#include "octavo/pipeline/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/name_patterns_internal.h"
#include "octavo/pipeline/output_files_internal.h"
#include "octavo/pipeline/recipe_scaling_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

std::string shown_name(std::string_view name) { return text("tensor '", shown(name, 160), "'"); }

void refuse_quantized(const CheckpointReader& source) {
  const Recognized found = recognize(source);
  if (found.quantized)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(source.path(), 200),
         "' is quantized already (", name_of(found.dialect), ", ", found.weights.size(),
         " weights), wanted a plain checkpoint; dequantize it first, or convert it");
  for (const StoredTensor& tensor : source.tensors()) {
    const auto type = safetensors::element_type(tensor.entry->type);
    if (type && type->dtype == DType::code)
      fail(ErrorCode::invalid_argument, kOp, shown_name(tensor.name()), " holds ",
           safetensors::stored_name(tensor.entry->type),
           " codes, wanted a checkpoint that is not quantized; dequantize it first");
  }
}

Shape shape_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::int64_t> out;
  for (const std::uint64_t size : sizes) out.push_back(static_cast<std::int64_t>(size));
  return Shape(out);
}

class Planning {
 public:
  Planning(const CheckpointReader& source, const QuantizePlanOptions& options)
      : source_(source), options_(options), include_(options.include), exclude_(options.exclude) {
    plan_.options = options;
    (void)recipe_scaling(options.recipe, options);  // for what it says of them
    for (const auto& [expression, recipe] : options.recipe_for) {
      recipe_for_.emplace_back(NamePattern(expression), recipe);
      if (recipe != "none") (void)preset(recipe);
    }
  }

  QuantizePlan run() {
    for (std::size_t i = 0; i < source_.tensors().size(); ++i) plan_tensor(i);
    share_scales();
    place_actions(source_, plan_);
    describe_model();
    if (!plan_.model.weights.empty()) try_config();
    return std::move(plan_);
  }

 private:
  struct Wish {
    std::string recipe{};    // empty: leave it alone
    std::string why{};       // then
    bool explicit_ = false;  // named by the user: what cannot be is an error
  };

  Wish wish_for(const std::string& name, const TensorRole& role) const {
    if (exclude_.match(name)) return {.why = "excluded"};
    Wish wish{.recipe = options_.recipe};
    if (!include_.empty()) {
      if (!include_.match(name)) return {.why = "not included"};
      wish.explicit_ = true;
    } else if (role.role != Role::linear && role.role != Role::expert_stack) {
      return {.why = role.why};
    }
    for (const auto& [pattern, recipe] : recipe_for_) {
      if (!pattern.matches(name)) continue;
      if (recipe == "none") return {.why = "recipe none"};
      wish.recipe = recipe;
      wish.explicit_ = true;
      break;
    }
    return wish;
  }

  void plan_tensor(std::size_t index) {
    const StoredTensor& tensor = source_.tensors()[index];
    const safetensors::TensorEntry& entry = *tensor.entry;
    const TensorRole role = role_of(entry.name, entry.shape, source_.config());
    const Wish wish = wish_for(entry.name, role);
    const auto type = safetensors::element_type(entry.type);
    if (wish.recipe.empty()) return copy(index, wish.why, role.role);
    const auto impossible = [&](const std::string& why) {
      if (wish.explicit_)
        fail(ErrorCode::unsupported, kOp, shown_name(entry.name), " cannot be quantized: ", why,
             "; exclude it, or name another recipe for it");
      copy(index, why, role.role);
    };
    if (!type || !is_value(type->dtype)) return impossible("it holds no floating point");
    if (entry.shape.size() < 2 || entry.shape.size() > 3) return impossible("it is no matrix");
    if (tensor.nbytes() == 0) return impossible("it is empty");
    if (entry.shape.size() == 3 && role.role != Role::expert_stack)
      return impossible("it is no matrix");
    TensorAction action{.tensor = index, .quantize = true, .preset = wish.recipe};
    action.weight = {.name = entry.name,
                     .module = std::string(module_of(entry.name)),
                     .shape = shape_of(entry.shape),
                     .source = type->dtype,
                     .scaling = scaling_of(wish.recipe)};
    action.scaling = working_scaling(action.weight.scaling, options_);
    const std::string why =
        entry.shape.size() == 3 ? plan_stack(action) : why_not(options_.target, action.weight);
    if (!why.empty()) return impossible(why);
    if (entry.shape.size() == 2) add(std::move(action));
  }

  // All experts of a layer in one tensor: as it is where the target can say that, else a weight for
  // each. Why neither, or "" and it is planned.
  std::string plan_stack(const TensorAction& like) {
    const ExpertStack stack = expert_stack(source_, source_.tensors()[like.tensor]);
    if (!stack.known) return "it is not known which way its experts lie";
    const bool apart = options_.target == Dialect::compressed_tensors;
    if (!apart && stack.in_out)
      return text("its experts are [in, out], and target ", name_of(options_.target),
                  " has no words for that");
    if (!apart) {
      std::string why = why_not(options_.target, like.weight);
      if (why.empty()) add(like);
      return why;
    }
    if (stack.interleaved) return "gate and up take turns in it, and have biases that do";
    std::vector<TensorAction> actions;
    const std::string_view module = like.weight.module;
    const std::string_view prefix = module.substr(0, module.rfind('.') + 1);
    const Shape& shape = like.weight.shape;
    const std::int64_t out = shape[stack.in_out ? 2 : 1], in = shape[stack.in_out ? 1 : 2];
    const std::int64_t parts = stack.gated ? 2 : 1, rows = out / parts;
    for (std::int64_t expert = 0; expert < shape[0]; ++expert)
      for (std::int64_t part = 0; part < parts; ++part) {
        TensorAction action = like;
        action.part = {.matrix = expert, .first = part * rows, .transposed = stack.in_out};
        const char* const name = !stack.gated ? "down_proj" : part == 0 ? "gate_proj" : "up_proj";
        action.weight.module = text(prefix, expert, ".", name);
        action.weight.name = action.weight.module + ".weight";
        action.weight.shape = {rows, in};
        action.why = "an expert of a stack";
        if (std::string why = why_not(options_.target, action.weight); !why.empty()) return why;
        actions.push_back(std::move(action));
      }
    for (TensorAction& action : actions) add(std::move(action));
    return "";
  }

  const Scaling& scaling_of(const std::string& recipe) {
    const auto found = scalings_.find(recipe);
    return found != scalings_.end()
               ? found->second
               : scalings_.emplace(recipe, recipe_scaling(recipe, options_)).first->second;
  }

  void copy(std::size_t index, const std::string& why, Role role) {
    const safetensors::TensorEntry& entry = *source_.tensors()[index].entry;
    TensorAction action{.tensor = index, .why = why};
    action.outputs.push_back({.plan = {entry.name, entry.type, entry.shape}});
    plan_.actions.push_back(std::move(action));
    // What loaders would make a quantized layer of unless they are told not to.
    if (entry.shape.size() >= 2 && entry.name.ends_with(".weight") && role != Role::embedding &&
        role != Role::norm && role != Role::position)
      plan_.model.plain_modules.emplace_back(module_of(entry.name));
    const bool by_role = role != Role::linear && role != Role::expert_stack;
    if (by_role || why == "excluded" || why == "not included" || why == "recipe none") return;
    plan_.notes.push_back(text(shown_name(entry.name), " is left as it is: ", why));
    if (first_refused_.empty()) first_refused_ = text(shown_name(entry.name), ": ", why);
  }

  void add(TensorAction action) {
    action.outputs = spell(options_.target, action.weight);
    plan_.actions.push_back(std::move(action));
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

  // What the dialect has to say against it is said before the work, not behind it.
  void try_config() const {
    Json config = source_.config(), side = source_.hf_quant_config();
    configure(options_.target, plan_.model, config, side);
  }

  void describe_model() {
    double weights = 0, bytes = 0;
    for (const TensorAction& action : plan_.actions) {
      if (!action.quantize) continue;
      plan_.model.weights.push_back(action.weight);
      weights += static_cast<double>(element_count(action.weight.shape));
      for (const SpelledTensor& output : action.outputs)
        bytes += static_cast<double>(planned_bytes(output.plan));
    }
    plan_.bits_per_weight = weights > 0 ? 8 * bytes / weights : 0;
    // A head that shares the embedding's memory has no tensor, and loaders make a Linear of it.
    const bool has_head = source_.find("lm_head.weight") != nullptr;
    const Json& names = source_.config()["architectures"];
    if (!has_head && names.is_array() && !names.elements().empty() &&
        names.elements().front().string_or("").ends_with("ForCausalLM"))
      plan_.model.plain_modules.emplace_back("lm_head");
    if (plan_.model.weights.empty() && !first_refused_.empty())
      fail(ErrorCode::unsupported, "quantize", "target ", name_of(options_.target),
           " can hold no weight of this model with recipe ", shown(options_.recipe), " (",
           first_refused_, "); choose another target or recipe");
    if (plan_.model.weights.empty())
      plan_.notes.emplace_back("nothing is quantized: no tensor is a Linear's weight by its name");
    for (const std::string& note : source_.notes()) plan_.notes.push_back(note);
  }

  const CheckpointReader& source_;
  const QuantizePlanOptions& options_;
  NamePatterns include_, exclude_;
  std::vector<std::pair<NamePattern, std::string>> recipe_for_;
  std::map<std::string, Scaling> scalings_;
  QuantizePlan plan_;
  std::string first_refused_;  // a weight that the target cannot hold, and why
};

}  // namespace

QuantizePlan plan_quantize(const CheckpointReader& source, const QuantizePlanOptions& options) {
  refuse_quantized(source);
  return Planning(source, options).run();
}

}  // namespace octavo
