// Rules on the checkpoint as a whole: quantized or not, as config.json declares, against the
// tensors.
#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/verify/ignore_list_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/format/decode.h"

namespace octavo {
namespace {

using safetensors::StoredType;

// Does the config declare this matrix as quantized? KV cache quantization alone quantizes no
// matrix.
bool is_meant(const VerifyView& view, const std::string& module) {
  const Json& side = view.checkpoint.hf_quant_config()["quantization"];
  switch (view.recognized.dialect) {
    case Dialect::compressed_tensors:
      return view.groups.of(module)["weights"].is_object();
    case Dialect::modelopt:
      return view.words["quant_algo"].is_string() || side["quant_algo"].is_string();
    default:
      return true;
  }
}

// Reports loaders that look for scales of unquantized weights.
void check_none_is(const VerifyView& view, Findings& out) {
  const bool by_side = view.checkpoint.hf_quant_config()["quantization"].is_object();
  if (view.method.empty() && !by_side) return;
  const IgnoreList skipped(view.recognized.dialect, ignore_list_of(view));
  for (const Loader loader : {kV, kH, kS, kT}) {
    // transformers ignores a quant_method that it does not know, and loads the weights unquantized.
    if (loader == kH && (view.method.empty() || view.method.starts_with("modelopt"))) continue;
    const auto found = std::find_if(
        view.plain_linears.begin(), view.plain_linears.end(), [&](const std::string& module) {
          return !module.ends_with("lm_head") && is_meant(view, module) &&
                 !skipped.covers(loader, module);
        });
    if (found == view.plain_linears.end()) continue;
    const std::string declared = view.method.empty()
                                     ? std::string("hf_quant_config.json says")
                                     : text("config.json says ('", shown(view.method, 60), "')");
    out.error({loader}, *found,
              text(declared,
                   " that weights are quantized, and none is: it looks for its scales in "
                   "vain; remove what says so, or get the weights it belongs to"));
  }
}

// The largest decoded magnitude among the first codes.
double reach_of_codes(const VerifyView& view, const StoredTensor& tensor) {
  constexpr std::uint64_t kMax = 1U << 20;
  std::vector<std::byte> codes(std::min(tensor.nbytes(), kMax));
  view.checkpoint.read(tensor, 0, codes);
  const Format format = tensor.entry->type == StoredType::f8_e5m2 ? e5m2 : e4m3fn;
  std::array<bool, 256> has{};
  for (const std::byte code : codes) has[std::to_integer<std::size_t>(code)] = true;
  double most = 0;
  for (std::uint32_t code = 0; code < has.size(); ++code)
    if (has[code]) most = std::max(most, std::abs(decode(format, code)));
  return most;
}

// FP8 codes without scales are loaded as the values they decode to. That may be intended (an
// unscaled cast) where they are as small as weights are; codes made with scales use the top of
// their format.
void check_bare_codes(const VerifyView& view, const StoredTensor& tensor, Findings& out) {
  constexpr double kLargest = 64;  // the limit of the rule `plausible`
  const bool fp8 = holds_fp8(tensor);
  if (fp8 && view.options.codes && reach_of_codes(view, tensor) < kLargest) {
    out.warn({kV, kH, kS, kT}, tensor.name(),
             text(stored_name(tensor.entry->type),
                  " without scales: it is taken for numbers as they are, and most of them are "
                  "coarse below 1/64"));
    return;
  }
  out.error({kV, kH, kS, kT}, tensor.name(),
            text("codes of ", stored_name(tensor.entry->type),
                 " without scales: they are loaded as if they were weights"));
}

}  // namespace

void check_quantized(const VerifyView& view, Findings& out) {
  if (!view.recognized.quantized && view.misfits.empty()) check_none_is(view, out);
  const Dialect dialect = view.recognized.dialect;
  const bool foreign = dialect == Dialect::comfyui || dialect == Dialect::octavo;
  if (view.recognized.quantized && foreign) return;  // no loader reads this dialect
  for (const std::string& name : view.recognized.plain) {
    const StoredTensor& tensor = view.checkpoint.at(name);
    const bool is_scale = name.substr(name.rfind('.') + 1).find("scale") != std::string::npos;
    const bool codes = holds_fp8(tensor) || (holds_codes(tensor) && name.ends_with(".weight"));
    if (codes && !is_scale && tensor.entry->shape.size() >= 2 && tensor.nbytes() > 0 &&
        !view.misfits.contains(std::string(module_of(name))))
      check_bare_codes(view, tensor, out);
  }
}

void check_transforms(const VerifyView& view, Findings& out) {
  constexpr std::string_view kUnchecked =
      "; whether loaders make the same weights of it was not checked";
  const std::string by_tensors = pre_quant_scale_problem(view.checkpoint);
  if (!by_tensors.empty()) out.error_for_all("", text(by_tensors, kUnchecked));
  if (view.method != "compressed-tensors") return;
  if (const std::string reason = unsupported_transform(view.words); !reason.empty())
    out.error_for_all("", text(reason, kUnchecked));
}

}  // namespace octavo
