#include "octavo/pipeline/plan/convert_plan_internal.h"

#include <algorithm>
#include <functional>
#include <map>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/pipeline/plan/gguf_plan_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/provenance_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "convert";

// ComfyUI's older file-level marker: it holds no data, and other dialects do not need it.
bool is_marker_of_file(std::string_view name) { return name.ends_with("scaled_fp8"); }

// "l.0.up_proj" of "l.0.up_proj.input_scale".
std::string module_of_scale(const std::string& name) { return name.substr(0, name.rfind('.')); }

DialectTensor as_it_is(const safetensors::TensorEntry& entry) {
  return {.plan = {.name = entry.name, .type = entry.type, .shape = entry.shape}};
}

DialectTensor as_values(const QuantizedWeight& weight) {
  const auto type =
      safetensors::find_stored_type(safetensors::ElementType{weight.source, {}, false});
  const auto sizes = weight.shape.sizes();
  return {.plan = {.name = weight.name, .type = *type, .shape = {sizes.begin(), sizes.end()}}};
}

// From the name of every tensor of a weight to the weight.
using Parts = std::map<std::string_view, std::shared_ptr<const FoundWeight>>;

Parts parts_of(Recognized& recognized) {
  Parts parts;
  for (FoundWeight& found : recognized.weights) {
    const auto shared = std::make_shared<const FoundWeight>(std::move(found));
    for (const DialectTensor& tensor : shared->tensors) parts[tensor.plan.name] = shared;
  }
  return parts;
}

// From the module of a split expert stack to the modules of its matrices.
using Apart = std::map<std::string, std::vector<std::string>, std::less<>>;

// Each matrix of a split stack gets the stack's static activation scale.
void scales_for_parts(const Apart& apart, QuantizePlan& plan) {
  if (apart.empty()) return;
  std::vector<TensorAction> actions;
  for (TensorAction& action : plan.actions) {
    const bool number = action.found == nullptr && action.outputs.front().part == Part::marker;
    const std::string name = number ? action.outputs.front().plan.name : std::string();
    const std::string stack = module_of_scale(name);
    const auto parts = apart.find(stack);
    if (!number || parts == apart.end()) {
      actions.push_back(std::move(action));
      continue;
    }
    for (const std::string& part : parts->second) {
      TensorAction one = action;
      one.outputs.front().plan.name = part + name.substr(stack.size());
      actions.push_back(std::move(one));
    }
  }
  plan.actions = std::move(actions);
}

// Makes the actions of a found weight: one, or one per expert of a stack. The shapes are value
// shapes by name, not those of packed codes.
using Say = std::function<std::vector<TensorAction>(TensorAction, const ShapeOf&)>;

// The plan of all tensors, with `say` for weights. Without a target they are dequantized, and
// config.json declares no quantization.
QuantizePlan plan_from(std::string_view op, const CheckpointReader& source,
                       std::optional<Dialect> target, ConvertCheckpointResult& result,
                       const Say& say) {
  Recognized recognized = recognize(source);
  check(recognized.quantized, ErrorCode::invalid_argument, op, "'", shown(source.path(), 200),
        "' is not quantized, or not in a way octavo knows; quantize it first");
  QuantizePlan plan;
  (void)restore_scalings(source, recognized);
  plan.options.target = target.value_or(Dialect::octavo);
  plan.source_dialect = result.from = recognized.dialect;
  result.weights = static_cast<std::int64_t>(recognized.weights.size());
  const StaticScales statics(source, recognized, target);
  plan.model.cache = statics.cache();
  const Parts parts = parts_of(recognized);
  const ShapeOf shape_of = [&](const std::string& name) -> std::optional<Shape> {
    const auto found = parts.find(name);
    if (found != parts.end() && found->second->weight.name == name)
      return found->second->weight.shape;
    const StoredTensor* const tensor = source.find(name);
    if (tensor == nullptr || tensor->entry->shape.size() > kMaxRank) return std::nullopt;
    const auto& shape = tensor->entry->shape;
    const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    return Shape(std::span(sizes));
  };
  std::int64_t left = 0;
  Apart apart;
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const safetensors::TensorEntry& entry = *source.tensors()[i].entry;
    TensorAction action{.tensor = i};
    const auto part = parts.find(entry.name);
    if (part == parts.end()) {
      const DialectTensor* const target_tensor = statics.target_tensor(entry.name);
      if (is_marker_of_file(entry.name)) continue;
      if (target_tensor == nullptr && is_input_scale(entry.name)) {
        if (!statics.has_input(module_of_scale(entry.name))) ++left;
        continue;
      }
      action.outputs = {target_tensor != nullptr ? *target_tensor : as_it_is(entry)};
      note_plain(plan.model, entry.name, entry.shape,
                 role_of(entry.name, entry.shape, source.config()).role);
      plan.actions.push_back(std::move(action));
    } else {
      if (part->second->tensors.front().plan.name != entry.name) continue;  // with its codes
      action.found = part->second;
      action.weight = action.found->weight;
      action.weight.static_input = statics.has_input(action.weight.module);
      action.scaling = action.weight.scaling;
      const std::string module = action.weight.module;
      for (TensorAction& said : say(std::move(action), shape_of)) {
        if (said.weight.module != module) apart[module].push_back(said.weight.module);
        if (said.quantize) plan.model.weights.push_back(said.weight);
        plan.actions.push_back(std::move(said));
      }
    }
  }
  scales_for_parts(apart, plan);
  if (left > 0)
    result.notes.push_back(text(counted(left, "activation scale"), " ", plural(left, "is", "are"),
                                " dropped",
                                target ? text(": for these weights ", name_of(*target),
                                              " does not support them, or some weights have none")
                                       : std::string(),
                                "; servers find their own, or take activations as they are"));
  if (loses_cache(source, plan.model)) result.notes.emplace_back(kCacheLost);
  result.notes.insert(result.notes.end(), source.notes().begin(), source.notes().end());
  return plan;
}

