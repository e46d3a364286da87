// DType: element type of an array: f64, f32, f16, bf16, or a code of some Format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"

namespace octavo {

enum class DType : std::uint8_t { f64, f32, f16, bf16, code };  // `code` goes with a Format

constexpr bool is_value(DType dtype) { return dtype != DType::code; }

// Bytes of one element that is not packed.
constexpr int element_bytes(DType dtype, const Format& format = {}) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::code:
      return format.code_bytes();
  }
  return 0;
}

OCTAVO_API std::string_view dtype_name(
    DType dtype);  // "float32", "bfloat16", ... as numpy and torch say
// Takes "float32" and "f32" style names; throws Error(wrong_type) for anything else.
OCTAVO_API DType parse_dtype(std::string_view name);

// Codes of fewer than eight bits may be packed: each row is a little-endian bit stream that starts
// on a byte. FP4 is then two to a byte, the first in the low nibble; FP6 four in three bytes.
constexpr std::int64_t packed_row_bytes(std::int64_t cols, const Format& format) {
  return (cols * format.bits() + 7) / 8;
}

}  // namespace octavo
