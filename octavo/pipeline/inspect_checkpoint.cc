#include "octavo/pipeline/inspect_checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/plan/provenance_internal.h"

namespace octavo {
namespace {

// Describes the quantization of a weight; omits the scale rule where it is not recorded.
std::string type_of(const Scaling& scaling, bool rule_is_known) {
  std::string out = describe(scaling);
  if (rule_is_known || !is_power_of_two_rule(scaling.scale.rule)) return out;
  const std::string format = text("scale ", name_of(scaling.scale.format)),
                    rule = text(" ", name_of(scaling.scale.rule));
  const std::size_t at = out.find(format + rule);
  return at == std::string::npos ? out : out.erase(at + format.size(), rule.size());
}

using FoundByName = std::map<std::string_view, const FoundWeight*>;

void fill_statistics(const CheckpointReader& checkpoint, Dialect dialect, const FoundByName& found,
                     std::vector<InspectedTensor>& tensors) {
  const std::size_t parts = std::min<std::size_t>(tensors.size(), 64);
  parallel_for(static_cast<int>(parts), 0, [&](int part) {
    for (auto i = static_cast<std::size_t>(part); i < tensors.size(); i += parts) {
      InspectedTensor& tensor = tensors[i];
      if (const auto weight = found.find(tensor.name); weight != found.end())
        tensor.statistics = statistics_of(checkpoint, dialect, *weight->second);
      else
        tensor.statistics = statistics_of(checkpoint, checkpoint.at(tensor.name));
    }
  });
}

InspectedTensor inspected(const CheckpointReader& checkpoint, const FoundWeight& found,
                          bool rule_is_known) {
  const auto sizes = found.weight.shape.sizes();
  InspectedTensor out{.name = found.weight.name,
                      .shape = {sizes.begin(), sizes.end()},
                      .type = type_of(found.weight.scaling, rule_is_known),
                      .quantized = true};
  for (const DialectTensor& part : found.tensors) {
    out.stored_as.push_back(part.plan.name);
    if (const StoredTensor* stored = checkpoint.find(part.plan.name); stored != nullptr)
      out.bytes += stored->nbytes();
  }
  return out;
}

InspectedTensor inspected(const CheckpointReader& checkpoint, const StoredTensor& stored) {
  InspectedTensor out{.name = stored.name(),
                      .shape = {stored.entry->shape.begin(), stored.entry->shape.end()},
                      .type = std::string(checkpoint.type_in_file(stored)),
                      .bytes = checkpoint.bytes_in_file(stored),
                      .quantized = checkpoint.is_in_blocks(stored)};
  out.stored_as = {out.name};
  return out;
}

Json list_of(const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const std::string& name : names) out.push(name);
  return out;
}

}  // namespace

Inspection inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  const CheckpointReader checkpoint(path);
  Inspection out{.path = path,
                 .files = static_cast<std::int64_t>(checkpoint.files().size()),
                 .stored_tensors = static_cast<std::int64_t>(checkpoint.tensors().size()),
                 .bytes = checkpoint.nbytes(),
                 .tensors = {}};
  Recognized recognized;
  try {
    recognized = recognize(checkpoint);
  } catch (const Error& error) {
    out.problem = reason_of(error);
  }
  if (recognized.quantized) out.dialect = recognized.dialect;
  out.weights = static_cast<std::int64_t>(recognized.weights.size());
  const std::vector<bool> restored = restore_scalings(checkpoint, recognized);
  std::set<std::string_view> parts;
  FoundByName by_name;
  for (std::size_t i = 0; i < recognized.weights.size(); ++i) {
    const FoundWeight& found = recognized.weights[i];
    by_name[found.weight.name] = &found;
    out.tensors.push_back(inspected(checkpoint, found, restored[i]));
    for (const DialectTensor& part : found.tensors) parts.insert(part.plan.name);
  }
  for (const StoredTensor& stored : checkpoint.tensors())
    if (!parts.contains(stored.name())) out.tensors.push_back(inspected(checkpoint, stored));
  if (checkpoint.is_gguf()) {
    out.weights = std::count_if(out.tensors.begin(), out.tensors.end(),
                                [](const InspectedTensor& tensor) { return tensor.quantized; });
    if (out.weights > 0) out.dialect = Dialect::gguf;
  }
  std::stable_sort(out.tensors.begin(), out.tensors.end(),
                   [](const InspectedTensor& a, const InspectedTensor& b) {
                     return natural_less(a.name, b.name);
                   });
  if (options.statistics) fill_statistics(checkpoint, recognized.dialect, by_name, out.tensors);
  return out;
}

std::string json_of(const Inspection& inspection) {
  Json list = Json::array();
  for (const InspectedTensor& tensor : inspection.tensors) {
    Json shape = Json::array();
    for (const std::int64_t extent : tensor.shape) shape.push(extent);
    Json one = Json::object({{"name", tensor.name},
                             {"shape", std::move(shape)},
                             {"type", tensor.type},
                             {"bytes", static_cast<std::int64_t>(tensor.bytes)},
                             {"quantized", tensor.quantized},
                             {"stored_as", list_of(tensor.stored_as)}});
    if (tensor.statistics) {
      const TensorStatistics& s = *tensor.statistics;
      one.set("statistics", Json::object({{"min", s.least},
                                          {"max", s.most},
                                          {"mean", s.mean()},
                                          {"std", s.deviation()},
                                          {"zero", s.zero},
                                          {"nan", s.nan},
                                          {"inf", s.inf}}));
    }
    list.push(std::move(one));
  }
  return Json::object(
             {{"path", inspection.path},
              {"files", inspection.files},
              {"bytes", static_cast<std::int64_t>(inspection.bytes)},
              {"quantized", inspection.dialect.has_value()},
              {"dialect", inspection.dialect ? Json(name_of(*inspection.dialect)) : Json()},
              {"problem", inspection.problem.empty() ? Json() : Json(inspection.problem)},
              {"tensors", std::move(list)}})
      .dump();
}

}  // namespace octavo