// Splits a stack into per-expert matrices that keep their codes and scales. Returns why that is
// impossible, or "".
std::string split_stack(Dialect from, Dialect target, const TensorAction& whole,
                        const ShapeOf& shape_of, std::vector<TensorAction>& actions) {
  const ExpertStack stack = expert_stack(whole.weight.name, shape_of);
  if (!stack.known) return "it is not known which way its experts lie";
  if (stack.in_out)
    return "its experts are [in, out] with tiles along out, and loaders want [out, in] with tiles "
           "along in";
  if (std::string why = split_experts(stack, whole, target, actions); !why.empty()) return why;
  // A part is read in row blocks of the stack, which begin where its tiles do.
  const std::int64_t unit = row_block_rows(from, whole.found->weight);
  for (const TensorAction& action : actions)
    if (action.part.first % unit != 0 || action.weight.shape[0] % unit != 0)
      return "a tile has rows of two of its matrices";
  return "";
}

// A GGUF file: blocks are decoded as they are read, so that every tensor is a copy in another type.
QuantizePlan plan_plain(const CheckpointReader& source, DType dtype,
                        ConvertCheckpointResult& result) {
  QuantizePlan plan;
  plan.options.target = Dialect::octavo;
  result.from = Dialect::gguf;
  const auto wanted = safetensors::find_stored_type(safetensors::ElementType{dtype, {}, false});
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const StoredTensor& tensor = source.tensors()[i];
    DialectTensor output = as_it_is(*tensor.entry);
    const auto type = safetensors::element_type(tensor.entry->type);
    if (type && is_value(type->dtype)) output.plan.type = *wanted;
    if (source.is_in_blocks(tensor)) ++result.weights;
    plan.actions.push_back({.tensor = i, .outputs = {std::move(output)}});
  }
  result.notes = source.notes();
  return plan;
}

}  // namespace

QuantizePlan plan_convert(const CheckpointReader& source, Dialect target,
                          ConvertCheckpointResult& result) {
  const Say say = [&](TensorAction action, const ShapeOf& shape_of) {
    action.quantize = true;
    std::vector<TensorAction> actions;
    const bool apart = action.weight.shape.rank() == 3 && !takes_stacks(target);
    std::string reason = apart ? split_stack(result.from, target, action, shape_of, actions)
                               : why_not(target, action.weight);
    if (!reason.empty())
      fail(ErrorCode::unsupported, kOp, "'", shown(action.weight.name, 200),
           "' cannot be converted for ", name_of(target), ": ", reason,
           "; choose another target, or dequantize and quantize anew");
    if (!apart) actions.push_back(std::move(action));
    for (TensorAction& one : actions) one.outputs = dialect_tensors(target, one.weight);
    return actions;
  };
  check(!source.is_gguf(), ErrorCode::unsupported, kOp, "'", shown(source.path(), 200),
        "' is a GGUF file, whose blocks no other target has; convert it without a target to "
        "numbers, or quantize it");
  QuantizePlan plan = plan_from(kOp, source, target, result, say);
  if (target == Dialect::gguf) {
    plan_gguf(source, plan);
    result.notes.insert(result.notes.end(), plan.notes.begin(), plan.notes.end());
  }
  if (std::string note = plan_dtype(source, plan); !note.empty())
    result.notes.push_back(std::move(note));
  place_actions(kOp, source, plan);
  return plan;
}

QuantizePlan plan_dequantize(const CheckpointReader& source, DType dtype,
                             ConvertCheckpointResult& result) {
  if (source.is_gguf()) {
    QuantizePlan plan = plan_plain(source, dtype, result);
    plan.config_dtype = dtype_name(dtype);
    place_actions("dequantize", source, plan);
    return plan;
  }
  QuantizePlan plan = plan_from("dequantize", source, std::nullopt, result,
                                [&](TensorAction action, const ShapeOf&) {
                                  action.weight.source = dtype;
                                  action.outputs = {as_values(action.weight)};
                                  return std::vector<TensorAction>{std::move(action)};
                                });
  plan.config_dtype = dtype_name(dtype);
  merge_experts(source, plan, result.notes);
  place_actions("dequantize", source, plan);
  return plan;
}

}  // namespace octavo
