// Which modules are quantized, and which are said to be.
#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

constexpr auto kV = Loader::vllm, kH = Loader::transformers, kS = Loader::sglang,
               kT = Loader::trtllm;

// Patterns are the file's: one that is no expression, or too long for one, matches nothing, and
// none may take forever.
#ifdef __GLIBCXX__
constexpr auto kSyntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex_constants::ECMAScript;
#endif
bool matches_regex(std::string_view pattern, const std::string& module) {
  constexpr std::size_t kMostPattern = 500, kMostName = 500;
  if (pattern.size() > kMostPattern || module.size() > kMostName) return false;
  try {
    const std::regex expression(pattern.begin(), pattern.end(), kSyntax);
    return std::regex_search(module, expression, std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    return false;
  }
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// "a.b" covers "a.b" and "a.b.c".
bool is_prefix(std::string_view path, std::string_view module) {
  return module == path ||
         (module.size() > path.size() && module.starts_with(path) && module[path.size()] == '.');
}

std::string_view without_model(std::string_view module) {
  constexpr std::string_view kModel = "model.";
  return module.starts_with(kModel) ? module.substr(kModel.size()) : module;
}

// Does an entry of the skip list cover a module, in the eyes of a loader?
bool covers(Loader loader, Dialect dialect, std::string_view entry, const std::string& module) {
  if (dialect == Dialect::compressed_tensors) {
    if (entry.starts_with("re:")) return matches_regex(entry.substr(3), module);
    return entry == module;
  }
  if (entry == module) return true;
  if (dialect == Dialect::modelopt)
    return matches_glob(entry, module) || (loader == kS && is_prefix(entry, module));
  switch (loader) {
    case kV:
      return false;
    case kS:
      return is_prefix(without_model(entry), without_model(module));
    case kT:
      return matches_glob(entry, module);
    case kH:
      break;
  }
  // An expression at the beginning of the name, or the name's end: "mlp.gate" skips
  // "mlp.gate_proj".
  return module.ends_with(entry) || matches_regex(entry, module);
}

std::vector<std::string_view> skip_entries(const VerifyView& view) {
  for (const std::string_view key : {"ignore", "ignored_layers", "modules_to_not_convert"}) {
    const Json& list = view.words[key].is_array()
                           ? view.words[key]
                           : view.checkpoint.hf_quant_config()["quantization"]["exclude_modules"];
    if (!list.is_array()) continue;
    std::vector<std::string_view> out;
    for (const Json& entry : list.elements()) out.push_back(entry.string_or(""));
    return out;
  }
  return {};
}

bool is_skipped(const std::vector<std::string_view>& entries, Loader loader, Dialect dialect,
                const std::string& module) {
  return std::any_of(entries.begin(), entries.end(), [&](std::string_view entry) {
    return !entry.empty() && covers(loader, dialect, entry, module);
  });
}

bool has_skip_list(const VerifyView& view) {
  const Dialect dialect = view.recognized.dialect;
  return dialect != Dialect::comfyui && dialect != Dialect::octavo && !view.method.empty();
}

constexpr std::array kAll{kV, kH, kS, kT};

}  // namespace

void check_fused_schemes(const VerifyView& view, Findings& out) {
  struct First {
    std::string kind, module;
  };
  std::map<std::string, First> groups;
  const auto look = [&](const std::string& module, const std::string& kind) {
    const std::string key = fusion_key(module);
    if (key.empty()) return;
    const auto [found, is_first] = groups.insert({key, {kind, module}});
    if (is_first || found->second.kind == kind) return;
    out.error({kV, kS, kT}, module,
              text("it is ", kind, " and '", shown(found->second.module, 160), "' is ",
                   found->second.kind, ", and servers make one matrix of both"));
  };
  for (const VerifiedWeight& weight : view.weights)
    look(weight.found->weight.module, weight.scheme ? std::string(name_of(*weight.scheme))
                                                    : describe(weight.found->weight.scaling));
  for (const std::string& module : view.plain_linears) look(module, "not quantized");
}

void check_special_modules(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    const std::vector<std::uint64_t> shape(of.shape.sizes().begin(), of.shape.sizes().end());
    const TensorRole role = role_of(of.name, shape, view.checkpoint.config());
    if (role.role == Role::embedding || role.role == Role::norm || role.role == Role::position)
      out.error({kV, kH, kS, kT}, of.module,
                text("it is ", role.why, ", which loaders take unquantized: leave it as it is"));
    if (role.role == Role::head && view.recognized.dialect == Dialect::deepseek)
      out.error({kV}, of.module, "it never quantizes the head in this spelling; leave it as it is");
    if (role.role == Role::router)
      out.warn({kV, kS, kT}, of.module,
               "it is a router, which many models' loaders take unquantized");
  }
}

