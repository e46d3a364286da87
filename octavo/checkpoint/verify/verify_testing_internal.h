// A model that can be modified before it is written, for tests of verify: which findings a
// modification adds.
#pragma once

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo::verify_testing {

using safetensors::StoredType;
using safetensors::TensorPlan;

struct Stored {
  StoredType type;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

// One layer of a model with all files of its folder, to be modified before it is written.
struct Model {
  Dialect dialect;
  std::map<std::string, Stored> tensors{};
  Json config{}, hf_quant{};
  safetensors::Metadata metadata{};

  Json& words() { return const_cast<Json&>(config["quantization_config"]); }
  Json& group(std::string_view name = "group_0") {
    return const_cast<Json&>(words()["config_groups"][name]);
  }
};

struct Piece {
  std::string module;
  std::int64_t rows, cols;
};
inline const std::vector<Piece> kPieces{
    {"model.layers.0.self_attn.q_proj", 256, 256}, {"model.layers.0.self_attn.k_proj", 128, 256},
    {"model.layers.0.self_attn.v_proj", 128, 256}, {"model.layers.0.self_attn.o_proj", 256, 256},
    {"model.layers.0.mlp.gate_proj", 512, 256},    {"model.layers.0.mlp.up_proj", 512, 256},
    {"model.layers.0.mlp.down_proj", 256, 512}};
inline const std::string kQ = kPieces[0].module, kK = kPieces[1].module, kUp = kPieces[5].module;

inline Model make_model(Dialect dialect, const Scaling& scaling,
                        const std::vector<Piece>& pieces = kPieces) {
  Model model{.dialect = dialect};
  QuantizedModel all{{}, {"lm_head", "model.layers.0.mlp.router"}};
  for (const Piece& piece : pieces) {
    // The same values everywhere, so that fused matrices have one scale.
    const TestWeight weight =
        make_weight(dialect, piece.module + ".weight", {piece.rows, piece.cols}, scaling, 1000);
    all.weights.push_back(weight.weight);
    const std::vector<DialectTensor> spelled = dialect_tensors(dialect, weight.weight);
    for (const RowBlockBytes& row_block :
         pack_row_block(dialect, weight.weight, 0, weight.row_blocks[0])) {
      const TensorPlan& plan = spelled[row_block.tensor].plan;
      std::string bytes(row_block.bytes.size(), '\0');
      std::memcpy(bytes.data(), row_block.bytes.data(), bytes.size());
      model.tensors[plan.name] = {plan.type, plan.shape, bytes};
    }
  }
  // One per-tensor scale for all, as shared scales of fused matrices have it.
  for (auto& [name, tensor] : model.tensors) {
    const bool second = name.ends_with("global_scale") || name.ends_with("_scale_2");
    const bool single = scaling.tile == Tile{0, 0} && name.ends_with("_scale");
    if (second || single) {
      const float value = second && name.ends_with("global_scale") ? 26880.0F : 0x1p-10F;
      std::memcpy(tensor.bytes.data(), &value, sizeof value);
    }
  }
  model.tensors["model.norm.weight"] = {StoredType::bf16, {4}, std::string(8, '\0')};
  model.tensors["model.embed_tokens.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.tensors["lm_head.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.tensors["model.layers.0.mlp.router.weight"] = {
      StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.config = Json::object({{"model_type", "test"},
                               {"architectures", Json::array({"TestModel"})},
                               {"torch_dtype", "bfloat16"}});
  model.metadata = metadata_of(dialect, all.weights);
  configure(dialect, all, model.config, model.hf_quant);
  return model;
}

inline std::vector<Finding> findings_of(const Model& model, const VerifyOptions& options = {}) {
  const TemporaryFolder folder;
  std::vector<TensorPlan> plans;
  for (const auto& [name, tensor] : model.tensors)
    plans.push_back({name, tensor.type, tensor.shape});
  safetensors::FileWriter writer(folder.path("model.safetensors"), plans,
                                 {.metadata = model.metadata});
  for (const auto& [name, tensor] : model.tensors)
    writer.write(writer.at(name), 0, std::as_bytes(std::span(tensor.bytes)));
  writer.finish();
  if (!model.config.is_null()) folder.save("config.json", model.config.dump());
  if (!model.hf_quant.is_null()) folder.save("hf_quant_config.json", model.hf_quant.dump());
  const std::vector<Finding> found = verify(CheckpointReader(folder.path()), options);
  std::set<std::string_view> rules;
  const std::vector<VerifyRule> known = verify_rules();
  for (const VerifyRule& rule : known) rules.insert(rule.id);
  for (const Finding& one : found) {
    EXPECT_TRUE(rules.contains(one.rule)) << one.rule;
    EXPECT_FALSE(one.message.empty());
  }
  return found;
}

// "rule:loader" of each finding, once; errors and warnings alike.
inline std::set<std::string> kinds(const std::vector<Finding>& findings) {
  std::set<std::string> out;
  for (const Finding& one : findings) out.insert(one.rule + ":" + one.loader);
  return out;
}

inline std::string joined(const std::set<std::string>& kinds) {
  std::string out;
  for (const std::string& kind : kinds) out += (out.empty() ? "" : " ") + kind;
  return out;
}

inline Scaling bf16_scaled(std::string_view name) {
  Scaling scaling = preset(name);
  scaling.scale.format = ScaleFormat::bf16;
  return scaling;
}

inline std::string verdict(const Model& model, const VerifyOptions& options = {}) {
  return joined(kinds(findings_of(model, options)));
}

inline constexpr Dialect kCt = Dialect::compressed_tensors, kMo = Dialect::modelopt,
                         kDs = Dialect::deepseek;

inline constexpr std::string_view kAll = "sglang transformers trtllm vllm",
                                  kServers = "sglang trtllm vllm";

// Expects that the change adds findings of exactly one rule.
inline void expect_breaks(Dialect dialect, const Scaling& scaling, std::string_view rule,
                          std::string_view loaders, const std::function<void(Model&)>& change,
                          const VerifyOptions& options = {}) {
  SCOPED_TRACE(rule);
  Model model = make_model(dialect, scaling);
  const std::set<std::string> before = kinds(findings_of(model));
  change(model);
  std::set<std::string> added;
  for (const std::string& kind : kinds(findings_of(model, options)))
    if (!before.contains(kind)) added.insert(kind);
  std::set<std::string> wanted;
  for (std::string_view rest = loaders; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    wanted.insert(std::string(rule) + ":" + std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  EXPECT_EQ(joined(added), joined(wanted));
}

// Adds the scales that a quantized KV cache needs.
inline void add_cache_scales(Model& model, std::string_view k = "k_scale",
                             std::string_view v = "v_scale") {
  for (const std::string_view scale : {k, v})
    model.tensors[text("model.layers.0.self_attn.", scale)] = {
        StoredType::f32, {1}, std::string("\0\0\x80\x3f", 4)};
}

inline void rename(Model& model, const std::string& from, const std::string& to) {
  model.tensors[to] = model.tensors.at(from);
  model.tensors.erase(from);
}

template <typename T>
inline void put(Model& model, const std::string& name, std::size_t index, T value) {
  std::memcpy(model.tensors.at(name).bytes.data() + index * sizeof value, &value, sizeof value);
}

}  // namespace octavo::verify_testing
