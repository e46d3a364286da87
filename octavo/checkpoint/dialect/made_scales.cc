#include "octavo/checkpoint/dialect/made_scales.h"

#include <algorithm>
#include <optional>

#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {

bool takes_input_scale(Dialect dialect, const QuantizedWeight& weight) {
  // Of other schemes inputs have scales of their own blocks, whatever a dialect could keep.
  const std::optional<Scheme> scheme = scheme_of(weight.scaling);
  if (scheme != Scheme::fp8_tensor && scheme != Scheme::fp8_channel &&
      scheme != Scheme::int8_channel && scheme != Scheme::nvfp4)
    return false;
  const StaticScaleNames& words = table_of(dialect).statics;
  return words.takes_input != nullptr && words.takes_input(scheme);
}

bool takes_cache_scales(Dialect dialect) { return !table_of(dialect).statics.key.empty(); }

float input_scale_of(const QuantizedWeight& weight, float amax) {
  const auto largest = static_cast<float>(max_value(weight.scaling.format));
  const bool two_levels = scheme_of(weight.scaling) == Scheme::nvfp4;
  return std::max(amax / (two_levels ? 448.0F * largest : largest), 0x1p-126F);
}

DialectTensor input_scale_tensor(Dialect dialect, const QuantizedWeight& weight, float scale) {
  const StaticScaleNames& words = table_of(dialect).statics;
  const bool divides = scheme_of(weight.scaling) == Scheme::nvfp4 && !words.nvfp4_input.empty();
  return static_scale_tensor(words,
                             weight.module + std::string(divides ? words.nvfp4_input : words.input),
                             divides ? divisor_of(scale, weight.source) : scale);
}

DialectTensor cache_scale_tensor(Dialect dialect, const std::string& attention, bool is_value,
                                 float scale) {
  const StaticScaleNames& words = table_of(dialect).statics;
  return static_scale_tensor(words, attention + std::string(is_value ? words.value : words.key),
                             scale);
}

}  // namespace octavo
