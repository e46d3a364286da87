// Models of normally distributed weights in every scheme, and the findings of the rules on
// magnitudes, for tests of those rules.
#pragma once

#include <bit>
#include <cmath>
#include <random>

#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo::verify_testing {

using Fill = std::function<void(std::vector<float>& values, const std::string& module)>;

inline const std::vector<Piece> kEight{
    {"model.layers.0.self_attn.q_proj", 128, 128}, {"model.layers.0.self_attn.k_proj", 128, 128},
    {"model.layers.0.self_attn.v_proj", 128, 128}, {"model.layers.0.self_attn.o_proj", 128, 128},
    {"model.layers.0.mlp.gate_proj", 256, 128},    {"model.layers.0.mlp.up_proj", 256, 128},
    {"model.layers.0.mlp.down_proj", 128, 256},    {"model.layers.0.mlp.other_proj", 128, 128}};
inline const std::string kOut = kEight[3].module, kGate = kEight[4].module;

inline std::uint16_t bf16_of(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Normally distributed weights, one amax for tensors that share a scale, and a head and an
// embedding of the same magnitude.
inline Model honest(Dialect dialect, const Scaling& scaling, const Fill& fill = {},
                    const std::vector<Piece>& pieces = kEight, float of_plain = 0.02F) {
  Model model{.dialect = dialect};
  QuantizedModel all{{}, {"lm_head"}};
  std::vector<std::vector<float>> values;
  float shared = 0;
  for (const Piece& piece : pieces) {
    std::mt19937 random(static_cast<unsigned>(values.size()));
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float>& own =
        values.emplace_back(static_cast<std::size_t>(piece.rows * piece.cols));
    for (float& value : own) value = normal(random);
    if (fill) fill(own, piece.module);
    for (const float value : own) shared = std::max(shared, std::fabs(value));
  }
  const bool one = scaling.policy == AmaxPolicy::max &&
                   (scaling.tile == Tile{0, 0} || scaling.scale.format == ScaleFormat::e4m3_f32);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const QuantizedWeight weight{.name = pieces[i].module + ".weight",
                                 .module = pieces[i].module,
                                 .shape = {pieces[i].rows, pieces[i].cols},
                                 .source = DType::bf16,
                                 .scaling = scaling};
    all.weights.push_back(weight);
    const View view = value_view(values[i].data(), DType::f32, weight.shape);
    const QuantizedTensor tensor = quantize(view, scaling, {.given_amax = one ? &shared : nullptr});
    const std::vector<DialectTensor> spelled = dialect_tensors(dialect, weight);
    for (const RowBlockBytes& row_block : pack_row_block(dialect, weight, 0, tensor)) {
      const TensorPlan& plan = spelled[row_block.tensor].plan;
      std::string bytes(reinterpret_cast<const char*>(row_block.bytes.data()),
                        row_block.bytes.size());
      model.tensors[plan.name] = {plan.type, plan.shape, std::move(bytes)};
    }
  }
  std::mt19937 random(99);
  std::normal_distribution<float> normal(0, of_plain);
  for (const char* const name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    Stored& plain = model.tensors[name] = {StoredType::bf16, {64, 128}, std::string(16384, '\0')};
    for (std::size_t at = 0; at < plain.bytes.size(); at += 2) {
      const std::uint16_t bits = bf16_of(normal(random));
      std::memcpy(plain.bytes.data() + at, &bits, 2);
    }
  }
  model.config = Json::object({{"model_type", "test"}, {"architectures", Json::array({"Test"})}});
  model.metadata = metadata_of(dialect, all.weights);
  configure(dialect, all, model.config, model.hf_quant);
  return model;
}

struct Recipe {
  Dialect dialect;
  Scaling scaling;
};
inline std::vector<Recipe> recipes() {
  const Dialect comfyui = Dialect::comfyui, own = Dialect::octavo;
  Scaling powers = preset("fp8-block");
  powers.scale.rule = ScaleRule::rceil;
  std::vector<Recipe> out{{kCt, bf16_scaled("fp8")},
                          {kCt, bf16_scaled("fp8-channel")},
                          {kCt, bf16_scaled("fp8-block")},
                          {kCt, preset("mxfp8")},
                          {kCt, preset("mxfp6")},
                          {kCt, preset("mxfp4")},
                          {kCt, preset("nvfp4")},
                          {kDs, preset("fp8-block")},
                          {kDs, powers},
                          {kDs, preset("mxfp8")},
                          {kMo, preset("fp8")},
                          {kMo, preset("fp8-channel")},
                          {kMo, preset("fp8-block")},
                          {kMo, preset("mxfp8")},
                          {kMo, preset("nvfp4")},
                          {comfyui, preset("fp8")},
                          {comfyui, preset("fp8:e5m2")},
                          {comfyui, preset("nvfp4")},
                          {comfyui, preset("mxfp8")},
                          {own, preset("fp8-channel")},
                          {own, preset("nvfp4")},
                          {own, preset("mxfp6:e3m2fn")}};
  for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::ceil, ScaleRule::even})
    for (const char* const name : {"mxfp8", "mxfp4"}) {
      out.push_back({kCt, preset(name)});
      out.back().scaling.scale.rule = rule;
    }
  for (const char* const name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const bool wide = std::string_view(name).starts_with("fp8");
    for (const bool least : {true, false}) {
      if (!least && std::string_view(name) == "nvfp4") continue;
      out.push_back({kCt, wide ? bf16_scaled(name) : preset(name)});
      out.back().scaling.policy = least ? AmaxPolicy::mse : AmaxPolicy::percentile;
      out.back().scaling.percentile = least ? 100.0 : 90.0;
    }
  }
  return out;
}

// Findings of the rules on magnitudes; other rules have their own tests.
inline std::string size_findings(const Model& model, const VerifyOptions& options = {}) {
  std::string out;
  for (const Finding& one : findings_of(model, options))
    for (const std::string_view rule : {"magnitude", "plausible", "second-level", "zero-scales"})
      if (one.rule == rule)
        out += text(one.severity == Severity::error ? "error " : "warning ", one.rule, " ",
                    one.tensor, ": ", one.message, "\n");
  return out;
}

inline void change_numbers(Stored& tensor, const std::function<float(float)>& change) {
  for (std::size_t at = 0; at + 4 <= tensor.bytes.size(); at += 4) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + at, 4);
    value = change(value);
    std::memcpy(tensor.bytes.data() + at, &value, 4);
  }
}

inline bool is_scale(const std::string& name) {
  return name.ends_with("_scale") || name.ends_with("_scale_inv");
}

}  // namespace octavo::verify_testing
