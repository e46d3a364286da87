// Roles by the dot-separated components of tensor names.
#include "octavo/checkpoint/module_role.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>

#include "octavo/base/error.h"

namespace octavo {
namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view name) {
  Words words;
  while (true) {
    const std::size_t end = std::min(name.find('.'), name.size());
    words.push_back(name.substr(0, end));
    if (end == name.size()) return words;
    name.remove_prefix(end + 1);
  }
}

bool any_is(const Words& words, std::initializer_list<std::string_view> wanted) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return std::find(wanted.begin(), wanted.end(), word) != wanted.end();
  });
}

// The parts of "input_layernorm1", lower case, without digits: input, layernorm.
std::vector<std::string> pieces_of(std::string_view word) {
  std::vector<std::string> pieces;
  while (true) {
    const std::size_t end = std::min(word.find('_'), word.size());
    std::string piece(word.substr(0, end));
    while (!piece.empty() && piece.back() >= '0' && piece.back() <= '9') piece.pop_back();
    for (char& c : piece) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    pieces.push_back(std::move(piece));
    if (end == word.size()) return pieces;
    word.remove_prefix(end + 1);
  }
}

// Compares whole parts, so that "normal_proj" is no norm and "converter" no convolution.
template <typename Is>
bool any_piece(const Words& words, const Is& is) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    const std::vector<std::string> pieces = pieces_of(word);
    return std::any_of(pieces.begin(), pieces.end(), is);
  });
}

bool is_norm(std::string_view piece) { return piece.ends_with("norm"); }
bool is_conv(std::string_view piece) {
  return piece == "conv" || piece == "convs" || piece == "convolution" ||
         (piece.starts_with("conv") && piece.size() == 6 && piece.ends_with('d'));  // conv1d
}
bool is_position(std::string_view piece) {
  return piece == "position" || piece == "positions" || piece == "positional" || piece == "rotary";
}
bool is_embedding(std::string_view piece) { return piece.starts_with("embed"); }

bool is(std::string_view word, std::initializer_list<std::string_view> wanted) {
  return std::find(wanted.begin(), wanted.end(), word) != wanted.end();
}

