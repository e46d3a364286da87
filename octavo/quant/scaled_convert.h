// encode_scaled, decode_scaled: casts with factors that the caller gives, or that are returned,
// each element rounded once. For plain scales beside plain codes; quantize makes QuantizedTensors.
//
// encode_scaled multiplies values by inv_scale; decode_scaled multiplies by scale, or divides by
// inv_scale. Products are exact before they are rounded. (quantize rounds its products to f32
// first, as hardware and peers do.) No call takes a scale from anywhere else.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/convert/convert.h"
#include "octavo/scale/dynamic_factor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// One number; or f32 or f64 numbers, broadcast to the shape of the values from their last dimension
// on, as in NumPy: [rows, 1] has one for each row. All must be positive and finite. Arrays on a
// device are not checked, because that would wait for it: zero, Inf and NaN then multiply as they
// do in IEEE 754.
struct Factor {
  double value = 1.0;
  View each{};  // if it has memory or dimensions, instead of `value`
};

// Codes are those of the exact product, under this policy. Views do not overlap.
OCTAVO_API void encode_scaled(const View& values, const View& codes, const Factor& inv_scale,
                              const EncodePolicy& policy = {}, const ConvertOptions& options = {});

// The factor comes from the amax of all finite values (dynamic_factor) and is written to
// `inv_scale`, in memory of the device that the views are on. Values of f64 beyond the range of f32
// count on a CPU only. On a GPU nothing waits.
OCTAVO_API void encode_dynamic(const View& values, const View& codes, DynamicRule rule,
                               double* inv_scale, const EncodePolicy& policy = {},
                               const ConvertOptions& options = {});

// The exact product, rounded once to the type of the values; or the quotient, rounded to f64 and
// then to that type.
enum class DecodeBy : std::uint8_t { scale, inv_scale };
OCTAVO_API void decode_scaled(const View& codes, const View& values, const Factor& factor,
                              DecodeBy by = DecodeBy::scale, const ConvertOptions& options = {});

// "power_of_two", "value".
[[nodiscard]] OCTAVO_API DynamicRule parse_dynamic_rule(std::string_view name);

}  // namespace octavo
