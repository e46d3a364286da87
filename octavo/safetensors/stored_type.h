// The element types (dtypes) of safetensors files, and their octavo equivalents.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"
#include "octavo/tensor/dtype.h"

namespace octavo::safetensors {

// In safetensors' own order, which also orders the tensors of a written file.
enum class StoredType : std::uint8_t {
  boolean,
  f4,  // all elements of a tensor form one bit stream, the first in the low bits; so do f6_*
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};
inline constexpr int kStoredTypes = 22;

// "F8_E4M3": the name in the file.
OCTAVO_API std::string_view stored_name(StoredType type);
OCTAVO_API int stored_bits(StoredType type);  // of one element: 4 to 64
// Upper case only, as the file format requires; nullopt for any other name.
OCTAVO_API std::optional<StoredType> find_stored_type(std::string_view name);

// The octavo equivalent of a stored type.
struct ElementType {
  DType dtype = DType::f32;
  Format format{};      // of codes
  bool packed = false;  // sub-byte codes
  constexpr bool operator==(const ElementType&) const = default;
};
// nullopt for integers, booleans and complex numbers: octavo copies those and does not compute with
// them.
OCTAVO_API std::optional<ElementType> element_type(StoredType type);
// The inverse; nullopt for formats without a safetensors dtype. Sub-byte codes have one only when
// they are packed.
OCTAVO_API std::optional<StoredType> find_stored_type(const ElementType& type);

}  // namespace octavo::safetensors
