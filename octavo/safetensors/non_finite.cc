#include "octavo/safetensors/non_finite.h"

#include <cstring>
#include <optional>

namespace octavo::safetensors {
namespace {

// `infinity` is Inf's bits without the sign; larger bits are NaN.
template <typename Bits>
NonFiniteFound count(std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const std::size_t count = bytes.size() / sizeof(Bits);
  const auto magnitude = [&](std::size_t i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    return static_cast<Bits>(bits & kMagnitude);
  };
  NonFiniteFound found;
  Bits most = 0;  // auto-vectorized; usually the only pass
  for (std::size_t i = 0; i < count; ++i) most = magnitude(i) > most ? magnitude(i) : most;
  if (most < infinity) return found;
  for (std::size_t i = 0; i < count; ++i) {
    found.inf += magnitude(i) == infinity;
    found.nan += magnitude(i) > infinity;
  }
  return found;
}

}  // namespace

NonFiniteFound non_finite_in(std::span<const std::byte> bytes, StoredType type) {
  const std::optional<ElementType> element = element_type(type);
  if (!element) return {};
  switch (element->dtype) {
    case DType::bf16:
      return count<std::uint16_t>(bytes, 0x7F80);
    case DType::f16:
      return count<std::uint16_t>(bytes, 0x7C00);
    case DType::f32:
      return count<std::uint32_t>(bytes, 0x7F800000U);
    case DType::f64:
      return count<std::uint64_t>(bytes, 0x7FF0000000000000U);
    case DType::code:
      break;
  }
  return {};
}

}  // namespace octavo::safetensors
