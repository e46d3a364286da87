#include "octavo/backend/cpu/convert/count.h"

#include "octavo/format/decode.h"

namespace octavo::cpu {
namespace {

// There is almost never a NaN, and the largest magnitude shows that faster than counting would.
template <typename Bits>
std::int64_t count_above(const void* values, std::int64_t n, Bits inf) {
  const auto* bits = static_cast<const Bits*>(values);
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<Bits>(bits[i] & kMagnitude);
    largest = largest > magnitude ? largest : magnitude;
  }
  if (largest <= inf) return 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += static_cast<Bits>(bits[i] & kMagnitude) > inf;
  return count;
}

template <typename Code>
std::int64_t count_nan_codes(const Format& format, const void* values, std::int64_t n) {
  const auto* codes = static_cast<const Code*>(values);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += is_nan(format, codes[i] & format.code_mask());
  return count;
}

}  // namespace

std::int64_t count_nan_span(DType dtype, const Format& format, const void* values, std::int64_t n) {
  switch (dtype) {
    case DType::f64:
      return count_above<std::uint64_t>(values, n, 0x7FF0000000000000u);
    case DType::f32:
      return count_above<std::uint32_t>(values, n, 0x7F800000u);
    case DType::f16:
      return count_above<std::uint16_t>(values, n, 0x7C00u);
    case DType::bf16:
      return count_above<std::uint16_t>(values, n, 0x7F80u);
    case DType::code:
      break;
  }
  if (!format.has_nan()) return 0;
  return format.code_bytes() == 1 ? count_nan_codes<std::uint8_t>(format, values, n)
                                  : count_nan_codes<std::uint16_t>(format, values, n);
}

}  // namespace octavo::cpu
