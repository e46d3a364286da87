// From one spelling to another, or to values: plans that the streaming of quantize carries out.
#include "octavo/pipeline/convert_checkpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/output_files_internal.h"
#include "octavo/pipeline/provenance_internal.h"
#include "octavo/pipeline/stream_internal.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "convert";

// Numbers that belong to a spelling and not to a weight: static scales of activations, ComfyUI's
// word for all.
bool is_left_behind(std::string_view name) {
  constexpr std::array<std::string_view, 5> kSuffixes{
      ".input_scale", ".input_global_scale", ".activation_scale", ".scale_input", "scaled_fp8"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

SpelledTensor as_it_is(const safetensors::TensorEntry& entry) {
  return {.plan = {.name = entry.name, .type = entry.type, .shape = entry.shape}};
}

SpelledTensor as_values(const QuantizedWeight& weight) {
  const auto type =
      safetensors::find_stored_type(safetensors::ElementType{weight.source, {}, false});
  const auto sizes = weight.shape.sizes();
  return {.plan = {.name = weight.name, .type = *type, .shape = {sizes.begin(), sizes.end()}}};
}

// The name of every tensor of a weight, to the weight.
using Parts = std::map<std::string_view, std::shared_ptr<const FoundWeight>>;

Parts parts_of(Recognized& recognized) {
  Parts parts;
  for (FoundWeight& found : recognized.weights) {
    const auto shared = std::make_shared<const FoundWeight>(std::move(found));
    for (const SpelledTensor& tensor : shared->tensors) parts[tensor.plan.name] = shared;
  }
  return parts;
}

// What becomes of each tensor; `say` fills in what it shall be.
template <typename Say>
QuantizePlan plan_from(std::string_view op, const CheckpointReader& source, Dialect target,
                       ConvertResult& result, const Say& say) {
  Recognized recognized = recognize(source);
  check(recognized.quantized, ErrorCode::invalid_argument, op, "'", shown(source.path(), 200),
        "' is not quantized, or not in a way octavo knows; quantize it first");
  QuantizePlan plan;
  plan.options.target = target;
  plan.source_dialect = result.from = recognized.dialect;
  result.weights = static_cast<std::int64_t>(recognized.weights.size());
  const Parts parts = parts_of(recognized);
  std::int64_t left = 0;
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const safetensors::TensorEntry& entry = *source.tensors()[i].entry;
    TensorAction action{.tensor = i};
    const auto part = parts.find(entry.name);
    if (part == parts.end()) {
      if (is_left_behind(entry.name)) {
        ++left;
        continue;
      }
      action.outputs = {as_it_is(entry)};
      const Role role = role_of(entry.name, entry.shape, source.config()).role;
      if (entry.shape.size() >= 2 && entry.name.ends_with(".weight") && role != Role::embedding &&
          role != Role::norm && role != Role::position)
        plan.model.plain_modules.emplace_back(module_of(entry.name));
    } else {
      if (part->second->tensors.front().plan.name != entry.name) continue;  // with its codes
      action.found = part->second;
      action.weight = action.found->weight;
      action.scaling = action.weight.scaling;
      say(action);
      if (action.quantize) plan.model.weights.push_back(action.weight);
    }
    plan.actions.push_back(std::move(action));
  }
  if (left > 0)
    result.notes.push_back(text(left,
                                " scales of activations are left behind: servers find their "
                                "own, or take activations as they are"));
  if (!source.config()["quantization_config"]["kv_cache_scheme"].is_null())
    result.notes.emplace_back(
        "the cache of keys and values is no longer said to be quantized; its scales stay");
  return plan;
}

void stream(const CheckpointReader& source, const std::string& out, const QuantizePlan& plan,
            const std::string& what, const ConvertOptions& options) {
  const QuantizeCheckpointOptions streaming{.plan = plan.options,
                                            .threads = options.threads,
                                            .max_memory = options.max_memory,
                                            .resume = options.resume,
                                            .measure = false,
                                            .on_progress = options.on_progress};
  const auto words = [&](const std::vector<ActionResult>& results) {
    return step_words(source, plan, what, source_hash(source, plan, results));
  };
  if (out.ends_with(".safetensors")) {
    check(plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
          "' is one file and the checkpoint has ", plan.files.size(), "; give a folder");
    (void)stream_checkpoint(source, plan, streaming, {.folder = nullptr, .file = out});
  } else {
    (void)stream_into_folder(source, plan, streaming,
                             {text(version(), " ", what, options.clamp_non_finite ? " clamp" : "",
                                   " bytes=", plan.bytes_after),
                              source_identity(source)},
                             out, words);
  }
}

// `op` is the call that messages speak of, whatever part of the pipeline they come from.
void run(std::string_view op, const CheckpointReader& source, const std::string& out,
         const QuantizePlan& plan, const std::string& what, const ConvertOptions& options,
         ConvertResult& result) {
  const auto start = std::chrono::steady_clock::now();
  check(!out.empty(), ErrorCode::invalid_argument, op, "got no name for the output");
  const Json finished = options.resume ? finished_words(out) : Json();
  if (finished.is_object()) {
    const bool same_source =
        finished["source_hash"] == source.config()["octavo"]["source_hash"];  // of the first work
    if (last_work(finished) != what || !same_source ||
        CheckpointReader(out).nbytes() != plan.bytes_after)
      fail_finished_otherwise(op, out);
    result.was_complete = true;
    result.notes.push_back(finished_note(out));
  } else {
    try {
      stream(source, out, plan, what, options);
    } catch (const Error& error) {
      fail(error.code(), op, reason_of(error));
    }
  }
  result.bytes_before = plan.bytes_before;
  result.bytes_after = plan.bytes_after;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

ConvertResult convert_checkpoint(const std::string& source_path, const std::string& out,
                                 Dialect target, const ConvertOptions& options) {
  const CheckpointReader source(source_path);
  ConvertResult result;
  QuantizePlan plan = plan_from(kOp, source, target, result, [&](TensorAction& action) {
    action.quantize = true;
    const std::string reason = why_not(target, action.weight);
    if (!reason.empty())
      fail(ErrorCode::unsupported, kOp, "'", shown(action.weight.name, 200),
           "' cannot be said for ", name_of(target), ": ", reason,
           "; choose another target, or dequantize and quantize anew");
    action.outputs = spell(target, action.weight);
  });
  place_actions(source, plan);
  run(kOp, source, out, plan, text("convert to ", name_of(target)), options, result);
  return result;
}

ConvertResult dequantize_checkpoint(const std::string& source_path, const std::string& out,
                                    DType dtype, const ConvertOptions& options) {
  check(dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32, ErrorCode::wrong_type,
        "dequantize", "got ", dtype_name(dtype), ", wanted bfloat16, float16 or float32");
  const CheckpointReader source(source_path);
  ConvertResult result;
  QuantizePlan plan =
      plan_from("dequantize", source, Dialect::octavo, result, [&](TensorAction& action) {
        action.weight.source = dtype;
        action.outputs = {as_values(action.weight)};
      });
  plan.options.clamp_non_finite = options.clamp_non_finite;
  plan.config_dtype = dtype_name(dtype);
  restack(source, plan, result.notes);
  place_actions(source, plan);
  run("dequantize", source, out, plan, text("dequantize to ", dtype_name(dtype)), options, result);
  return result;
}

}  // namespace octavo
