// Rules on redundant files: ModelOpt's sidecar file hf_quant_config.json, which some servers read
// before config.json and some after it, and the index, by which some loaders find tensors.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/ignore_list_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kSide = "hf_quant_config.json";
constexpr std::string_view kWhichCounts = "; which counts depends on the server";

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

// The JSON types that vLLM's parser of this file requires, whether or not it uses the values.
void check_types(const Json& side, Findings& out) {
  const auto wants = [&](std::string_view key, std::string_view what) {
    out.error({kV, kS, kT}, "",
              text(kSide, " has ", key, " ", shown(side[key].dump(0), 40), "; expected ", what));
  };
  if (!side["quant_algo"].is_null() && !side["quant_algo"].is_string())
    wants("quant_algo", "a name");
  if (!side["kv_cache_quant_algo"].is_null() && !side["kv_cache_quant_algo"].is_string())
    wants("kv_cache_quant_algo", "a name, or null");
  if (!side["exclude_modules"].is_null() && !side["exclude_modules"].is_array())
    wants("exclude_modules", "a list of modules");
  if (!side["group_size"].is_null() && side["group_size"].integer_or(0) < 1)
    wants("group_size", "a number of 1 or more");
}

// group_size of config.json: at the top level, or in the config group where some versions put it.
std::int64_t group_size_of(const Json& words) {
  if (const std::int64_t declared = words["group_size"].integer_or(0); declared > 0)
    return declared;
  for (const auto& [name, group] : words["config_groups"].members())
    if (const std::int64_t declared = group["weights"]["group_size"].integer_or(0); declared > 0)
      return declared;
  return 0;
}

// The kv_cache_quant_algo that corresponds to config.json's kv_cache_scheme; "" where there is
// none.
std::string cache_algorithm(const Json& scheme) {
  if (!scheme.is_object()) return {};
  const std::int64_t bits = scheme["num_bits"].integer_or(0);
  if (scheme["type"].string_or("") == "float" && bits == 8) return "FP8";
  return text(bits, " bits of type '", shown(scheme["type"].string_or(""), 40), "'");
}

// Compares the two ignore lists by the modules they cover: one may have globs where the other has
// names.
void check_lists(const VerifyView& view, const Json& side, Findings& out) {
  const Json& own = view.words["ignore"];
  const Json& other = side["exclude_modules"];
  if (!own.is_array() || !other.is_array()) return;
  const IgnoreList ours(Dialect::modelopt, own), theirs(Dialect::modelopt, other);
  const auto look = [&](const std::string& module) {
    for (const Loader loader : {kV, kS, kT}) {
      const bool skipped = ours.covers(loader, module);
      if (skipped == theirs.covers(loader, module)) continue;
      out.error({loader}, module,
                text(skipped ? "config.json" : kSide, " has it on the list of what is skipped and ",
                     skipped ? kSide : "config.json", " has not", kWhichCounts));
    }
  };
  for (const VerifiedWeight& weight : view.weights) look(weight.found->weight.module);
  for (const std::string& module : view.plain_linears) look(module);
}

}  // namespace

void check_sidecar_file(const VerifyView& view, Findings& out) {
  const Json& file = view.checkpoint.hf_quant_config();
  const Json& side = file["quantization"];
  if (!file.is_null() && !side.is_object()) {
    out.error({kV, kS, kT}, "",
              text(kSide,
                   " has no 'quantization', which says all of it; remove the file, or get "
                   "the one that belongs to the weights"));
    return;
  }
  if (side.is_object() && !view.method.empty() && !view.method.starts_with("modelopt"))
    out.error({kT}, "",
              text(kSide, " is beside a config.json that says '", shown(view.method, 60),
                   "', and it reads the first alone; remove it"));
  if (view.recognized.dialect != Dialect::modelopt || !view.recognized.quantized) return;
  if (!side.is_object()) {
    out.warn(
        {kV, kS, kT}, "",
        text("there is no ", kSide, ", which servers of before 2026 read instead of config.json"));
    return;
  }
  for (const std::string_view key : {"quant_algo", "kv_cache_quant_algo", "exclude_modules"})
    if (!side.has(key)) out.error({kV}, "", text(kSide, " has no '", key, "', which it asks for"));
  const std::string algorithm = upper(side["quant_algo"].string_or(""));
  if (algorithm.find("NVFP4") != std::string::npos && !side.has("group_size"))
    out.error({kV}, "", text(kSide, " has no 'group_size', which it asks for with NVFP4"));
  check_types(side, out);
  if (view.method.empty()) return;  // config.json has nothing to compare with
  if (const std::string other = upper(view.words["quant_algo"].string_or(""));
      !other.empty() && other != algorithm)
    out.error({kV, kS, kT}, "",
              text("config.json says '", shown(other), "' and ", kSide, " '", shown(algorithm), "'",
                   kWhichCounts));
  const std::int64_t group = group_size_of(view.words), other = side["group_size"].integer_or(0);
  if (group > 0 && other > 0 && group != other)
    out.error(
        {kV, kS, kT}, "",
        text("config.json says group_size ", group, " and ", kSide, " ", other, kWhichCounts));
  const std::string cache = cache_algorithm(view.words["kv_cache_scheme"]),
                    other_cache = upper(side["kv_cache_quant_algo"].string_or(""));
  if (cache != other_cache)
    out.error({kV, kS, kT}, "",
              text("config.json has the KV cache as ", cache.empty() ? "it is" : cache,
                   " (kv_cache_scheme) and ", kSide, " as ",
                   other_cache.empty() ? std::string("it is") : shown(other_cache, 40),
                   " (kv_cache_quant_algo)", kWhichCounts));
  check_lists(view, side, out);
}

// Servers, and transformers from version 5 on, load every tensor of the index's files; before that
// transformers loaded only what the index names. This checks a file beside the model's that has
// tensors of the same names, or cannot be read. vLLM and SGLang follow the index where there is
// one; TensorRT-LLM reads all files in any case, except those named consolidated.
static void check_unread_file(const VerifyView& view, const std::string& name, Findings& out) {
  std::string why;
  try {
    const safetensors::FileReader file(view.checkpoint.path() + "/" + name);
    for (const safetensors::TensorEntry& entry : file.header().tensors)
      if (why.empty() && view.checkpoint.find(entry.name) != nullptr)
        why = text("it has '", shown(entry.name, 160),
                   "' as the model's files have, and which of the two is taken is chance");
  } catch (const Error& error) {
    why = reason_of(error);
  }
  if (why.empty()) return;
  const std::string message = "it reads every file of the folder: " + why + "; remove this one";
  if (view.checkpoint.index_name().empty()) out.warn({kV, kS}, name, message);
  if (name.find("consolidated") == std::string::npos) out.warn({kT}, name, message);
}

void check_index(const VerifyView& view, Findings& out) {
  for (const std::string& name : view.checkpoint.unread_files()) check_unread_file(view, name, out);
  for (const std::string& name : view.checkpoint.not_in_index()) {
    const std::string message = text(
        "'", shown(view.checkpoint.index_name(), 80), "' does not name it, and '",
        shown(view.checkpoint.files()[view.checkpoint.at(name).file].path(), 200), "' has it: ");
    out.silent_error(
        {kH}, name,
        message + "versions before 5 go by the index and begin with random numbers instead");
    out.warn({kV, kS, kT}, name, message + "it is loaded all the same; write the index anew");
  }
}

}  // namespace octavo
