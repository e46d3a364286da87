#include <cstring>

#include "octavo/backend/reference/reference.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/round/encode.h"
#include "octavo/round/stochastic.h"

namespace octavo::reference {
namespace {

constexpr Format kHalf{
    .exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .has_inf = true, .nan = Nan::ieee};
constexpr Format kBfloat{
    .exponent_bits = 8, .mantissa_bits = 7, .bias = 127, .has_inf = true, .nan = Nan::ieee};

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

std::byte* row_start(const Matrix& matrix, std::int64_t row) {
  return static_cast<std::byte*>(matrix.data) + row * matrix.row_pitch;
}

std::uint32_t load_code(const Matrix& codes, std::int64_t row, std::int64_t col) {
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

void store_code(const Matrix& codes, std::int64_t row, std::int64_t col, std::uint32_t code) {
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

double load_value(const Matrix& values, std::int64_t row, std::int64_t col) {
  if (values.dtype == DType::code) return decode(values.format, load_code(values, row, col));
  const std::byte* from = row_start(values, row) + col * values.col_stride;
  switch (values.dtype) {
    case DType::f64:
      return load<double>(from);
    case DType::f32:
      return load<float>(from);
    case DType::f16:
      return decode(kHalf, load<std::uint16_t>(from));
    default:
      return decode(kBfloat, load<std::uint16_t>(from));
  }
}

void store_value(const Matrix& values, std::int64_t row, std::int64_t col, double value) {
  std::byte* to = row_start(values, row) + col * values.col_stride;
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  switch (values.dtype) {
    case DType::f64:
      return store(to, value);
    case DType::f32:
      return store(to, static_cast<float>(value));
    case DType::f16:
      return store(to, static_cast<std::uint16_t>(encode_value(kHalf, value, kRoundOnce).code));
    default:
      return store(to, static_cast<std::uint16_t>(encode_value(kBfloat, value, kRoundOnce).code));
  }
}

void encode_matrix(const Exec&, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy, Counts* counts) {
  const FpEnvGuard guard;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      std::uint32_t random = 0;
      if (policy.rounding == Rounding::stochastic) {
        const std::uint64_t index =
            policy.first_index + static_cast<std::uint64_t>(row * values.cols + col);
        random = stochastic_draw(policy.seed, index, policy.stochastic_bits);
      }
      const Encoded encoded =
          encode_value(codes.format, load_value(values, row, col), policy, random);
      store_code(codes, row, col, encoded.code);
      if (counts != nullptr) *counts += {encoded.saturated, encoded.flushed, encoded.nan};
    }
  }
}

void decode_matrix(const Exec&, const Matrix& codes, const Matrix& values) {
  const FpEnvGuard guard;
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    for (std::int64_t col = 0; col < codes.cols; ++col) {
      store_value(values, row, col, decode(codes.format, load_code(codes, row, col)));
    }
  }
}

std::int64_t count_nan(const Exec&, const Matrix& values) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      const double value = load_value(values, row, col);
      count += value != value;
    }
  }
  return count;
}

}  // namespace

const Kernels kReferenceKernels{.name = "reference",
                                .description = "scalar loops that define every result",
                                .encode = encode_matrix,
                                .decode = decode_matrix,
                                .count_nan = count_nan};

}  // namespace octavo::reference
