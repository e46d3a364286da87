// Rule on NaN and Inf in unquantized tensors: norms, embeddings, heads, biases. One of them in a
// norm makes every output of the model NaN.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/safetensors/non_finite.h"

namespace octavo {

void check_values(const VerifyView& view, Findings& out) {
  constexpr std::uint64_t kWindow = 1U << 20;  // a multiple of every element size
  std::vector<std::byte> window;
  for (const std::string& name : view.recognized.plain) {
    const StoredTensor& stored = view.checkpoint.at(name);
    // Norms and biases are small, and are always checked.
    if (!(view.options.codes && view.options.every_byte) && stored.entry->shape.size() > 1)
      continue;
    const auto type = safetensors::element_type(stored.entry->type);
    if (!type || !is_value(type->dtype)) continue;
    safetensors::NonFiniteFound found;
    window.resize(std::min(stored.nbytes(), kWindow));
    for (std::uint64_t at = 0; at < stored.nbytes(); at += window.size()) {
      const auto piece =
          std::span(window).first(std::min<std::uint64_t>(window.size(), stored.nbytes() - at));
      view.checkpoint.read(stored, at, piece);
      const safetensors::NonFiniteFound here =
          safetensors::non_finite_in(piece, stored.entry->type);
      found.nan += here.nan;
      found.inf += here.inf;
    }
    if (found.nan + found.inf > 0)
      out.error({kV, kH, kS, kT}, name,
                text(found.nan, " of its values are NaN and ", found.inf,
                     " Inf, and the model's answers will be"));
  }
}

}  // namespace octavo
