// Rotary position embedding as config.json describes it.
#pragma once

#include <cstdint>

#include "octavo/model/config_values_internal.h"
#include "octavo/nn/rotary_embedding.h"

namespace octavo {

// What the description leaves to the rest of the config.
struct RopeDefaults {
  double theta = 1e4, partial = 1.0;
  std::int64_t head_size = 0, max_positions = 0;
  std::int64_t original_max_positions = 0;  // 0: not given beside it
  bool yarn_is_longrope = false;            // early Phi-3 files
};

// `rope` is rope_parameters, rope_scaling or null. Throws Error(unsupported) that names a type it
// does not know.
[[nodiscard]] RotaryEmbedding parse_rope(const Json& rope, const RopeDefaults& defaults);

}  // namespace octavo
