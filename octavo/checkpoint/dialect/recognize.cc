// Detects the dialect of a checkpoint and finds its weights.
#include <algorithm>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/quantized_file_internal.h"

namespace octavo {
namespace {

bool any_tensor(const CheckpointReader& checkpoint, std::string_view suffix) {
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                     [&](const StoredTensor& tensor) { return tensor.name().ends_with(suffix); });
}

bool is_comfyui(const CheckpointReader& checkpoint) {
  for (const auto& file : checkpoint.files())
    if (file.header().metadata.contains("_quantization_metadata")) return true;
  return any_tensor(checkpoint, ".comfy_quant") || any_tensor(checkpoint, "scaled_fp8");
}

// By quant_method in config.json; nullopt where it has none.
std::optional<Dialect> by_config(const CheckpointReader& checkpoint) {
  const Json& quant_config = quantization_config(checkpoint.config());
  const std::string_view method = quant_config["quant_method"].string_or("");
  if (method == "octavo") return Dialect::octavo;
  if (method == "compressed-tensors") return Dialect::compressed_tensors;
  if (method == "fp8" || method == "mxfp8") return Dialect::deepseek;
  if (method.starts_with("modelopt")) return Dialect::modelopt;
  check(method.empty(), ErrorCode::unsupported, kDialectOp, "'", shown(checkpoint.path(), 200),
        "' is quantized as '", shown(method),
        "', which octavo does not read; it reads compressed-tensors, fp8, mxfp8, modelopt, "
        "ComfyUI's files and its own");
  if (checkpoint.hf_quant_config()["quantization"].is_object()) return Dialect::modelopt;
  return std::nullopt;
}

// By tensor names, for files without a config.
std::optional<Dialect> by_names(const CheckpointReader& checkpoint) {
  if (is_comfyui(checkpoint)) return Dialect::comfyui;
  if (any_tensor(checkpoint, "_scale_inv")) return Dialect::deepseek;
  if (any_tensor(checkpoint, ".weight_packed")) return Dialect::compressed_tensors;
  if (any_tensor(checkpoint, ".weight_scale_2")) return Dialect::modelopt;
  if (any_tensor(checkpoint, ".weight_scale")) return Dialect::compressed_tensors;
  return std::nullopt;
}

std::optional<Dialect> dialect_of(const CheckpointReader& checkpoint) {
  for (const auto& file : checkpoint.files())
    if (describes_itself(file)) return Dialect::octavo;
  if (const auto named = by_config(checkpoint)) {
    check(*named != Dialect::octavo, ErrorCode::invalid_argument, kDialectOp, "'",
          shown(checkpoint.path(), 200),
          "' has octavo's name in config.json, but no file's metadata say what is quantized");
    return named;
  }
  return by_names(checkpoint);
}

}  // namespace

std::string pre_quant_scale_problem(const CheckpointReader& checkpoint) {
  const std::string* first = nullptr;
  std::int64_t count = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (!tensor.name().ends_with(".pre_quant_scale")) continue;
    if (count++ == 0) first = &tensor.name();
  }
  if (first == nullptr) return "";
  return text("it has '", shown(*first, 160), "'",
              count > 1 ? text(" and ", count - 1, " more of its kind") : std::string(),
              ": weights were divided by what activations are multiplied by (AWQ), which octavo "
              "does not undo");
}

Recognized recognize(const CheckpointReader& checkpoint) {
  return recognize_all(checkpoint, nullptr);
}

Recognized recognize_all(const CheckpointReader& checkpoint, Misfits* misfits) {
  Recognized out;
  std::set<std::string_view> taken;
  if (const auto dialect = dialect_of(checkpoint)) {
    out.dialect = *dialect;
    out.weights = table_of(*dialect).find(checkpoint, misfits);
    out.quantized = !out.weights.empty();
    // verify reports it by a rule of its own and checks the rest.
    if (out.quantized && misfits == nullptr)
      if (const std::string reason = pre_quant_scale_problem(checkpoint); !reason.empty())
        fail(ErrorCode::unsupported, kDialectOp, "'", shown(checkpoint.path(), 200), "': ", reason);
    if (*dialect != Dialect::octavo) {
      const DType source = source_type(checkpoint);
      for (FoundWeight& found : out.weights) found.weight.source = source;
    }
  }
  for (const FoundWeight& found : out.weights)
    for (const DialectTensor& tensor : found.tensors) taken.insert(tensor.plan.name);
  for (const StoredTensor& tensor : checkpoint.tensors())
    if (!taken.contains(tensor.name())) out.plain.push_back(tensor.name());
  return out;
}

}  // namespace octavo
