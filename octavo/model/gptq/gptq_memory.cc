#include "octavo/model/gptq/gptq_memory_internal.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "octavo/base/error.h"
#include "octavo/model/gptq/hessian_sum_internal.h"
#include "octavo/model/gptq/planned_weights_internal.h"

namespace octavo::gptq_detail {
namespace {

std::uint64_t values_in(const TensorAction& action) {
  return static_cast<std::uint64_t>(action.weight.shape[0] * action.weight.shape[1]);
}

}  // namespace

std::int64_t layer_in_name(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  for (std::size_t at = name.find(kLayers); at != std::string_view::npos;
       at = name.find(kLayers, at + 1)) {
    if (at > 0 && name[at - 1] != '.') continue;
    const std::string_view rest = name.substr(at + kLayers.size());
    std::int64_t layer = -1;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error == std::errc{} && stop != rest.data() + rest.size() && *stop == '.' && layer >= 0)
      return layer;
  }
  return -1;
}

std::uint64_t product_nbytes(std::int64_t rows, std::int64_t width, std::int64_t value_bytes,
                             std::uint64_t code_nbytes) {
  const auto n = static_cast<std::uint64_t>(rows), k = static_cast<std::uint64_t>(width),
             value = static_cast<std::uint64_t>(value_bytes);
  // Sums in f64, a run of tokens as channels, and the product of a panel of them, in f32.
  const std::uint64_t summing = 8 * k * k + 4 * k * HessianSum::kRun + 4 * k * HessianSum::kPanel;
  // The Hessian, and the matrix that becomes its factor. Afterwards that matrix and M.
  const std::uint64_t factoring = 2 * 8 * k * k;
  // M; the weight as it is in the layer and as it is read; codes, and scales of tiles of sixteen as
  // two f32 each; in f32 its values, those of rounding, errors, and what of them reaches a block of
  // 128 columns.
  const std::uint64_t walking =
      4 * k * k + n * k * (2 * value + 3 * 4) + code_nbytes + n * k / 2 + n * 128 * 4;
  return std::max({summing, factoring, walking});
}

GptqMemory gptq_memory(const QuantizePlan& plan) {
  GptqMemory out;
  std::map<std::int64_t, std::uint64_t> growth;
  for (const TensorAction& action : plan.actions) {
    const std::int64_t layer = layer_in_name(action.weight.name);
    if (!is_by_gptq(action) || layer < 0) continue;
    const std::int64_t size = element_bytes(action.weight.source);
    const std::uint64_t codes = bytes_after(action);
    const std::uint64_t product =
        product_nbytes(action.weight.shape[0], action.weight.shape[1], size, codes);
    if (product > out.product) {
      out.product = product;
      out.weight = action.weight.name;
      out.width = action.weight.shape[1];
    }
    const auto wider = static_cast<std::uint64_t>(std::max<std::int64_t>(0, 4 - size));
    growth[layer] += wider * values_in(action) + codes;
    out.layer = std::max(out.layer, growth[layer]);
  }
  return out;
}

std::string GptqMemory::text_of() const {
  return text("GPTQ: the Hessian of '", shown(weight, 160), "' with ", width,
              " channels, its factor and copies of the weight, and the layer's new weights in "
              "float32");
}

}  // namespace octavo::gptq_detail
