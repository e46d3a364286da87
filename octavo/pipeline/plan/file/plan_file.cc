// Writes a plan as JSON: the plan file, what --dry-run --json prints, and Python's dry_run returns.
#include "octavo/pipeline/plan/file/plan_file.h"

#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/each_plan_option_internal.h"
#include "octavo/pipeline/plan/file/plan_file_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/version.h"

namespace octavo {
namespace {

Json strings(const std::vector<std::string>& of) {
  Json out = Json::array();
  for (const std::string& one : of) out.push(one);
  return out;
}

Json json_value(const std::string& word) { return word; }
Json json_value(bool flag) { return flag; }
Json json_value(std::uint64_t number) { return number; }
Json json_value(Dialect dialect) { return name_of(dialect); }
Json json_value(StaticScaleSource source) { return name_of(source); }
Json json_value(const std::vector<std::string>& words) { return strings(words); }
Json json_value(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json out = Json::array();
  for (const auto& [first, second] : pairs) out.push(Json::array({first, second}));
  return out;
}

}  // namespace

Json options_json(const QuantizePlanOptions& options) {
  Json out = Json::object();
  each_plan_option(options,
                   [&](const char* name, const auto& value) { out.set(name, json_value(value)); });
  return out;
}

namespace {

// The bytes of a source tensor, as its file has them after the header.
Json place_of(const CheckpointReader& source, const StoredTensor& tensor) {
  const std::filesystem::path file(source.files()[tensor.file].path());
  return Json::object({{"name", tensor.name()},
                       {"file", file.filename().string()},
                       {"begin", tensor.entry->begin},
                       {"end", tensor.entry->end}});
}

Json action_json(const CheckpointReader& source, const QuantizePlan& plan,
                 const TensorAction& action) {
  const StoredTensor& tensor = source.tensors()[action.tensor];
  Json shape = Json::array();
  if (action.quantize)
    for (int i = 0; i < action.weight.shape.rank(); ++i) shape.push(action.weight.shape[i]);
  else
    for (const std::uint64_t extent : tensor.entry->shape)
      shape.push(static_cast<std::int64_t>(extent));
  Json one = Json::object({{"name", name_of(source, action)},
                           {"shape", std::move(shape)},
                           {"source", safetensors::stored_name(tensor.entry->type)},
                           {"quantized", action.quantize}});
  if (action.quantize) one.set("preset", action.preset);
  if (!action.why.empty()) one.set("why", action.why);
  Json from = Json::array();
  if (!action.found) from.push(place_of(source, tensor));
  if (action.found)
    for (const DialectTensor& part : action.found->tensors)
      if (const StoredTensor* const stored = source.find(part.plan.name); stored != nullptr)
        from.push(place_of(source, *stored));
  one.set("from", std::move(from));
  if (action.part.matrix >= 0)
    one.set("part",
            Json::object({{"matrix", action.part.matrix}, {"first_row", action.part.first}}));
  Json outputs = Json::array();
  for (const DialectTensor& output : action.outputs) outputs.push(output.plan.name);
  one.set("outputs", std::move(outputs));
  one.set("bytes_after", static_cast<std::int64_t>(bytes_after(action)));
  one.set("file", plan.files[action.file]);
  if (action.group >= 0) one.set("shares_scales_in_group", action.group);
  return one;
}

}  // namespace

void write_plan_file(const CheckpointReader& source, const QuantizePlan& plan, const PlanOfWork& of,
                     const PutPiece& put) {
  std::string gathered;
  const auto say = [&](std::string_view piece) {
    gathered += piece;
    if (gathered.size() < 1U << 16) return;
    put(gathered);
    gathered.clear();
  };
  std::string_view before = "{\n  ";
  const auto member = [&](std::string_view key, const Json& value) {
    say(before);
    say(text("\"", key, "\": ", value.dump(0)));
    before = ",\n  ";
  };
  const auto list = [&](std::string_view key, std::size_t count, const auto& element) {
    say(text(before, "\"", key, "\": ["));
    for (std::size_t i = 0; i < count; ++i)
      say(text(i > 0 ? ",\n    " : "\n    ", element(i).dump(0)));
    say(count > 0 ? "\n  ]" : "]");
    before = ",\n  ";
  };
  std::error_code ignored;
  // A copy of the model elsewhere has the same plan.
  const std::string model =
      of.model.empty() ? std::filesystem::absolute(source.path(), ignored).string() : of.model;
  const std::filesystem::path path(model);
  const auto name = (path.has_filename() ? path : path.parent_path()).filename().string();
  member("octavo_plan", kPlanFileVersion);
  member("version", version());
  member("work", of.work);
  member("model", model);
  member("source_fingerprint", source_fingerprint(source));
  member("follow_links", of.follow_links);
  Json options = options_json(plan.options);
  // A run of several processes takes no statistics: their reader refuses it.
  if (plan.options.statistics != nullptr)
    options.set("statistics", plan.options.statistics->name());
  member("options", options);
  member("title", name);
  member("verb", "plan");
  member("recipe", plan.options.recipe);
  member("target", name_of(plan.options.target));
  member("bytes_before", static_cast<std::int64_t>(plan.bytes_before));
  member("bytes_after", static_cast<std::int64_t>(plan.bytes_after));
  member("bits_per_weight", plan.bits_per_weight);
  member("files", strings(plan.files));
  member("notes", strings(of.notes != nullptr ? *of.notes : plan.notes));
  const std::vector<ShardWork> shards = shard_work(source, plan);
  list("shards", shards.size(), [&](std::size_t i) {
    return Json::object({{"file", shards[i].file},
                         {"bytes_read", shards[i].bytes_read},
                         {"bytes_amax", shards[i].bytes_amax},
                         {"bytes_shared", shards[i].bytes_shared},
                         {"bytes_written", shards[i].bytes_written}});
  });
  list("tensors", plan.actions.size(),
       [&](std::size_t i) { return action_json(source, plan, plan.actions[i]); });
  say("\n}\n");
  put(gathered);
}

std::string plan_identity(const PlanFile& file, const QuantizePlan& plan) {
  std::uint64_t hash = text_hash(text(version(), " ", file.work, " ", file.source, " ",
                                      options_json(plan.options).dump(0), " ", plan.bytes_after));
  for (const std::string& name : plan.files) hash = text_hash(name, hash);
  return hex_of(hash);
}

std::string json_of(const CheckpointReader& source, const QuantizePlan& plan) {
  std::string out;
  write_plan_file(source, plan, {}, [&](std::string_view piece) { out += piece; });
  return out;
}

}  // namespace octavo
