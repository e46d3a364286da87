// Load and store of single elements of a matrix of any type, strides or packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "octavo/backend/kernels.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::reference {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
inline void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline std::byte* row_start(const Matrix& matrix, std::int64_t row) {
  return static_cast<std::byte*>(matrix.data) + row * matrix.row_pitch;
}

inline std::uint32_t load_code(const Matrix& codes, std::int64_t row, std::int64_t col) {
  if (!codes.packed) {
    const std::byte* from = row_start(codes, row) + col * codes.col_stride;
    return codes.format.code_bytes() == 1 ? load<std::uint8_t>(from) : load<std::uint16_t>(from);
  }
  std::uint32_t code = 0;
  for (int bit = 0; bit < codes.format.bits(); ++bit) {
    const std::int64_t at = col * codes.format.bits() + bit;
    code |= (load<std::uint8_t>(row_start(codes, row) + at / 8) >> (at % 8) & 1u) << bit;
  }
  return code;
}

inline void store_code(const Matrix& codes, std::int64_t row, std::int64_t col,
                       std::uint32_t code) {
  if (!codes.packed) {
    std::byte* to = row_start(codes, row) + col * codes.col_stride;
    return codes.format.code_bytes() == 1 ? store(to, static_cast<std::uint8_t>(code))
                                          : store(to, static_cast<std::uint16_t>(code));
  }
  for (int bit = 0; bit < codes.format.bits(); ++bit) {
    const std::int64_t at = col * codes.format.bits() + bit;
    std::byte* byte = row_start(codes, row) + at / 8;
    // The first bit of a byte clears it: a row's last byte then ends in zeros.
    const auto before = at % 8 == 0 ? std::uint8_t{0} : load<std::uint8_t>(byte);
    const auto mask = static_cast<std::uint8_t>(1u << (at % 8));
    store(byte, static_cast<std::uint8_t>((before & ~mask) | (code >> bit & 1u) << (at % 8)));
  }
}

inline double load_value(const Matrix& values, std::int64_t row, std::int64_t col) {
  if (values.dtype == DType::code) return decode(values.format, load_code(values, row, col));
  const std::byte* from = row_start(values, row) + col * values.col_stride;
  switch (values.dtype) {
    case DType::f64:
      return load<double>(from);
    case DType::f32:
      return load<float>(from);
    case DType::f16:
      return decode(f16_format, load<std::uint16_t>(from));
    default:
      return decode(bf16_format, load<std::uint16_t>(from));
  }
}

inline void store_value(const Matrix& values, std::int64_t row, std::int64_t col, double value) {
  std::byte* to = row_start(values, row) + col * values.col_stride;
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  switch (values.dtype) {
    case DType::f64:
      return store(to, value);
    case DType::f32:
      return store(to, static_cast<float>(value));
    case DType::f16:
      return store(to,
                   static_cast<std::uint16_t>(encode_value(f16_format, value, kRoundOnce).code));
    default:
      return store(to,
                   static_cast<std::uint16_t>(encode_value(bf16_format, value, kRoundOnce).code));
  }
}

}  // namespace octavo::reference
