// The layer that a tensor's name puts it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace octavo {

// "model.layers.", 7 and "mlp.up_proj.weight" of one name.
struct InLayer {
  std::string_view stack;
  std::int64_t layer = 0;
  std::string_view rest;
};
// The first number behind "layers", "layer", "h", "blocks" or "block"; nullopt where there is none.
// Views into `name`.
[[nodiscard]] std::optional<InLayer> in_layer(std::string_view name);

}  // namespace octavo
