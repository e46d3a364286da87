// Words about the past, written and read.
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/pipeline/output_folder_internal.h"
#include "octavo/pipeline/provenance_internal.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::uint64_t kMostConfigBytes = 8U << 20;

// One entry for each tensor that becomes several weights.
Json stacks_of(const CheckpointReader& source, const QuantizePlan& plan) {
  Json stacks = Json::array();
  std::size_t last = source.tensors().size();
  for (const TensorAction& action : plan.actions) {
    if (!action.quantize || action.part.matrix < 0 || action.tensor == last) continue;
    last = action.tensor;
    const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
    Json shape = Json::array();
    for (const std::uint64_t size : entry.shape) shape.push(static_cast<std::int64_t>(size));
    stacks.push(Json::object(
        {{"name", entry.name}, {"shape", std::move(shape)}, {"in_out", action.part.transposed}}));
  }
  return stacks;
}

}  // namespace

Json quantize_words(const CheckpointReader& source, const QuantizePlan& plan,
                    const Provenance& said) {
  Json words = Json::object();
  for (const auto& [key, value] : said) words.set(key, value);
  if (Json stacks = stacks_of(source, plan); !stacks.elements().empty())
    words.set("stacks", std::move(stacks));
  if (const Json& before = source.config()["octavo"]; before.is_object()) words.set("from", before);
  return words;
}

Json step_words(const CheckpointReader& source, const QuantizePlan& plan, const std::string& work,
                const std::string& source_hash) {
  Json words = source.config()["octavo"];
  if (!words.is_object()) words = Json::object();
  words.remove("options_hash");  // of another call
  // Stacks are whole again, or were never taken apart, where nothing is quantized any more.
  if (plan.model.weights.empty()) words.remove("stacks");
  Json steps = words["steps"];
  if (!steps.is_array()) steps = Json::array();
  steps.push(Json::object({{"version", version()}, {"work", work}, {"source_hash", source_hash}}));
  words.set("steps", std::move(steps));
  return words;
}

Json finished_words(const std::string& folder) {
  const std::filesystem::path config = std::filesystem::path(folder) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(config, ignored) ||
      std::filesystem::exists(std::filesystem::path(folder) / kProgressFile, ignored))
    return {};
  try {
    Json words =
        parse_json(read_small_file(config.string(), kMostConfigBytes), "config.json")["octavo"];
    return words.is_object() ? words : Json();
  } catch (const Error&) {
    return {};
  }
}

std::string_view last_work(const Json& words) {
  const auto& steps = words["steps"].elements();
  return steps.empty() ? std::string_view() : steps.back()["work"].string_or("");
}

void fail_finished_otherwise(std::string_view op, const std::string& folder) {
  fail(ErrorCode::io, op, "'", shown(folder, 200),
       "' is complete, and was made with other options or by another version of octavo; give the "
       "same ones, a new folder, or remove this one");
}

std::string finished_note(const std::string& folder) {
  return text("'", shown(folder, 200), "' was complete: nothing was done, and nothing measured");
}

}  // namespace octavo
