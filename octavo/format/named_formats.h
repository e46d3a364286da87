// Named formats: OFP8, MX, FNUZ, IEEE-like, 16-bit. To add one: a constant here and its row in
// kNamedFormats; parsing, printing, the command line and every test table follow from that.
#pragma once

#include <array>
#include <string_view>

#include "octavo/format/format.h"

namespace octavo {

// OCP 8-bit floating point (OFP8) 1.0.
inline constexpr Format e4m3fn{
    .exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .nan = Nan::all_ones};
inline constexpr Format e5m2{
    .exponent_bits = 5, .mantissa_bits = 2, .bias = 15, .has_inf = true, .nan = Nan::ieee};
// AMD and Graphcore: no minus zero, NaN in its place.
inline constexpr Format e4m3fnuz{
    .exponent_bits = 4, .mantissa_bits = 3, .bias = 8, .nan = Nan::negative_zero};
inline constexpr Format e5m2fnuz{
    .exponent_bits = 5, .mantissa_bits = 2, .bias = 16, .nan = Nan::negative_zero};
inline constexpr Format e4m3b11fnuz{
    .exponent_bits = 4, .mantissa_bits = 3, .bias = 11, .nan = Nan::negative_zero};
// IEEE 754 rules at eight bits.
inline constexpr Format e4m3{
    .exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .has_inf = true, .nan = Nan::ieee};
inline constexpr Format e3m4{
    .exponent_bits = 3, .mantissa_bits = 4, .bias = 3, .has_inf = true, .nan = Nan::ieee};
// OCP Microscaling (MX) 1.0: the scale and the element formats.
inline constexpr Format e8m0fnu{.exponent_bits = 8,
                                .mantissa_bits = 0,
                                .bias = 127,
                                .is_signed = false,
                                .has_zero = false,
                                .has_subnormals = false,
                                .nan = Nan::all_ones};
inline constexpr Format e3m2fn{.exponent_bits = 3, .mantissa_bits = 2, .bias = 3};
inline constexpr Format e2m3fn{.exponent_bits = 2, .mantissa_bits = 3, .bias = 1};
inline constexpr Format e2m1fn{.exponent_bits = 2, .mantissa_bits = 1, .bias = 1};
inline constexpr Format mxint8{
    .exponent_bits = 0, .mantissa_bits = 7, .bias = 0, .twos_complement = true};
// Integers of two's complement as they are, -128 to 127.
inline constexpr Format int8{
    .exponent_bits = 0, .mantissa_bits = 7, .bias = -6, .twos_complement = true};
// The same in four bits, -8 to 7: weights in groups with a scale each (W4A16).
inline constexpr Format int4{
    .exponent_bits = 0, .mantissa_bits = 3, .bias = -2, .twos_complement = true};

// The 16-bit floating-point types as formats.
inline constexpr Format f16_format{
    .exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .has_inf = true, .nan = Nan::ieee};
inline constexpr Format bf16_format{
    .exponent_bits = 8, .mantissa_bits = 7, .bias = 127, .has_inf = true, .nan = Nan::ieee};

struct NamedFormat {
  std::string_view name;
  Format format;
  std::string_view note;
};

inline constexpr std::array<NamedFormat, 14> kNamedFormats{{
    {"e4m3fn", e4m3fn, "OFP8 E4M3: weights and activations"},
    {"e5m2", e5m2, "OFP8 E5M2: gradients"},
    {"e4m3fnuz", e4m3fnuz, "AMD and Graphcore E4M3: one zero"},
    {"e5m2fnuz", e5m2fnuz, "AMD and Graphcore E5M2: one zero"},
    {"e4m3b11fnuz", e4m3b11fnuz, "E4M3 with bias 11"},
    {"e4m3", e4m3, "E4M3 under IEEE 754 rules"},
    {"e3m4", e3m4, "E3M4 under IEEE 754 rules"},
    {"e8m0fnu", e8m0fnu, "MX scale: powers of two"},
    {"e3m2fn", e3m2fn, "MXFP6 element, more range"},
    {"e2m3fn", e2m3fn, "MXFP6 element, more precision"},
    {"e2m1fn", e2m1fn, "MXFP4 and NVFP4 element"},
    {"mxint8", mxint8, "MXINT8 element: integer / 64"},
    {"int8", int8, "INT8 weights and activations (W8A8): integer"},
    {"int4", int4, "INT4 weights (W4A16): integer"},
}};

}  // namespace octavo
