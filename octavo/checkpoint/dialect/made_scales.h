// Static scales that a plan makes (static_scales_internal.h has those that a source brings): the
// tensor beside a weight or an attention, under the dialect's name, with its bytes.
#pragma once

#include <string>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

// Do loaders of this dialect take a static input scale for such a weight? And KV cache scales?
[[nodiscard]] bool takes_input_scale(Dialect dialect, const QuantizedWeight& weight);
[[nodiscard]] bool takes_cache_scales(Dialect dialect);

// The scale of an input's codes, from its amax: the largest input becomes the largest code; of
// NVFP4 the largest code of the largest block scale.
[[nodiscard]] float input_scale_of(const QuantizedWeight& weight, float amax);
[[nodiscard]] DialectTensor input_scale_tensor(Dialect dialect, const QuantizedWeight& weight,
                                               float scale);
[[nodiscard]] DialectTensor cache_scale_tensor(Dialect dialect, const std::string& attention,
                                               bool is_value, float scale);

}  // namespace octavo
