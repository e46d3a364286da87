// A plan as JSON: what --dry-run --json prints, and Python's dry_run returns.
#include <filesystem>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {
std::string json_of(const CheckpointReader& source, const QuantizePlan& plan) {
  Json tensors = Json::array();
  for (const TensorAction& action : plan.actions) {
    const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
    Json shape = Json::array();
    if (action.quantize)
      for (int i = 0; i < action.weight.shape.rank(); ++i) shape.push(action.weight.shape[i]);
    else
      for (const std::uint64_t extent : entry.shape) shape.push(static_cast<std::int64_t>(extent));
    Json one = Json::object({{"name", name_of(source, action)},
                             {"shape", std::move(shape)},
                             {"source", safetensors::stored_name(entry.type)},
                             {"quantized", action.quantize}});
    if (action.quantize) one.set("preset", action.preset);
    if (!action.why.empty()) one.set("why", action.why);
    Json outputs = Json::array();
    for (const DialectTensor& output : action.outputs) outputs.push(output.plan.name);
    one.set("outputs", std::move(outputs));
    one.set("bytes_after", static_cast<std::int64_t>(bytes_after(action)));
    one.set("file", plan.files[action.file]);
    if (action.group >= 0) one.set("shares_scales_in_group", action.group);
    tensors.push(std::move(one));
  }
  Json notes = Json::array();
  for (const std::string& note : plan.notes) notes.push(note);
  Json files = Json::array();
  for (const std::string& file : plan.files) files.push(file);
  const std::filesystem::path path(source.path());
  return Json::object(
             {{"title", (path.has_filename() ? path : path.parent_path()).filename().string()},
              {"verb", "plan"},
              {"recipe", plan.options.recipe},
              {"target", name_of(plan.options.target)},
              {"bytes_before", static_cast<std::int64_t>(plan.bytes_before)},
              {"bytes_after", static_cast<std::int64_t>(plan.bytes_after)},
              {"bits_per_weight", plan.bits_per_weight},
              {"files", std::move(files)},
              {"notes", std::move(notes)},
              {"tensors", std::move(tensors)}})
      .dump();
}

}  // namespace octavo
