// View: a non-owning array (pointer, dtype, shape, strides, device). Public operations take views
// of any rank; kernels see only Matrix, because leading dimensions are collapsed first.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "octavo/base/exception.h"
#include "octavo/base/macros.h"
#include "octavo/format/format.h"
#include "octavo/tensor/dtype.h"

namespace octavo {

enum class DeviceKind : std::uint8_t { cpu, cuda };
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  constexpr bool operator==(const Device&) const = default;
};

OCTAVO_API std::string to_string(Device device);  // "cpu", "cuda:0"

inline constexpr int kMaxRank = 8;
// Throws "[op] got 9 dimensions; expected at most 8; collapse leading dimensions".
[[noreturn]] OCTAVO_API void fail_rank(std::string_view op, std::size_t rank);

// Sizes along each dimension; rank 0 is a scalar and has one element.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span(sizes.begin(), sizes.size())) {}
  // Throws Error(invalid_argument) for more than kMaxRank sizes.
  constexpr explicit Shape(std::span<const std::int64_t> sizes)
      : rank_(static_cast<int>(sizes.size())) {
    if (sizes.size() > kMaxRank) fail_rank("shape", sizes.size());
    std::copy_n(sizes.begin(), rank_, sizes_.begin());
  }
  [[nodiscard]] constexpr int rank() const { return rank_; }
  constexpr std::int64_t& operator[](int i) { return sizes_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t operator[](int i) const { return sizes_[static_cast<std::size_t>(i)]; }
  constexpr bool operator==(const Shape&) const = default;
  [[nodiscard]] std::span<const std::int64_t> sizes() const {
    return {sizes_.data(), static_cast<std::size_t>(rank_)};
  }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

// The number of elements; throws Error when a size is negative or the product overflows.
OCTAVO_API std::int64_t element_count(const Shape& shape);
OCTAVO_API std::string to_string(const Shape& shape);

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Format format{};  // of codes
  Shape shape{};
  Shape strides{};         // in bytes, one per dimension; may be negative or zero (reading only)
  bool packed = false;     // codes below eight bits as bit streams along the last dimension
  bool read_only = false;  // refuses to be an output
  Device device{};
};

// Bytes of a dense row-major array of this kind, and its strides.
OCTAVO_API std::int64_t dense_bytes(const Shape& shape, DType dtype, const Format& format,
                                    bool packed);
OCTAVO_API Shape dense_strides(const Shape& shape, DType dtype, const Format& format, bool packed);
OCTAVO_API bool is_dense(const View& view);

// Views of dense memory. These throw when the shape is impossible.
OCTAVO_API View value_view(void* data, DType dtype, const Shape& shape);
OCTAVO_API View code_view(void* data, const Format& format, const Shape& shape,
                          bool packed = false);
OCTAVO_API View as_read_only(View view);

template <typename T>
constexpr DType dtype_of() {
  static_assert(std::is_same_v<std::remove_const_t<T>, float> ||
                    std::is_same_v<std::remove_const_t<T>, double>,
                "spans of float and double are values; for 16-bit types give value_view a dtype");
  return std::is_same_v<std::remove_const_t<T>, float> ? DType::f32 : DType::f64;
}

template <typename T, std::size_t kExtent>
View view_of(std::span<T, kExtent> values) {
  View view = value_view(const_cast<std::remove_const_t<T>*>(values.data()), dtype_of<T>(),
                         {static_cast<std::int64_t>(values.size())});
  view.read_only = std::is_const_v<T>;
  return view;
}

// Throws Error(wrong_type) unless a code of the format is stored in so many bytes.
OCTAVO_API void check_code_bytes(const Format& format, std::size_t bytes);

// Codes of up to eight bits are uint8_t, larger ones uint16_t; throws Error(wrong_type) otherwise.
template <typename T, std::size_t kExtent>
requires std::is_same_v<std::remove_const_t<T>, std::uint8_t> ||
    std::is_same_v<std::remove_const_t<T>, std::uint16_t>
        View view_of(std::span<T, kExtent> codes, const Format& format) {
  check_code_bytes(format, sizeof(T));
  View view = code_view(const_cast<std::remove_const_t<T>*>(codes.data()), format,
                        {static_cast<std::int64_t>(codes.size())});
  view.read_only = std::is_const_v<T>;
  return view;
}

// Argument of kernels: two dimensions, checked, on one device.
// Packed weights: panels of `cols` rows, in each [K / step][cols][step] elements, as a microkernel
// reads its right operand. Rows are padded to whole panels and K to kPanelDepth, with zeros.
inline constexpr std::int64_t kPanelDepth = 64;
struct PanelOrder {
  int cols = 0, step = 0;  // 0: rows, one after another
  // Of two codes in a byte, one is of the first half of a word's codes, the other of the second
  // half: kernels take them apart without interleaving.
  bool halves = false;

  [[nodiscard]] constexpr bool exists() const { return cols != 0; }
  [[nodiscard]] static constexpr std::int64_t padded_depth(std::int64_t depth) {
    return (depth + kPanelDepth - 1) / kPanelDepth * kPanelDepth;
  }
  // The index of an element of rows of `depth` elements.
  [[nodiscard]] constexpr std::int64_t index(std::int64_t row, std::int64_t k,
                                             std::int64_t depth) const {
    return row / cols * cols * padded_depth(depth) + k / step * step * cols + row % cols * step +
           k % step;
  }
  constexpr bool operator==(const PanelOrder&) const = default;
};

struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  Format format{};
  bool packed = false;
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_pitch = 0;   // bytes
  std::int64_t col_stride = 0;  // bytes; unused where codes are packed
  PanelOrder panels{};          // where given, pitch and stride say nothing
};

}  // namespace octavo
