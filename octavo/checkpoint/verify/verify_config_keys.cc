// Rule on the keys of quantization_config besides the scheme: a loader that trusts a wrong one
// misreads the codes, or finds no kernel for what is declared.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// The `format` names of compressed-tensors for the code layout of a scheme. Unpacked codes have two
// names.
std::vector<std::string_view> formats_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::mxfp8:
      return {"mxfp8-quantized"};
    case Scheme::mxfp6:
      return {"mxfp6-pack-quantized"};
    case Scheme::mxfp4:
      return {"mxfp4-pack-quantized"};
    case Scheme::nvfp4:
      return {"nvfp4-pack-quantized"};
    case Scheme::int8_channel:
      return {"int-quantized", "naive-quantized"};
    case Scheme::int4_group:
      return {"pack-quantized"};
    default:
      return {"float-quantized", "naive-quantized"};
  }
}

bool is_one_of(std::string_view word, const std::vector<std::string_view>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::set<Scheme> schemes_in(const VerifyView& view) {
  std::set<Scheme> schemes;
  for (const VerifiedWeight& weight : view.weights)
    if (weight.scheme) schemes.insert(*weight.scheme);
  return schemes;
}

// The number of the model's schemes with this format.
std::size_t going_by(std::string_view format, const std::set<Scheme>& schemes) {
  return static_cast<std::size_t>(std::count_if(schemes.begin(), schemes.end(), [&](Scheme one) {
    return is_one_of(format, formats_of(one));
  }));
}

void check_activations_say(const std::string& name, const Json& group, Findings& out) {
  const Json& input = group["input_activations"];
  if (!input.is_object()) return;
  const std::int64_t bits = input["num_bits"].integer_or(0),
                     wanted = group["weights"]["num_bits"].integer_or(0);
  const std::string_view type = input["type"].string_or("");
  // Codes of both operands go into one product: floats with floats, integers with integers.
  const std::string_view of_weights = group["weights"]["type"].string_or("float");
  if (type != of_weights || (bits != wanted && bits != 8))
    out.error({kV, kH, kS, kT}, name,
              text("its input_activations are ", bits, " bits of type '", shown(type, 40),
                   "', and there is no code for that beside weights of ", wanted, " bits"));
}

void check_compressed_tensors(const VerifyView& view, Findings& out) {
  const std::set<Scheme> schemes = schemes_in(view);
  const Json& words = view.words;
  const std::string_view format = words["format"].string_or("");
  const bool mixed = schemes.size() > 1;
  if (going_by(format, schemes) < schemes.size() && !(mixed && format == "mixed-precision"))
    out.error({kV, kH, kS, kT}, "",
              text("config.json says format '", shown(format, 60), "', and the weights are ",
                   mixed ? std::string("'mixed-precision'")
                         : text("'", formats_of(*schemes.begin()).front(), "'")));
  // llm-compressor itself wrote "frozen" for some time, and servers do not check it.
  if (const std::string_view status = words["quantization_status"].string_or("compressed");
      status != "compressed")
    out.warn({kH}, "",
             text("config.json says quantization_status '", shown(status, 40),
                  "'; expected 'compressed': older versions do not decode such weights when they "
                  "are asked to"));
  for (const auto& [name, group] : words["config_groups"].members()) {
    const Json& weights = group["weights"];
    if (!weights.is_object()) continue;
    if (const std::string_view own = group["format"].string_or("");
        !own.empty() && !schemes.empty() && going_by(own, schemes) == 0)
      out.error({kV, kH, kS, kT}, name,
                text("it says format '", shown(own, 60), "', which none of the weights has"));
    const Json& dynamic = weights["dynamic"];
    if (dynamic.boolean_or(false) || dynamic.is_string())
      out.error({kV, kH, kS, kT}, name, "its weights are declared dynamic, and they have scales");
    if (!weights["symmetric"].boolean_or(true))
      out.error({kV, kH, kS, kT}, name,
                "its weights are declared asymmetric, and there is no zero point");
    if (!weights["actorder"].is_null())
      out.error({kV, kH, kS, kT}, name,
                "its weights are declared reordered (actorder), which floating-"
                "point weights do not support");
    check_activations_say(name, group, out);
  }
}

// transformers decodes these to bfloat16, and computes with nothing else beside them.
void check_dtype(const VerifyView& view, Findings& out) {
  const std::string_view dtype = declared_dtype(view.checkpoint.config());
  if (dtype.empty() || dtype == "bfloat16") return;
  for (const VerifiedWeight& weight : view.weights)
    if (weight.scheme && !has_float_scales(*weight.scheme)) {
      out.error({kH}, "",
                text("config.json says dtype '", shown(dtype, 40), "', and it decodes ",
                     name_of(*weight.scheme),
                     " to bfloat16: it loads, and stops in the first product of both; write "
                     "bfloat16 there"));
      return;
    }
}

void check_fp8(const VerifyView& view, Findings& out) {
  const std::string_view fmt = view.words["fmt"].string_or("e4m3");
  if (fmt != "e4m3" && fmt != "float8_e4m3fn" && fmt != "e4m3fn")
    out.error({kV, kH, kS, kT}, "",
              text("config.json says fmt '", shown(fmt, 40), "', and codes are F8_E4M3"));
  const Json& scale = view.words["scale_fmt"];
  if (!scale.is_null() && scale.string_or("") != "ue8m0" && scale.string_or("") != "float")
    out.error({kV, kH, kS, kT}, "",
              text("config.json says scale_fmt ", shown(scale.dump(0), 40),
                   "; expected 'ue8m0', or none"));
}

// The model-wide bit width of config.json, where it has one.
void check_bits(const VerifyView& view, Findings& out) {
  for (const std::string_view key : {"bits", "num_bits", "w_bit"}) {
    const Json& said = view.words[key];
    if (!said.is_number()) continue;
    const bool lies =
        std::none_of(view.weights.begin(), view.weights.end(), [&](const VerifiedWeight& weight) {
          return weight.found->weight.scaling.format.bits() == said.integer_or(0);
        });
    if (lies && !view.weights.empty())
      out.error({kV, kH, kS, kT}, "",
                text("config.json says ", key, " ", shown(said.dump(0), 20), ", and codes have ",
                     view.weights.front().found->weight.scaling.format.bits()));
  }
}

}  // namespace

void check_config_keys(const VerifyView& view, Findings& out) {
  if (view.method.empty()) return;
  if (view.recognized.dialect == Dialect::compressed_tensors) {
    check_compressed_tensors(view, out);
    check_dtype(view, out);
  }
  if (view.recognized.dialect == Dialect::deepseek) check_fp8(view, out);
  if (view.recognized.dialect != Dialect::octavo) check_bits(view, out);
}

}  // namespace octavo
