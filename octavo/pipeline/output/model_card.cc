// What a card says: recipe, errors, and how to load the folder.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/checkpoint/verify/verify_planned_internal.h"
#include "octavo/pipeline/output/model_card_internal.h"

namespace octavo {
namespace {

bool is_hub_name(std::string_view name) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    c == '-' || c == '_' || c == '.';
           });
  };
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && is_part(name.substr(0, slash)) &&
         is_part(name.substr(slash + 1));
}

// What transformers wrote into config.json, where that is a name of the hub; else nothing. Where
// the model lies says nothing: the same model has the same card everywhere.
std::string base_model_of(const CheckpointReader& source) {
  const std::string_view said = source.config()["_name_or_path"].string_or("");
  return is_hub_name(said) ? std::string(said) : std::string();
}

// A name in a cell of a table, whatever is in it.
std::string cell_of(std::string_view name) {
  std::string out = shown(name, 120);
  for (char& c : out)
    if (c == '`' || c == '|' || c == '<' || c == '>') c = '?';
  return text("`", out, "`");
}

// to_chars, because printf writes a comma where the program's locale has one.
std::string number(const Json& value, int digits) {
  if (!value.is_number()) return "-";
  std::array<char, 400> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value.number_or(0),
                                 std::chars_format::fixed, digits);
  return {buffer.data(), end.ptr};
}

std::string error_table(const Json& errors, bool by_data) {
  std::string rows;
  for (const Json& of : errors.elements())
    rows += text("| ", cell_of(of["recipe"].string_or("")), " | ", of["tensors"].integer_or(0),
                 " | ", number(of["bits"], 2), " | ", number(of["sqnr_median"], 2), " | ",
                 number(of["sqnr_normal"], 1), " | ", number(of["sqnr_worst"], 2), " | ",
                 cell_of(of["worst"].string_or("")), " | ", number(of["cosine_lowest"], 6), " |\n");
  if (rows.empty()) return "";
  return text(
      "| recipe | tensors | bits per weight | median SQNR, dB | of normal weights | worst SQNR | "
      "worst tensor | lowest cosine |\n|---|---|---|---|---|---|---|---|\n",
      rows, "\nThis is the error of the weights, and not of the model: ",
      by_data ? "codes were chosen by what layers see on a text, for which weights may err more. "
              : "no data was seen. ",
      "Measure the model on your task before you rely on it.\n\n");
}

// The class of transformers that config.json names, where that is no decoder: a sentence encoder is
// no causal model.
std::string transformers_class(const Json& config) {
  constexpr std::string_view kDecoder = "AutoModelForCausalLM";
  const auto& names = config["architectures"].elements();
  if (names.empty()) return std::string(kDecoder);
  const std::string_view name = names[0].string_or("");
  const bool is_name =
      !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      });
  return std::string(!is_name || name.ends_with("ForCausalLM") ? kDecoder : name);
}

std::string how_to_load(const CheckpointReader& source, const QuantizePlan& plan) {
  if (plan.options.target == Dialect::comfyui)
    return "ComfyUI loads the `.safetensors` file as a diffusion model.\n";
  if (plan.options.target == Dialect::octavo)
    return "`octavo dequantize . -o plain/` makes ordinary weights of it, `octavo convert . -o "
           "other/ --target compressed-tensors` what servers load.\n";
  const std::vector<Finding> findings = verify_planned(source, plan.options.target, plan.model);
  std::string out;
  for (const std::string& loader : verdict_of(planned_loaders(), findings).loads) {
    if (loader == "vllm") out += "- vLLM: `vllm serve .`\n";
    if (loader == "transformers")
      out += text("- transformers: `", transformers_class(source.config()),
                  ".from_pretrained(\".\")`\n");
    if (loader == "sglang") out += "- SGLang: `python -m sglang.launch_server --model-path .`\n";
    if (loader == "trtllm") out += "- TensorRT-LLM: `trtllm-serve .`\n";
  }
  if (out.empty()) return "No loader that octavo knows takes it as it is: `octavo verify .`\n";
  return text(out, "\nBy the rules of `octavo verify`, which runs none of them.\n");
}

void add_once(std::vector<std::string>& to, const std::string& one) {
  if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
}

// Names that the hub's readers search for: the tool, the dialect, formats and widths.
std::vector<std::string> tags_of(const QuantizePlan& plan) {
  std::vector<std::string> out{"octavo"};
  if (plan.options.target != Dialect::octavo)
    add_once(out, std::string(name_of(plan.options.target)));
  for (const TensorAction& action : plan.actions) {
    if (!action.quantize) continue;
    const std::string preset = action.preset.substr(0, action.preset.find(':'));
    add_once(out, preset.substr(0, preset.find('-')));  // fp8 of fp8-block
    add_once(out, text(action.weight.scaling.format.bits(), "-bit"));
  }
  return out;
}

}  // namespace

ModelCard model_card(const CheckpointReader& source, const QuantizePlan& plan,
                     const Json& provenance) {
  ModelCard card{.base_model = base_model_of(source), .tags = tags_of(plan), .body = {}};
  card.body = text("# ", card.base_model.empty() ? "A model" : cell_of(card.base_model), " in ",
                   shown(plan.options.recipe), "\n\nQuantized by octavo ",
                   shown(provenance["version"].string_or("")), ", recipe ",
                   cell_of(plan.options.recipe), ", for ", name_of(plan.options.target),
                   ". `config.json` has all of it under the key "
                   "`octavo`.\n\n## Error\n\n",
                   error_table(provenance["errors"], provenance.has("method")),
                   "## Load\n\nIn this folder:\n\n", how_to_load(source, plan), "\n");
  return card;
}

}  // namespace octavo
