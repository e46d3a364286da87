#include <cstring>

#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/nn/converted_internal.h"

namespace octavo {
namespace {

// The same memory as codes of 16 bits: bf16 and f16 are formats like others.
View as_codes(View values) {
  values.format = values.dtype == DType::bf16 ? bf16_format : f16_format;
  values.dtype = DType::code;
  return values;
}

bool is_short(DType type) { return type == DType::bf16 || type == DType::f16; }

// Rows of bytes from one array of any strides to another, the last dimension dense in both.
void copy_rows(const View& from, const View& to, int axis) {
  if (axis == from.shape.rank() - 1) {
    const std::int64_t width = element_bytes(from.dtype);
    if (from.strides[axis] == width && to.strides[axis] == width) {
      std::memcpy(to.data, from.data, static_cast<std::size_t>(from.shape[axis] * width));
      return;
    }
    for (std::int64_t i = 0; i < from.shape[axis]; ++i)
      std::memcpy(static_cast<std::byte*>(to.data) + i * to.strides[axis],
                  static_cast<const std::byte*>(from.data) + i * from.strides[axis],
                  static_cast<std::size_t>(width));
    return;
  }
  View source = from, target = to;
  for (std::int64_t i = 0; i < from.shape[axis]; ++i) {
    source.data = static_cast<std::byte*>(from.data) + i * from.strides[axis];
    target.data = static_cast<std::byte*>(to.data) + i * to.strides[axis];
    copy_rows(source, target, axis + 1);
  }
}

}  // namespace

void convert_into(const View& from, const View& to, std::string_view op, const LinearRun& run) {
  for (const View* view : {&from, &to})
    check(view->dtype == DType::f32 || is_short(view->dtype), ErrorCode::wrong_type, op, "got ",
          is_value(view->dtype) ? dtype_name(view->dtype) : "codes",
          "; expected float32, bfloat16 or float16");
  if (element_count(from.shape) == 0) return;
  if (from.dtype == to.dtype) return copy_rows(from, to, 0);
  const ConvertOptions options{
      .threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream};
  if (is_short(to.dtype))
    return encode(is_short(from.dtype) ? as_codes(from) : from, as_codes(to),
                  {.overflow = Overflow::ieee}, options);
  decode(as_codes(from), to, options);
}

Tensor converted(const View& from, DType type, std::string_view op, const LinearRun& run) {
  Tensor to = Tensor::values(from.shape, type);
  convert_into(from, to.view(), op, run);
  return to;
}

}  // namespace octavo
