#include "octavo/round/encode_edges.h"

#include "octavo/format/decode.h"
#include "octavo/round/encode.h"

namespace octavo {

EncodeEdges encode_edges(const Format& format, const EncodePolicy& policy) {
  EncodeEdges edges;
  for (const bool negative : {false, true}) {
    const std::uint32_t limit = limit_field(format, negative);
    const bool stays =
        overflow_code(format, policy, negative, false) == signed_code(format, limit, negative);
    edges.overflow_field[negative] = stays ? limit : limit + 1;
    edges.inf_code[negative] = overflow_code(format, policy, negative, true);
    edges.nan_code[negative] = nan_input_code(format, policy, negative);
  }
  return edges;
}

double grid_value(const Format& format, std::uint32_t field) {
  Format plain = format;  // the same grid without specials, one bit wider so that a carry has room
  plain.exponent_bits = static_cast<std::uint8_t>(format.exponent_bits + 1);
  plain.nan = Nan::none;
  plain.has_inf = false;
  if (format.twos_complement) {
    plain.twos_complement = false;
    return field * power_of_two(format.min_step_exponent());
  }
  return decode(plain, field);
}

bool fits_f32(const Format& format) {
  const int top = static_cast<int>((format.max_field() + 1) >> format.mantissa_bits) - format.bias;
  return format.has_zero && format.min_exponent() >= -126 && top <= 128;
}

}  // namespace octavo
