// Rules on the ignore list: it must cover every unquantized matrix and no quantized one, as each
// loader matches it.
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/ignore_list_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

constexpr std::array kAll{kV, kH, kS, kT};

bool has_ignore_list(const VerifyView& view) {
  const Dialect dialect = view.recognized.dialect;
  const bool declared =
      !view.method.empty() || view.checkpoint.hf_quant_config()["quantization"].is_object();
  return dialect != Dialect::comfyui && dialect != Dialect::octavo && declared;
}

}  // namespace

const Json& ignore_list_of(const VerifyView& view) {
  for (const std::string_view key : {"ignore", "ignored_layers", "modules_to_not_convert"})
    if (view.words[key].is_array()) return view.words[key];
  return view.checkpoint.hf_quant_config()["quantization"]["exclude_modules"];
}

void check_ignore_list(const VerifyView& view, Findings& out) {
  if (!has_ignore_list(view)) return;
  const IgnoreList skipped(view.recognized.dialect, ignore_list_of(view));
  for (const Loader loader : kAll)
    if (const std::string_view broken = skipped.broken(loader); !broken.empty() && loader != kT)
      out.error({loader}, "",
                text("the ignore list has '", shown(broken, 80),
                     "', which it takes for an expression and stops at: it is none"));
    else if (const std::string_view entry = skipped.unread(loader); !entry.empty())
      out.warn({loader}, "",
               text("the ignore list has '", shown(entry, 80),
                    "', which octavo does not read as an expression; what it covers was not "
                    "checked"));
  // config_groups that name modules quantize only those.
  bool by_class = view.recognized.dialect != Dialect::compressed_tensors;
  for (const auto& [name, group] : view.words["config_groups"].members())
    for (const Json& target : group["targets"].elements())
      by_class |= target.string_or("") == "Linear";
  if (!by_class || view.words["quantized_layers"].is_object()) return;
  for (const std::string& module : view.plain_linears) {
    const bool head = module.ends_with("lm_head");
    for (const Loader loader : kAll) {
      if (!skipped.unread(loader).empty() || skipped.covers(loader, module)) continue;
      // Servers do not quantize lm_head unless it is named; but vLLM and SGLang expect every
      // ModelOpt head to be quantized unless it is on the list.
      const bool asked = view.recognized.dialect == Dialect::modelopt && loader != kT;
      if (head && loader != kH && !asked) continue;
      const std::string message =
          "it is not quantized and not on the ignore list as this loader matches it, so its scales "
          "are not found; add its full name";
      // transformers makes up what it does not find; servers stop.
      if (loader == kH)
        out.silent_error({loader}, module, message);
      else
        out.error({loader}, module, message);
    }
  }
}

void check_ignored_but_quantized(const VerifyView& view, Findings& out) {
  if (!has_ignore_list(view)) return;
  const IgnoreList skipped(view.recognized.dialect, ignore_list_of(view));
  for (const VerifiedWeight& weight : view.weights)
    for (const Loader loader : kAll)
      if (skipped.covers(loader, weight.found->weight.module))
        out.silent_error({loader}, weight.found->weight.module,
                         "it is quantized and on the ignore list, so codes are loaded as if they "
                         "were weights");
}

}  // namespace octavo
