// Writes and reads the provenance in config.json.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/provenance_internal.h"
#include "octavo/quant/scaling_text.h"
#include "octavo/version.h"

namespace octavo {
namespace {

// One entry per expert stack that is split.
void add_stacks(const CheckpointReader& source, const QuantizePlan& plan, Json& stacks) {
  std::size_t last = source.tensors().size();
  for (const TensorAction& action : plan.actions) {
    if (!action.quantize || action.part.matrix < 0 || action.tensor == last) continue;
    last = action.tensor;
    const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
    std::vector<std::uint64_t> sizes = entry.shape;
    if (action.found) {
      const auto of_values = action.found->weight.shape.sizes();
      sizes.assign(of_values.begin(), of_values.end());
    }
    Json shape = Json::array();
    for (const std::uint64_t size : sizes) shape.push(static_cast<std::int64_t>(size));
    stacks.push(Json::object(
        {{"name", entry.name}, {"shape", std::move(shape)}, {"in_out", action.part.transposed}}));
  }
}

Json scalings_of(const QuantizedModel& model) {
  std::vector<Scaling> different;
  for (const QuantizedWeight& weight : model.weights)
    if (std::find(different.begin(), different.end(), weight.scaling) == different.end())
      different.push_back(weight.scaling);
  Json lines = Json::array();
  for (const Scaling& scaling : different) lines.push(to_text(scaling));
  return lines;
}

// Do two scalings have the same codes and scales in every dialect?
bool reads_as(const Scaling& a, const Scaling& b) {
  return a.format == b.format && a.tile == b.tile && a.axis == b.axis && a.packed == b.packed &&
         a.scale.format == b.scale.format && a.rowwise == b.rowwise &&
         a.columnwise == b.columnwise && a.hadamard == b.hadamard &&
         a.scale_order == b.scale_order &&
         (a.scale.format == ScaleFormat::e8m0 ||
          is_power_of_two_rule(a.scale.rule) == is_power_of_two_rule(b.scale.rule));
}

}  // namespace

Json quantize_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                         const Provenance& said) {
  Json provenance = Json::object();
  for (const auto& [key, value] : said) provenance.set(key, value);
  if (!plan.model.weights.empty()) provenance.set("scalings", scalings_of(plan.model));
  Json stacks = Json::array();
  add_stacks(source, plan, stacks);
  if (!stacks.elements().empty()) provenance.set("stacks", std::move(stacks));
  if (const Json& before = source.config()["octavo"]; before.is_object())
    provenance.set("from", before);
  return provenance;
}

Json step_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                     const std::string& work, const std::string& source_hash,
                     const std::string& source_sample) {
  Json provenance = source.config()["octavo"];
  if (!provenance.is_object()) provenance = Json::object();
  provenance.remove("options_hash");  // belongs to the other call
  // Without quantized weights stacks are merged again, or were never split.
  Json stacks = plan.model.weights.empty() ? Json() : provenance["stacks"];
  if (!stacks.is_array()) stacks = Json::array();
  add_stacks(source, plan, stacks);
  provenance.remove("stacks");
  if (!stacks.elements().empty()) provenance.set("stacks", std::move(stacks));
  if (!plan.model.weights.empty()) provenance.set("scalings", scalings_of(plan.model));
  Json steps = provenance["steps"];
  if (!steps.is_array()) steps = Json::array();
  steps.push(Json::object({{"version", version()},
                           {"work", work},
                           {"source_hash", source_hash},
                           {"source_sample", source_sample}}));
  provenance.set("steps", std::move(steps));
  return provenance;
}

std::vector<bool> restore_scalings(const CheckpointReader& source, Recognized& recognized) {
  std::vector<bool> known(recognized.weights.size(), recognized.dialect == Dialect::octavo);
  if (recognized.dialect == Dialect::octavo) return known;  // its files record complete scalings
  std::vector<Scaling> said;
  for (const Json& line : source.config()["octavo"]["scalings"].elements()) {
    constexpr std::size_t kMax = 64;
    if (said.size() == kMax) break;
    try {
      said.push_back(parse_scaling(line.string_or("")));
    } catch (const Error&) {  // provenance is untrusted
    }
  }
  for (std::size_t i = 0; i < known.size(); ++i) {
    Scaling& scaling = recognized.weights[i].weight.scaling;
    const auto fits = [&](const Scaling& one) { return reads_as(one, scaling); };
    known[i] = std::count_if(said.begin(), said.end(), fits) == 1;
    if (known[i]) scaling = *std::find_if(said.begin(), said.end(), fits);
  }
  return known;
}

}  // namespace octavo
