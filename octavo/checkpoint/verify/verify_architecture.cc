// Checks the tensors against the architecture that config.json describes.
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// Shapes of the unquantized model.
std::map<std::string_view, std::vector<std::int64_t>> shapes_of(const VerifyView& view) {
  std::map<std::string_view, std::vector<std::int64_t>> shapes;
  for (const std::string& name : view.recognized.plain) {
    const auto& shape = view.checkpoint.at(name).entry->shape;
    shapes[name] = {shape.begin(), shape.end()};
  }
  for (const FoundWeight& found : view.recognized.weights) {
    const auto sizes = found.weight.shape.sizes();
    shapes[found.weight.name] = {sizes.begin(), sizes.end()};
  }
  return shapes;
}

bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (wanted[i] > 0 ? shape[i] != wanted[i] : shape[i] == 0) return false;
  return true;
}

std::string wanted_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out += text(i > 0 ? ", " : "", shape[i] > 0 ? std::to_string(shape[i]) : "any");
  return out + "]";
}

// Tensors beside weights: scales (other rules check those, under the names of any dialect) and
// buffers that loaders recompute.
bool is_beside_weights(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view word :
       {"zero_point", "g_idx", "weight_shape", "weight_packed", "comfy_quant", "scaled_fp8"})
    if (last.find(word) != std::string_view::npos) return true;
  for (const std::string_view whole :
       {"q_scale", "k_scale", "v_scale", "kv_scale", "prob_scale", "pre_quant_scale"})
    if (last == whole) return true;
  for (const std::string_view end :
       {"weight_scale", "proj_scale", "scale_inv", "scale_2", "global_scale", "input_scale",
        "output_scale", "activation_scale", "scale_weight", "scale_input", "scales"})
    if (last.ends_with(end)) return true;
  return name.find("rotary_emb.") != std::string_view::npos;
}

// Does the rule apply to this name? Parts beside a language model are unknown, and heads of models
// that are no causal LM have names of their own.
bool is_of(const Architecture& model, std::string_view name) {
  if (name.starts_with(model.prefix + "layers.")) return !model.is_beyond(name);
  return model.generates;
}

}  // namespace

void check_architecture(const VerifyView& view, Findings& out) {
  if (!view.architecture) return;
  const Architecture& model = *view.architecture;
  if (model.prefix.empty() && model.generates)
    out.error({kV, kS, kT}, "layers.",
              text("it looks for the layers of a '", model.model_type,
                   "' with a head under 'model.layers.', and only transformers finds them here"));
  for (const ExpectedTensor& tensor : model.tensors) {
    if (view.names.contains(tensor.name)) continue;
    if (!tensor.instead.empty() &&
        (view.names.contains(tensor.instead) || view.names.contains(tensor.instead + ".weight")))
      continue;
    if (view.misfits.contains(tensor.name.substr(0, tensor.name.rfind('.')))) continue;
    out.error({kV, kH, kS, kT}, tensor.name,
              text("it is missing, and config.json says that this is a '", model.model_type,
                   tensor.layer < 0 ? "', which has it" : "', which has it in this layer"));
  }
}

void check_shapes(const VerifyView& view, Findings& out) {
  if (!view.architecture) return;
  const auto shapes = shapes_of(view);
  for (const ExpectedTensor& tensor : view.architecture->tensors) {
    const auto found = shapes.find(tensor.name);
    if (found == shapes.end() || fits(found->second, tensor.shape)) continue;
    out.error({kV, kH, kS, kT}, tensor.name,
              text("its shape is ", wanted_text(found->second), ", and from config.json follows ",
                   wanted_text(tensor.shape)));
  }
}

// Behaviour of vLLM's AutoWeightsLoader, load_weights of SGLang's models and from_pretrained in
// 2026.
void check_unknown_tensors(const VerifyView& view, Findings& out) {
  if (!view.architecture) return;
  const Architecture& model = *view.architecture;
  std::set<std::string_view> known{"lm_head.weight"};  // a tied one is ignored
  for (const ExpectedTensor& tensor : model.tensors) {
    known.insert(tensor.name);
    if (!tensor.instead.empty()) known.insert(tensor.instead);
  }
  const auto is_known = [&](std::string_view name) {
    constexpr std::string_view kWeight = ".weight";
    if (known.contains(name)) return true;
    return name.ends_with(kWeight) && known.contains(name.substr(0, name.size() - kWeight.size()));
  };
  for (const std::string& name : view.names) {
    if (is_known(name) || !is_of(model, name) || is_beside_weights(name) ||
        view.misfits.contains(name.substr(0, name.rfind('.'))))
      continue;
    const std::string what = text("config.json says that this is a '", model.model_type,
                                  "', which has no such tensor: ");
    out.warn({kV}, name,
             what + (name.ends_with(".bias") ? "it is left out" : "most of its models stop there"));
    out.warn({kH, kS, kT}, name, what + "it is left out");
  }
}

}  // namespace octavo
