#include "octavo/checkpoint/gguf/gguf_writer.h"

#include <algorithm>
#include <numeric>

#include "octavo/base/error.h"

namespace octavo::gguf {
namespace {

template <typename Number>
void append(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_string(std::string& out, std::string_view text) {
  append(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

template <typename Number>
Value value_of(ValueType type, Number number) {
  Value out{.type = type};
  append(out.bytes, number);
  return out;
}

template <typename Number>
Value array_of(ValueType type, const std::vector<Number>& numbers) {
  Value out{.type = type, .is_array = true, .count = numbers.size()};
  for (const Number number : numbers) append(out.bytes, number);
  return out;
}

}  // namespace

Value string_value(std::string_view text) {
  return {.type = ValueType::string, .bytes = std::string(text)};
}
Value count_value(std::int64_t number) {
  return value_of(ValueType::u32, static_cast<std::uint32_t>(number));
}
Value f32_value(double number) { return value_of(ValueType::f32, static_cast<float>(number)); }
Value boolean_value(bool value) {
  return value_of(ValueType::boolean, static_cast<std::uint8_t>(value));
}
Value string_array(const std::vector<std::string>& strings) {
  Value out{.type = ValueType::string, .is_array = true, .count = strings.size()};
  for (const std::string& one : strings) append_string(out.bytes, one);
  return out;
}
Value i32_array(const std::vector<std::int32_t>& numbers) {
  return array_of(ValueType::i32, numbers);
}
Value f32_array(const std::vector<float>& numbers) { return array_of(ValueType::f32, numbers); }

std::string metadata_bytes(const Metadata& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) {
    append_string(out, key);
    if (value.is_array) append(out, static_cast<std::uint32_t>(ValueType::array));
    append(out, static_cast<std::uint32_t>(value.type));
    if (value.is_array) append(out, value.count);
    if (!value.is_array && value.type == ValueType::string) {
      append_string(out, value.bytes);
    } else {
      out += value.bytes;
    }
  }
  return out;
}

Layout lay_out(std::string_view metadata, std::uint64_t keys, std::vector<PlacedTensor> tensors) {
  Layout out;
  std::string& bytes = out.first_bytes;
  bytes = kMagic;
  append(bytes, kVersion);
  append(bytes, static_cast<std::uint64_t>(tensors.size()));
  append(bytes, keys);
  bytes += metadata;
  for (PlacedTensor& tensor : tensors) {
    safetensors::TensorEntry& entry = tensor.entry;
    const TensorType& type = type_named(tensor.type);
    std::uint64_t size = static_cast<std::uint64_t>(safetensors::stored_bits(entry.type)) / 8;
    for (const std::uint64_t extent : entry.shape)
      check(!__builtin_mul_overflow(size, extent, &size), ErrorCode::invalid_argument, kOp,
            "tensor '", shown(entry.name, 120), "' is too large");
    // Blocks are planned as bytes.
    std::vector<std::uint64_t> shape = entry.shape;
    if (type.is_block()) shape.back() = shape.back() / type.bytes * type.elements;
    entry.begin = padded(out.header.data_bytes, kDefaultAlignment);
    entry.end = entry.begin + size;
    out.header.data_bytes = entry.end;
    append_string(bytes, entry.name);
    append(bytes, static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) append(bytes, *extent);
    append(bytes, type.number);
    append(bytes, entry.begin);
    out.header.tensors.push_back(std::move(entry));
  }
  out.header.data_bytes = padded(out.header.data_bytes, kDefaultAlignment);
  bytes.resize(static_cast<std::size_t>(padded(bytes.size(), kDefaultAlignment)), '\0');
  out.header.data_begin = bytes.size();
  out.header.by_name.resize(out.header.tensors.size());
  std::iota(out.header.by_name.begin(), out.header.by_name.end(), 0U);
  std::sort(out.header.by_name.begin(), out.header.by_name.end(),
            [&](std::uint32_t a, std::uint32_t b) {
              return out.header.tensors[a].name < out.header.tensors[b].name;
            });
  return out;
}

}  // namespace octavo::gguf
