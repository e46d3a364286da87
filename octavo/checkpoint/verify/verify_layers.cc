// Rules on missing and orphaned parts: tensors that other layers have, scales without a weight, a
// model without a config. Also for unquantized checkpoints.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/layer_name_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

using Set = std::set<std::string>;
using Layers = std::map<std::int64_t, std::map<std::string, Set>>;  // names per parent module

// "self_attn" and "q_proj.weight" of "self_attn.q_proj.weight"; all of a layer's experts are under
// one parent, so that a dense layer is not one that lacks experts.
std::pair<std::string, std::string> parent_and_part(std::string_view rest) {
  const std::size_t last = rest.rfind('.');
  const std::size_t at = last == std::string_view::npos || last == 0 ? std::string_view::npos
                                                                     : rest.rfind('.', last - 1);
  if (at == std::string_view::npos) return {"", std::string(rest)};
  return {std::string(rest.substr(0, at)), std::string(rest.substr(at + 1))};
}

// Two layers, one with a strict subset of the other's tensors: either may be right, so a warning.
void check_two(const std::string& stack, const Layers& layers, Findings& out) {
  const auto& [a, of_a] = *layers.begin();
  const auto& [b, of_b] = *layers.rbegin();
  for (const auto& [parent, parts] : of_a) {
    const auto other = of_b.find(parent);
    if (other == of_b.end() || other->second == parts) continue;
    const bool first_lacks = parts.size() < other->second.size();
    const Set& fewer = first_lacks ? parts : other->second;
    const Set& more = first_lacks ? other->second : parts;
    if (!std::includes(more.begin(), more.end(), fewer.begin(), fewer.end())) continue;
    for (const std::string& part : more)
      if (!fewer.contains(part))
        out.warn({kV, kH, kS, kT},
                 text(stack, first_lacks ? a : b, ".", parent, parent.empty() ? "" : ".", part),
                 "it is missing, and the other layer has it");
  }
}

// Layers with a strict subset of what most layers have: only if they are few, because a model may
// have two kinds of layers.
void check_parts(const std::string& stack, const Layers& layers, Findings& out) {
  std::map<std::string, std::map<Set, std::vector<std::int64_t>>> by_parent;
  for (const auto& [layer, parents] : layers)
    for (const auto& [parent, parts] : parents) by_parent[parent][parts].push_back(layer);
  for (const auto& [parent, kinds] : by_parent) {
    std::size_t all = 0;
    const auto* most = &*kinds.begin();
    for (const auto& kind : kinds) {
      all += kind.second.size();
      if (kind.second.size() > most->second.size()) most = &kind;
    }
    if (most->second.size() * 2 <= all || most->second.size() < 2) continue;
    for (const auto& [parts, where] : kinds) {
      const bool fewer =
          parts.size() < most->first.size() &&
          std::includes(most->first.begin(), most->first.end(), parts.begin(), parts.end());
      if (!fewer || where.size() > std::max<std::size_t>(1, all / 10)) continue;
      for (const std::int64_t layer : where)
        for (const std::string& part : most->first)
          if (!parts.contains(part))
            out.error({kV, kH, kS, kT},
                      text(stack, layer, ".", parent, parent.empty() ? "" : ".", part),
                      text("it is missing, and ", most->second.size(), " other layers have it"));
    }
  }
}

// Layer numbers must be 0, 1, 2 ... without a gap.
void check_numbers(const std::string& stack, const std::set<std::int64_t>& numbers,
                   std::string_view what, Findings& out) {
  const std::int64_t last = *numbers.rbegin();
  const auto count = static_cast<std::int64_t>(numbers.size());
  if (last + 1 == count) return;
  std::int64_t hole = 0;
  while (numbers.contains(hole)) ++hole;
  out.error({kV, kH, kS, kT}, text(stack, hole),
            text("this ", what, " is missing, and there ", plural(count, "is", "are"), " ",
                 counted(count, "other"), " up to ", last));
}

using Stacks = std::map<std::string, Layers>;

// At least num_hidden_layers layers, under the prefix that loaders read. For an unknown model type
// the longest stack counts.
void check_too_few_layers(const VerifyView& view, const Stacks& stacks, std::int64_t wanted,
                          Findings& out) {
  std::int64_t there = 0;
  std::string where, elsewhere;
  if (view.architecture) {
    where = view.architecture->prefix + "layers.";
    if (const auto found = stacks.find(where); found != stacks.end())
      there = static_cast<std::int64_t>(found->second.size());
    const std::optional<std::string> other = model_prefix(view.names);
    if (other && *other != view.architecture->prefix)
      elsewhere = text("; no loader looks for them under '", shown(*other, 80), "layers.'");
    wanted = std::max<std::int64_t>(wanted, 1);
  }
  for (const auto& [stack, layers] : stacks)
    if (!view.architecture && static_cast<std::int64_t>(layers.size()) > there) {
      there = static_cast<std::int64_t>(layers.size());
      where = stack;
    }
  if (where.empty() || wanted <= there) return;
  const bool said = wanted > 1 || view.architecture->layers > 0;
  out.error({kV, kH, kS, kT}, where,
            said ? text("config.json says num_hidden_layers ", wanted, ", and there are ", there,
                        elsewhere)
                 : text("there is no layer here, and config.json says that this is a '",
                        view.architecture->model_type, "'", elsewhere));
}

