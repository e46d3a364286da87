// The dtype in config.json, in which loaders hold what is not quantized.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/verify/architecture_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {

// transformers decodes MX and NVFP4 weights of compressed-tensors to bfloat16, whatever the model
// is in, and then stops in the first product with float32 or float16. With this dtype it casts the
// rest while it loads; files keep what they have.
std::string plan_dtype(const CheckpointReader& source, QuantizePlan& plan) {
  if (plan.options.target != Dialect::compressed_tensors) return "";
  constexpr std::string_view kDecoded = "bfloat16";
  const auto first =
      std::find_if(plan.actions.begin(), plan.actions.end(), [](const TensorAction& action) {
        const auto scheme = action.quantize ? scheme_of(action.weight.scaling) : std::nullopt;
        return scheme && !has_float_scales(*scheme);
      });
  if (first == plan.actions.end()) return "";
  const std::string declared(declared_dtype(source.config()));
  const std::string before =
      declared.empty() ? std::string(dtype_name(first->weight.source)) : declared;
  if (before == kDecoded) return "";
  plan.config_dtype = kDecoded;
  return text("config.json says dtype ", kDecoded, ", instead of ", shown(before, 40),
              ": transformers decodes ", name_of(*scheme_of(first->weight.scaling)),
              " to that, and does not multiply it with another");
}

}  // namespace octavo
