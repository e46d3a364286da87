// Fuzz target of verify, which reads an untrusted config.json, hf_quant_config.json and index. Here
// they are parsed documents with hostile keys and values in any place; invalid JSON is covered by
// json_fuzz. Input: pairs of bytes, a key and its new value. For any input there are findings or
// one clean error, in little memory.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/verify/verify.h"
#include "octavo/safetensors/file_writer.h"

namespace {

using octavo::Json;
using octavo::safetensors::StoredType;
using octavo::safetensors::TensorPlan;

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

constexpr std::array<std::string_view, 46> kKeys{"quantization_config",
                                                 "quant_method",
                                                 "config_groups",
                                                 "group_0",
                                                 "weights",
                                                 "targets",
                                                 "input_activations",
                                                 "num_bits",
                                                 "type",
                                                 "strategy",
                                                 "group_size",
                                                 "block_structure",
                                                 "ignore",
                                                 "format",
                                                 "dynamic",
                                                 "modules_to_not_convert",
                                                 "weight_block_size",
                                                 "scale_fmt",
                                                 "activation_scheme",
                                                 "quant_algo",
                                                 "kv_cache_scheme",
                                                 "quantized_layers",
                                                 "quantization",
                                                 "exclude_modules",
                                                 "kv_cache_quant_algo",
                                                 "model_type",
                                                 "architectures",
                                                 "text_config",
                                                 "hidden_size",
                                                 "num_hidden_layers",
                                                 "num_attention_heads",
                                                 "num_key_value_heads",
                                                 "head_dim",
                                                 "num_experts",
                                                 "num_experts_per_tok",
                                                 "mlp_only_layers",
                                                 "decoder_sparse_step",
                                                 "moe_intermediate_size",
                                                 "metadata",
                                                 "total_size",
                                                 "transform_config",
                                                 "sparsity_config",
                                                 "output_activations",
                                                 "actorder",
                                                 "auto_map",
                                                 "tie_word_embeddings"};

Json deep() {
  Json out = Json::array();
  for (int i = 0; i < 100; ++i) out = Json::array({std::move(out)});
  return out;
}

const std::vector<Json>& values() {
  static const std::vector<Json> kValues{
      Json(),
      true,
      -1,
      0,
      1,
      3,
      16,
      128,
      std::int64_t{1} << 31,
      std::int64_t{1} << 53,
      std::int64_t{1} << 62,
      1e300,
      0.5,
      "",
      "fp8",
      "mxfp8",
      "modelopt",
      "compressed-tensors",
      "NVFP4",
      "FP8",
      "float",
      "channel",
      "block",
      "llama",
      "qwen3_moe",
      "deepseek_v3",
      "ue8m0",
      std::string(5000, '('),
      Json::array(),
      Json::object(),
      Json::array({"Linear"}),
      Json::array({"LlamaForCausalLM"}),
      Json::array({"re:(a*)*b", "re:[z-a]", "lm_head", 7, Json()}),
      Json::array({128, 128}),
      Json::array({0, -1}),
      Json::array({std::int64_t{1} << 62, std::int64_t{1} << 62}),
      Json::object({{"model.layers.0.mlp.up_proj", Json::object({{"quant_algo", 7}})}}),
      deep(),
      Json::object({{"config_groups", Json::object({{"u", 7}})}}),
      Json::object({{"format", "sparse-24-bitmask"}}),
      Json::array({"re:(", "re:[", "re:*x", "re:x\\", "re:(?!x)", "re:.*"}),
      Json::array({"BertModel"}),
      Json::array({"re:.*up_proj", "re:(", "model.layers.0.mlp.up_proj"})};
  return kValues;
}

class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "octavo-verify-fuzz-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "no folder");
    path_ = pattern;
    const std::vector<TensorPlan> plans{
        {"lm_head.weight", StoredType::bf16, {8, 32}},
        {"model.embed_tokens.weight", StoredType::bf16, {8, 32}},
        {"model.layers.0.mlp.down_proj.weight", StoredType::u8, {8, 16}},
        {"model.layers.0.mlp.down_proj.weight_scale", StoredType::f8_e4m3, {8, 2}},
        {"model.layers.0.mlp.down_proj.weight_scale_2", StoredType::f32, {}},
        {"model.layers.0.mlp.experts.0.up_proj.weight", StoredType::bf16, {8, 32}},
        {"model.layers.0.mlp.gate_proj.weight", StoredType::f8_e4m3, {8, 32}},
        {"model.layers.0.mlp.gate_proj.weight_scale_inv", StoredType::f32, {1, 1}},
        {"model.layers.0.mlp.up_proj.weight", StoredType::f8_e4m3, {8, 32}},
        {"model.layers.0.mlp.up_proj.weight_scale", StoredType::f32, {8, 1}},
        {"model.layers.0.self_attn.q_proj.weight", StoredType::bf16, {8, 32}}};
    octavo::safetensors::FileWriter writer((path_ / kFile).string(), plans,
                                           {.metadata = {{"format", "pt"}}});
    Json names = Json::object();
    for (const TensorPlan& plan : plans) {
      names.set(plan.name, kFile);
      const auto& place = writer.at(plan.name);
      // 0x3C3C... is a small number in every type.
      writer.write(place, 0, std::vector<std::byte>(place.nbytes(), std::byte{0x3C}));
    }
    writer.finish();
    index = Json::object({{"weight_map", std::move(names)}});
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  void save(const char* name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

  Json index;

 private:
  static constexpr const char* kFile = "model-00001-of-00001.safetensors";
  std::filesystem::path path_;
};

void set_at(Json& document, const std::vector<std::string_view>& path, std::size_t depth,
            std::string_view key, const Json& value) {
  if (depth == path.size()) {
    if (document.is_object() || document.is_null()) document.set(key, value);
    return;
  }
  Json inner = document[path[depth]].is_object() ? document[path[depth]] : Json::object();
  set_at(inner, path, depth + 1, key, value);
  if (document.is_object()) document.set(path[depth], std::move(inner));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder kFolder;
  constexpr std::uint8_t kNextDocument = 0xFF, kInto = 0xFF;
  std::array<Json, 3> documents{
      Json::object({{"model_type", "llama"}, {"architectures", Json::array({"LlamaForCausalLM"})}}),
      Json::object(), kFolder.index};
  std::size_t document = 0;
  std::vector<std::string_view> path;
  for (std::size_t i = 0; i + 1 < size && i < 128; i += 2) {
    if (data[i] == kNextDocument) {
      document = (document + 1) % documents.size();
      path.clear();
      continue;
    }
    // Meaningless bytes are no input: that keeps the search space small.
    if (data[i] >= kKeys.size() || (data[i + 1] != kInto && data[i + 1] >= values().size()))
      return 0;
    const std::string_view key = kKeys[data[i]];
    if (data[i + 1] == kInto) {
      if (path.size() < 6) path.push_back(key);
    } else {
      set_at(documents[document], path, 0, key, values()[data[i + 1]]);
    }
  }
  kFolder.save("config.json", documents[0].dump());
  kFolder.save("hf_quant_config.json", documents[1].dump());
  kFolder.save("model.safetensors.index.json", documents[2].dump());
  try {
    const octavo::CheckpointReader checkpoint(kFolder.path());
    for (const octavo::Finding& one : octavo::verify(checkpoint)) {
      require(!one.message.empty(), "a finding says nothing");
      require(one.message.size() < 2000, "a finding grows with the input");
    }
    require(octavo::verify_scope(checkpoint).tensors == 11, "a tensor is lost");
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(message.size() < 1000, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
