#include "octavo/tensor/view.h"

#include <string>

#include "octavo/base/error.h"

namespace octavo {

void fail_rank(std::string_view op, std::size_t rank) {
  fail(ErrorCode::invalid_argument, op, "got ", rank, " dimensions; expected at most ", kMaxRank,
       "; collapse leading dimensions");
}

void check_code_bytes(const Format& format, std::size_t bytes) {
  check(static_cast<std::size_t>(format.code_bytes()) == bytes, ErrorCode::wrong_type, "view",
        "codes of ", format.bits(), " bits need ",
        format.code_bytes() == 1 ? "uint8_t" : "uint16_t", " elements");
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape.sizes()) {
    if (size < 0) {
      fail(ErrorCode::invalid_argument, "shape", "got a negative size in ", to_string(shape),
           "; expected sizes of zero or more");
    }
    if (size == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(count, size, &count)) {
      fail(ErrorCode::invalid_argument, "shape", "the number of elements of ", to_string(shape),
           " does not fit in 64 bits");
    }
  }
  return empty ? 0 : count;
}

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : text("cuda:", device.index);
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += text(i ? ", " : "", shape[i]);
  return out + "]";
}

namespace {

void check_packable(DType dtype, const Format& format, bool packed) {
  if (!packed) return;
  check(dtype == DType::code && format.bits() < 8, ErrorCode::invalid_argument, "view",
        "only codes of fewer than 8 bits can be packed; leave out packed");
}

std::int64_t row_bytes(std::int64_t cols, DType dtype, const Format& format, bool packed) {
  std::int64_t bits = 0;
  const std::int64_t element_bits = packed ? format.bits() : 8 * element_bytes(dtype, format);
  check(!__builtin_mul_overflow(cols, element_bits, &bits) && bits <= INT64_MAX - 7,
        ErrorCode::invalid_argument, "shape", "a row of ", cols,
        " elements does not fit in 64 bits");
  return (bits + 7) / 8;
}

}  // namespace

std::int64_t dense_bytes(const Shape& shape, DType dtype, const Format& format, bool packed) {
  check_packable(dtype, format, packed);
  if (element_count(shape) == 0) return 0;
  const int last = shape.rank() - 1;
  std::int64_t bytes = row_bytes(last < 0 ? 1 : shape[last], dtype, format, packed);
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) {
      fail(ErrorCode::invalid_argument, "shape", "the bytes of ", to_string(shape),
           " do not fit in 64 bits");
    }
  }
  return bytes;
}

Shape dense_strides(const Shape& shape, DType dtype, const Format& format, bool packed) {
  check_packable(dtype, format, packed);
  Shape strides = shape;
  if (shape.rank() == 0) return strides;
  const int last = shape.rank() - 1;
  strides[last] = packed ? 0 : element_bytes(dtype, format);
  std::int64_t stride = row_bytes(shape[last], dtype, format, packed);
  for (int i = last - 1; i >= 0; --i) {
    strides[i] = stride;
    // Only arrays without elements can overflow here (dense_bytes checks the others); any stride
    // serves them.
    if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = 0;
  }
  return strides;
}

bool is_dense(const View& view) {
  const Shape dense = dense_strides(view.shape, view.dtype, view.format, view.packed);
  if (element_count(view.shape) == 0) return true;
  for (int i = 0; i < view.shape.rank(); ++i) {
    if (view.shape[i] > 1 && view.strides[i] != dense[i]) return false;
  }
  return true;
}

View value_view(void* data, DType dtype, const Shape& shape) {
  check(is_value(dtype), ErrorCode::wrong_type, "view", "codes need a format; use code_view");
  (void)dense_bytes(shape, dtype, {}, false);
  return {.data = data,
          .dtype = dtype,
          .shape = shape,
          .strides = dense_strides(shape, dtype, {}, false)};
}

View code_view(void* data, const Format& format, const Shape& shape, bool packed) {
  (void)dense_bytes(shape, DType::code, format, packed);
  return {.data = data,
          .dtype = DType::code,
          .format = format,
          .shape = shape,
          .strides = dense_strides(shape, DType::code, format, packed),
          .packed = packed};
}

View as_read_only(View view) {
  view.read_only = true;
  return view;
}

}  // namespace octavo
