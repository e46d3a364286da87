#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "octavo/pipeline/integer_values_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

// What a double lacks of a 64-bit integer. It is small, and so are the numbers modulo 2^64.
template <typename Integer>
double rest_of(Integer number, double nearest) {
  if constexpr (sizeof(Integer) < 8) return 0;
  const bool is_two_to_64 = nearest == 0x1p64;
  const auto rounded = is_two_to_64 ? std::uint64_t{0}
                       : nearest < 0
                           ? static_cast<std::uint64_t>(static_cast<std::int64_t>(nearest))
                           : static_cast<std::uint64_t>(nearest);
  return static_cast<double>(
      static_cast<std::int64_t>(static_cast<std::uint64_t>(number) - rounded));
}

template <typename Integer>
WideValues read_as(std::span<const std::byte> bytes) {
  WideValues out;
  for (std::size_t at = 0; at + sizeof(Integer) <= bytes.size(); at += sizeof(Integer)) {
    Integer number{};
    std::memcpy(&number, bytes.data() + at, sizeof number);
    const auto nearest = static_cast<double>(number);
    out.add(nearest, rest_of(number, nearest));
  }
  return out;
}

using Read = WideValues (*)(std::span<const std::byte>);

Read reader_of(StoredType type) {
  switch (type) {
    case StoredType::boolean:
    case StoredType::u8:
      return read_as<std::uint8_t>;
    case StoredType::i8:
      return read_as<std::int8_t>;
    case StoredType::u16:
      return read_as<std::uint16_t>;
    case StoredType::i16:
      return read_as<std::int16_t>;
    case StoredType::u32:
      return read_as<std::uint32_t>;
    case StoredType::i32:
      return read_as<std::int32_t>;
    case StoredType::u64:
      return read_as<std::uint64_t>;
    case StoredType::i64:
      return read_as<std::int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

bool is_integer(StoredType type) { return reader_of(type) != nullptr; }

WideValues integer_values(std::span<const std::byte> bytes, StoredType type) {
  return reader_of(type)(bytes);
}

}  // namespace octavo