void check_skip_list(const VerifyView& view, Findings& out) {
  if (!has_skip_list(view)) return;
  const Dialect dialect = view.recognized.dialect;
  const std::vector<std::string_view> entries = skip_entries(view);
  const Json& groups = view.words["config_groups"];
  // Groups that name modules quantize no others.
  bool by_class = dialect != Dialect::compressed_tensors;
  for (const auto& [name, group] : groups.members())
    for (const Json& target : group["targets"].elements())
      by_class |= target.string_or("") == "Linear";
  if (!by_class || view.words["quantized_layers"].is_object()) return;
  for (const std::string& module : view.plain_linears) {
    const bool head = module.ends_with("lm_head");
    for (const Loader loader : kAll) {
      if (is_skipped(entries, loader, dialect, module)) continue;
      if (head && loader != kH) continue;  // servers do not quantize it unasked
      out.error({loader}, module,
                "it is not quantized and not on the skip list as this loader reads it, so its "
                "scales are looked for in vain; name it in full");
    }
  }
}

void check_skipped_but_quantized(const VerifyView& view, Findings& out) {
  if (!has_skip_list(view)) return;
  const std::vector<std::string_view> entries = skip_entries(view);
  for (const VerifiedWeight& weight : view.weights)
    for (const Loader loader : kAll)
      if (is_skipped(entries, loader, view.recognized.dialect, weight.found->weight.module))
        out.error({loader}, weight.found->weight.module,
                  "it is quantized and on the skip list, so codes are loaded as if they were "
                  "weights");
}

void check_said_scheme(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (dialect == Dialect::deepseek && view.method == "mxfp8") {
    for (const VerifiedWeight& weight : view.weights)
      if (weight.scheme != Scheme::mxfp8)
        out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                  "config.json says 'mxfp8', and it is something else");
    return;
  }
  if (dialect != Dialect::compressed_tensors) return;
  const auto& groups = view.words["config_groups"].members();
  if (groups.empty()) return;
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    const bool said = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      const Json& words = group.second["weights"];
      const std::string_view strategy = words["strategy"].string_or("");
      if (words["num_bits"].integer_or(0) != of.scaling.format.bits()) return false;
      if (words["type"].string_or("") != "float") return false;
      if (of.scaling.tile == Tile{0, 0}) return strategy == "tensor";
      if (of.scaling.tile == Tile{1, 0}) return strategy == "channel";
      if (of.scaling.tile.rows > 1) return strategy == "block";
      return strategy == (weight.scheme == Scheme::nvfp4 ? "tensor_group" : "group") &&
             words["group_size"].integer_or(0) == of.scaling.tile.cols;
    });
    if (!said)
      out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                text("no group of config.json speaks of ", describe(of.scaling)));
    const bool bytes = of.scaling.scale.format == ScaleFormat::e8m0 && of.scaling.tile.rows == 1;
    const bool says_bytes = std::any_of(groups.begin(), groups.end(), [](const auto& group) {
      return group.second["weights"]["scale_dtype"].string_or("") == "torch.uint8";
    });
    if (said && bytes && !says_bytes)
      out.error({kV, kH, kS, kT}, weight.scales->plan.name,
                "its scales are bytes, and no group of config.json says \"scale_dtype\": "
                "\"torch.uint8\"");
  }
}

}  // namespace octavo