// More layers than num_hidden_layers: servers fail on unknown names, transformers ignores them.
// Multi-token-prediction layers (num_nextn_predict_layers) follow the others and are counted
// separately.
void check_too_many_layers(const VerifyView& view, const Json& words, const Stacks& stacks,
                           std::int64_t wanted, Findings& out) {
  const std::optional<std::string> prefix =
      view.architecture ? std::optional(view.architecture->prefix) : model_prefix(view.names);
  const auto model = prefix ? stacks.find(*prefix + "layers.")
                            : (stacks.size() == 1 ? stacks.begin() : stacks.end());
  if (model == stacks.end() || wanted <= 0) return;
  std::int64_t behind = 0;
  for (const auto& [key, value] : words.members())
    if (key.find("nextn") != std::string::npos || key.find("mtp") != std::string::npos)
      behind = std::max(behind, std::min<std::int64_t>(value.integer_or(0), 64));
  const auto there = static_cast<std::int64_t>(model->second.size());
  const std::int64_t last = model->second.rbegin()->first;
  if (last < wanted + behind) return;
  out.error({kV, kH, kS, kT}, text(model->first, last),
            text("config.json says num_hidden_layers ", wanted, ", and there are ", there));
}

}  // namespace

void check_config_there(const VerifyView& view, Findings& out) {
  const Json& config = view.checkpoint.config();
  if (config.is_object()) {
    if (config["model_type"].string_or("").empty())
      out.error({kV, kH, kS, kT}, "",
                "config.json has no model_type, which tells the model type; get the "
                "model's own config.json");
    for (const std::string& what : contradictions_of(config))
      out.error({kV, kH, kS, kT}, "", text("config.json says ", what));
    if (const std::string_view code = foreign_architecture(config); !code.empty())
      out.error({kV, kS, kT}, "",
                text("config.json says architectures '", shown(code, 80),
                     "', by which it chooses the model's code, and that is none of a '",
                     config["model_type"].string_or(""), "'"));
    const auto& names = config["architectures"].elements();
    if (names.empty() || names.front().string_or("").empty())
      out.error({kV, kS, kT}, "",
                "config.json has no architectures, by which it chooses the model's code; get the "
                "model's own config.json");
    return;
  }
  out.error({kV, kH, kS, kT}, "",
            view.checkpoint.is_folder()
                ? "the folder has no config.json, without which no loader knows the model"
                : "a file alone has no config.json, without which no loader knows the model; give "
                  "the folder");
}

void check_weights_there(const VerifyView& view, Findings& out) {
  const auto& tensors = view.checkpoint.tensors();
  const bool any = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.entry->shape.size() >= 2 && tensor.nbytes() > 0;
  });
  if (!any) out.error({kV, kH, kS, kT}, "", "it has no weights: no tensor is a matrix");
}

void check_layers(const VerifyView& view, Findings& out) {
  Stacks stacks;
  std::map<std::string, std::set<std::int64_t>> experts;
  for (const std::string& name : view.names) {
    const auto at = in_layer(name);
    if (!at) continue;
    Layers& layers = stacks[std::string(at->stack)];
    const auto [parent, part] = parent_and_part(at->rest);
    layers[at->layer][parent].insert(part);
    constexpr std::string_view kExperts = "experts.";
    const std::size_t e =
        name.find(kExperts, static_cast<std::size_t>(at->rest.data() - name.data()));
    if (e == std::string::npos) continue;
    const std::size_t digits = e + kExperts.size();
    const std::size_t end = std::min(name.find_first_not_of("0123456789", digits), name.size());
    if (end > digits && end - digits < 10 && end < name.size() && name[end] == '.')
      experts[name.substr(0, digits)].insert(std::stoll(name.substr(digits, end - digits)));
  }
  const Json& config = view.checkpoint.config();
  const Json& words =
      config["text_config"]["num_hidden_layers"].is_number() ? config["text_config"] : config;
  const std::int64_t wanted = words["num_hidden_layers"].integer_or(0);
  for (const auto& [stack, layers] : stacks) {
    std::set<std::int64_t> numbers;
    for (const auto& [layer, parents] : layers) numbers.insert(layer);
    if (numbers.size() > 1) check_numbers(stack, numbers, "layer", out);
    // Where the architecture is known, the rule `architecture` is more precise.
    if (!view.architecture && layers.size() == 2) check_two(stack, layers, out);
    if (!view.architecture) check_parts(stack, layers, out);
  }
  std::int64_t of_layer = 0;
  for (const std::string_view key : {"n_routed_experts", "num_experts", "num_local_experts"})
    of_layer = std::max(of_layer, words[key].integer_or(0));
  for (const auto& [stack, numbers] : experts) {
    check_numbers(stack, numbers, "expert", out);
    const auto there = static_cast<std::int64_t>(numbers.size());
    if (there == *numbers.rbegin() + 1 && of_layer > 0 && there != of_layer)
      out.error({kV, kH, kS, kT}, text(stack, there),
                text("config.json says ", counted(of_layer, "expert"), ", and there ",
                     plural(there, "is", "are"), " ", there));
  }
  check_too_few_layers(view, stacks, wanted, out);
  check_too_many_layers(view, words, stacks, wanted, out);
}

void check_orphans(const VerifyView& view, Findings& out) {
  constexpr std::array<std::string_view, 8> kScales{
      ".weight_scale",        ".weight_scale_inv", ".weight_scale_2", ".weight_packed",
      ".weight_global_scale", "_proj_scale_inv",   ".scale_weight",   ".comfy_quant"};
  for (const std::string& name : view.recognized.plain)
    for (const std::string_view suffix : kScales) {
      if (!name.ends_with(suffix) || view.misfits.contains(name.substr(0, name.rfind('.'))))
        continue;
      constexpr std::string_view kMessage = "it belongs to no quantized weight of the checkpoint";
      out.error({kV, kS, kT}, name, std::string(kMessage));
      out.warn({kH}, name, std::string(kMessage));
      break;
    }
}

}  // namespace octavo