bool is_number(std::string_view word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Weights stored as [in, out]: transformers' Conv1D.
bool is_conv1d(const Words& words, const Json& config) {
  return is(config["model_type"].string_or(""),
            {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"}) &&
         is(words.back(), {"c_attn", "c_proj", "c_fc", "q_attn"});
}

bool is_head(const Words& words) {
  const std::string_view last = words.back();
  if (is(last, {"lm_head", "score", "classifier", "qa_outputs", "embed_out", "output_projection",
                "v_head", "summary", "proj_out", "eh_proj"}))
    return true;
  if (words.size() == 1 && is(last, {"output", "head", "logits"})) return true;
  return any_is(words,
                {"lm_head", "cls", "pooler", "mtp", "classifier", "score", "regression_head"}) ||
         last.ends_with("_head");
}

// "....q_proj.lora_A.weight", "....q_proj.lora_A.default.weight",
// "....embed_tokens.lora_embedding_A".
bool is_adapter(const Words& words) {
  return std::any_of(words.begin(), words.end(),
                     [](std::string_view word) { return word.starts_with("lora_"); });
}

// What a Mamba layer computes its recurrence from. x_proj and dt_proj are its alone; the others
// have names that other layers have too.
bool is_state_space(const Words& words) {
  const std::string_view last = words.back();
  if (is(last, {"x_proj", "dt_proj", "A_log"})) return true;
  return any_is(words, {"mixer", "mamba", "ssm", "mamba_mixer"}) &&
         is(last, {"in_proj", "conv1d", "D", "A", "dt_bias"});
}

// What servers fuse into one matrix, in their order; the last part may be ragged for some loaders.
constexpr std::string_view kGateUp = "gate_up", kQkv = "qkv", kQkvA = "qkv_a";
struct Fused {
  std::string_view name, into;
  bool last;
};
constexpr std::array<Fused, 26> kFused{{
    {"q_proj", kQkv, false},
    {"k_proj", kQkv, false},
    {"v_proj", kQkv, true},
    {"query", kQkv, false},
    {"key", kQkv, false},
    {"value", kQkv, true},
    {"wq", kQkv, false},
    {"wk", kQkv, false},
    {"wv", kQkv, true},
    {"q", kQkv, false},
    {"k", kQkv, false},
    {"v", kQkv, true},
    {"to_q", kQkv, false},
    {"to_k", kQkv, false},
    {"to_v", kQkv, true},
    {"query_proj", kQkv, false},
    {"key_proj", kQkv, false},
    {"value_proj", kQkv, true},
    {"gate_proj", kGateUp, false},
    {"up_proj", kGateUp, true},
    {"w1", kGateUp, false},
    {"w3", kGateUp, true},
    {"q_a_proj", kQkvA, false},
    {"kv_a_proj_with_mqa", kQkvA, true},
    {"wq_a", kQkvA, false},
    {"wkv_a_with_mqa", kQkvA, true},
}};

const Fused* find_fused(std::string_view last) {
  const auto at = std::find_if(kFused.begin(), kFused.end(),
                               [&](const Fused& one) { return one.name == last; });
  return at == kFused.end() ? nullptr : &*at;
}
std::string_view fused_name(std::string_view last) {
  const Fused* const found = find_fused(last);
  return found == nullptr ? std::string_view() : found->into;
}

ModelTensorRole left(Role role, std::string_view why) { return {role, std::string(why)}; }

}  // namespace

std::string_view module_of(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

std::string_view holder_of(std::string_view name) {
  const std::string_view module = module_of(name);
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : module.substr(0, dot);
}

ModelTensorRole role_of(std::string_view name, const std::vector<std::uint64_t>& shape,
                        const Json& config) {
  const Words all = split(name), words = split(module_of(name));
  const std::string_view last = words.back();
  const bool is_weight = all.back() == "weight";
  if (all.back() == "bias" || last.ends_with("_bias")) return left(Role::bias, "a bias");
  if (is_adapter(words)) return left(Role::adapter, "of a LoRA adapter");
  if (is_state_space(words)) return left(Role::state_space, "of a state-space layer");
  if (any_piece(words, is_norm) || is(last, {"ln_1", "ln_2", "ln_f"}))
    return left(Role::norm, "a norm");
  if (any_is(words,
             {"visual", "vision_tower", "vision_model", "vision_encoder", "image_encoder",
              "audio_tower", "multi_modal_projector", "mm_projector", "vision_embed_tokens"}))
    return left(Role::vision, "of a vision or audio tower");
  if (shape.size() < 2) return left(Role::other, "not a matrix");
  if (any_piece(words, is_conv) || any_is(words, {"patch_embed", "patch_embedding"}))
    return left(Role::conv, "a convolution");
  if (any_piece(words, is_position) || last == "wpe" ||
      any_is(words, {"pos_embed", "pos_embedding", "relative_attention_bias", "rel_pos"}) ||
      last.starts_with("rel_pos"))
    return left(Role::position, "a table of positions");
  if (any_piece(words, is_embedding) || is(last, {"wte", "shared"}))
    return left(Role::embedding, "an embedding");
  if (is_head(words)) {
    const bool tied =
        last == "lm_head" && (config["tie_word_embeddings"].boolean_or(false) ||
                              config["text_config"]["tie_word_embeddings"].boolean_or(false));
    if (!tied) return left(Role::head, "a head");
    return {
        Role::head, "the head, tied to the embedding",
        "config.json ties it to the embedding (tie_word_embeddings), which loaders take for it"};
  }
  if (is(last, {"gate", "router", "shared_expert_gate", "gate_weight", "expert_gate"}) ||
      any_is(words, {"router"}))
    return left(Role::router, "a router");
  const bool of_experts = std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return word == "experts" || word.ends_with("_experts");
  });
  if (shape.size() == 3 && of_experts) return {Role::expert_stack};
  if (shape.size() > 2) return left(Role::conv, "more than two dimensions");
  if (!is_weight) return left(Role::other, "not called a weight");
  if (is_conv1d(words, config))
    return {Role::other, "stored as [in, out]",
            "it is stored as [in, out], and loaders want tiles along in"};
  return {Role::linear};
}

std::string fusion_key(std::string_view module) {
  Words words = split(module);
  const std::string_view last = words.back();
  std::string_view fused = fused_name(last);
  if (last == "gate_up_proj") fused = kGateUp;
  // Servers load the experts of one layer as one tensor, whatever is fused within them.
  bool expert = false;
  std::string key;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const bool number = i > 0 && words[i - 1] == "experts" && is_number(words[i]);
    expert |= number || words[i] == "experts";
    key += text(words[i] == "experts" || !number ? words[i] : std::string_view("*"), ".");
  }
  if (fused.empty() && expert) fused = last == "w2" ? "down_proj" : last;
  return fused.empty() ? "" : key + std::string(fused);
}

std::string group_key(std::string_view module) {
  const std::string key = fusion_key(module);
  constexpr std::string_view kExperts = "experts.";
  for (std::size_t at = key.find(kExperts); at != std::string::npos;
       at = key.find(kExperts, at + 1))
    if (at == 0 || key[at - 1] == '.') return key.substr(0, at + kExperts.size());
  return key;
}

FusedPlace fused_place(std::string_view module) {
  const std::string_view last = split(module).back();
  const Fused* const found = find_fused(last);
  if (group_key(module).ends_with("experts.")) return FusedPlace::inner;
  if (found == nullptr) return FusedPlace::alone;
  if (!found->last) return FusedPlace::inner;
  return found->into == kQkvA ? FusedPlace::replicated_last : FusedPlace::last;
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    std::size_t end_a = i, end_b = j;
    while (end_a < a.size() && digit(a[end_a])) ++end_a;
    while (end_b < b.size() && digit(b[end_b])) ++end_b;
    std::string_view x = a.substr(i, end_a - i), y = b.substr(j, end_b - j);
    while (x.size() > 1 && x.front() == '0') x.remove_prefix(1);
    while (y.size() > 1 && y.front() == '0') y.remove_prefix(1);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
    i = end_a;
    j = end_b;
  }
  if (i < a.size() || j < b.size()) return i >= a.size();
  return a < b;  // distinguishes "1" and "01"
}

}  // namespace octavo
