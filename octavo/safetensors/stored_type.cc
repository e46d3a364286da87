#include "octavo/safetensors/stored_type.h"

#include <array>
#include <cstddef>

#include "octavo/format/named_formats.h"

namespace octavo::safetensors {
namespace {

struct Row {
  std::string_view name;
  int bits;
  std::optional<ElementType> element;
};

constexpr ElementType value(DType dtype) { return {.dtype = dtype}; }
constexpr ElementType code(const Format& format) {
  return {.dtype = DType::code, .format = format, .packed = format.bits() < 8};
}

// In the order of StoredType.
constexpr std::array<Row, kStoredTypes> kRows{{
    {"BOOL", 8, {}},
    {"F4", 4, code(e2m1fn)},
    {"F6_E2M3", 6, code(e2m3fn)},
    {"F6_E3M2", 6, code(e3m2fn)},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, code(e5m2)},
    {"F8_E4M3", 8, code(e4m3fn)},
    {"F8_E8M0", 8, code(e8m0fnu)},
    {"F8_E4M3FNUZ", 8, code(e4m3fnuz)},
    {"F8_E5M2FNUZ", 8, code(e5m2fnuz)},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, value(DType::f16)},
    {"BF16", 16, value(DType::bf16)},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"F32", 32, value(DType::f32)},
    {"C64", 64, {}},
    {"F64", 64, value(DType::f64)},
    {"I64", 64, {}},
    {"U64", 64, {}},
}};

const Row& row(StoredType type) { return kRows[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view stored_name(StoredType type) { return row(type).name; }
int stored_bits(StoredType type) { return row(type).bits; }
std::optional<ElementType> element_type(StoredType type) { return row(type).element; }

std::optional<StoredType> find_stored_type(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

std::optional<StoredType> find_stored_type(const ElementType& type) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].element == type) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

}  // namespace octavo::safetensors
