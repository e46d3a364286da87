#include "octavo/checkpoint/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::gguf {
namespace {

constexpr std::array<Architecture, 3> kArchitectures{{{"llama", "LlamaForCausalLM", true},
                                                      {"qwen2", "Qwen2ForCausalLM", false},
                                                      {"qwen3", "Qwen3ForCausalLM", false}}};

using Pair = std::pair<std::string_view, std::string_view>;  // of the file, of the model

constexpr std::array<Pair, 3> kModules{
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<Pair, 11> kModulesOfLayer{{{"attn_norm", "input_layernorm"},
                                                {"attn_q", "self_attn.q_proj"},
                                                {"attn_k", "self_attn.k_proj"},
                                                {"attn_v", "self_attn.v_proj"},
                                                {"attn_output", "self_attn.o_proj"},
                                                {"attn_q_norm", "self_attn.q_norm"},
                                                {"attn_k_norm", "self_attn.k_norm"},
                                                {"ffn_norm", "post_attention_layernorm"},
                                                {"ffn_gate", "mlp.gate_proj"},
                                                {"ffn_up", "mlp.up_proj"},
                                                {"ffn_down", "mlp.down_proj"}}};
constexpr std::string_view kBlock = "blk.", kLayer = "model.layers.";

// The other name of a module, in whichever column it is.
template <std::size_t kCount>
std::string_view other(const std::array<Pair, kCount>& pairs, std::string_view module,
                       bool to_model) {
  for (const auto& [in_file, in_model] : pairs)
    if (module == (to_model ? in_file : in_model)) return to_model ? in_model : in_file;
  return {};
}

std::string renamed(std::string_view name, bool to_model) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return "";
  const std::string_view module = name.substr(0, dot);
  if (const std::string_view found = other(kModules, module, to_model); !found.empty())
    return text(found, suffix);
  const std::string_view from = to_model ? kBlock : kLayer, to = to_model ? kLayer : kBlock;
  if (!module.starts_with(from)) return "";
  const std::string_view rest = module.substr(from.size());
  const std::size_t digits = rest.find('.');
  const bool numbered =
      digits != std::string_view::npos && digits > 0 && digits < 7 &&
      std::all_of(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(digits),
                  [](char c) { return c >= '0' && c <= '9'; });
  if (!numbered) return "";
  const std::string_view found = other(kModulesOfLayer, rest.substr(digits + 1), to_model);
  return found.empty() ? "" : text(to, rest.substr(0, digits + 1), found, suffix);
}

}  // namespace

std::string model_name(std::string_view gguf_name) { return renamed(gguf_name, true); }
std::string gguf_name(std::string_view model_name) { return renamed(model_name, false); }

std::string_view architecture_of(const Header& header) {
  const Value* const value = find_value(header, "general.architecture");
  return value == nullptr ? std::string_view() : value->string().value_or("");
}

std::string known_architectures() {
  std::string out;
  for (const Architecture& one : kArchitectures) out += text(out.empty() ? "" : ", ", one.name);
  return out;
}

const Architecture* find_architecture(std::string_view name) {
  const auto at = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                               [&](const Architecture& one) { return one.name == name; });
  return at == kArchitectures.end() ? nullptr : &*at;
}

const Value* find_value(const Header& header, std::string_view key) {
  const auto at = header.metadata.find(key);
  return at == header.metadata.end() ? nullptr : &at->second;
}

std::optional<std::int64_t> model_integer(const Header& header, std::string_view key) {
  const Value* const value = find_value(header, text(architecture_of(header), ".", key));
  return value == nullptr ? std::nullopt : value->integer();
}

std::optional<double> model_number(const Header& header, std::string_view key) {
  const Value* const value = find_value(header, text(architecture_of(header), ".", key));
  return value == nullptr ? std::nullopt : value->number();
}

Family family_of(const Header& header) {
  Family family{.architecture = find_architecture(architecture_of(header))};
  family.heads = model_integer(header, "attention.head_count").value_or(0);
  family.kv_heads = model_integer(header, "attention.head_count_kv").value_or(family.heads);
  if (family.heads <= 0 || family.kv_heads <= 0 ||
      model_integer(header, "expert_count").value_or(0) > 0)
    family.architecture = nullptr;
  return family;
}

std::int64_t Family::rope_heads(const TensorInfo& tensor) const {
  if (!known() || !architecture->rope_interleaved) return 0;
  const std::string name = model_name(tensor.name);
  const bool q = name.find(".self_attn.q_proj.") != std::string::npos;
  const bool k = name.find(".self_attn.k_proj.") != std::string::npos;
  if (!q && !k) return 0;
  const std::int64_t count = q ? heads : kv_heads;
  const auto rows = tensor.shape.empty() ? 0 : static_cast<std::int64_t>(tensor.shape.front());
  check(tensor.shape.size() <= 2 && rows > 0 && count <= rows / 2 && rows % (2 * count) == 0,
        ErrorCode::invalid_argument, kOp, "tensor '", shown(tensor.name, 120), "' has ", rows,
        " rows for ", count, " heads; expected a multiple of twice that");
  return count;
}

}  // namespace octavo::gguf
