// Values of the metadata as numbers, booleans and strings.
#include <cstring>
#include <type_traits>
#include <utility>

#include "octavo/checkpoint/gguf/gguf_header.h"

namespace octavo::gguf {
namespace {

template <typename Number>
Number at(std::string_view bytes, std::size_t offset) {
  Number out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

// Calls `each` with the number at a place, in its own type; false for strings.
template <typename Each>
bool with_number(ValueType type, std::string_view bytes, std::size_t index, const Each& each) {
  const auto give = [&]<typename Number>(Number /*like*/) {
    each(at<Number>(bytes, index * sizeof(Number)));
    return true;
  };
  switch (type) {
    case ValueType::u8:
    case ValueType::boolean:
      return give(std::uint8_t{});
    case ValueType::i8:
      return give(std::int8_t{});
    case ValueType::u16:
      return give(std::uint16_t{});
    case ValueType::i16:
      return give(std::int16_t{});
    case ValueType::u32:
      return give(std::uint32_t{});
    case ValueType::i32:
      return give(std::int32_t{});
    case ValueType::f32:
      return give(float{});
    case ValueType::u64:
      return give(std::uint64_t{});
    case ValueType::i64:
      return give(std::int64_t{});
    case ValueType::f64:
      return give(double{});
    case ValueType::string:
    case ValueType::array:
      break;
  }
  return false;
}

}  // namespace

std::optional<double> Value::number() const {
  std::optional<double> out;
  if (!is_array) with_number(type, bytes, 0, [&](auto value) { out = static_cast<double>(value); });
  return out;
}

std::optional<std::int64_t> Value::integer() const {
  std::optional<std::int64_t> out;
  if (is_array) return out;
  with_number(type, bytes, 0, [&]<typename Number>(Number value) {
    if constexpr (std::is_integral_v<Number>)
      if (std::in_range<std::int64_t>(value)) out = static_cast<std::int64_t>(value);
  });
  return out;
}

std::optional<std::string_view> Value::string() const {
  if (is_array || type != ValueType::string) return std::nullopt;
  return bytes;
}

std::optional<bool> Value::boolean() const {
  if (is_array || type != ValueType::boolean) return std::nullopt;
  return bytes[0] != 0;
}

std::vector<std::string_view> Value::strings() const {
  std::vector<std::string_view> out;
  if (!is_array || type != ValueType::string) return out;
  const std::string_view all = bytes;
  for (std::size_t place = 0; place < all.size();) {
    const auto length = static_cast<std::size_t>(at<std::uint64_t>(all, place));
    out.push_back(all.substr(place + sizeof(std::uint64_t), length));
    place += sizeof(std::uint64_t) + length;
  }
  return out;
}

std::vector<double> Value::numbers() const {
  std::vector<double> out;
  if (!is_array || type == ValueType::string) return out;
  for (std::uint64_t i = 0; i < count; ++i)
    with_number(type, bytes, static_cast<std::size_t>(i),
                [&](auto value) { out.push_back(static_cast<double>(value)); });
  return out;
}

}  // namespace octavo::gguf
