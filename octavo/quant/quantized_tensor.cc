#include "octavo/quant/quantized_tensor.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/quant/scale_order.h"
#include "octavo/scale/tile_scale.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// A view without memory.
View scales_like(const Shape& shape, ScaleFormat format) {
  switch (format) {
    case ScaleFormat::f32:
      return value_view(nullptr, DType::f32, shape);
    case ScaleFormat::bf16:
      return value_view(nullptr, DType::bf16, shape);
    case ScaleFormat::f16:
      return value_view(nullptr, DType::f16, shape);
    default:
      return code_view(nullptr, stored_format(format), shape);
  }
}

QuantizedCopy make_copy(const Shape& shape, const Scaling& scaling, const MakeTensor& make) {
  QuantizedCopy copy;
  const Shape grid = scale_shape(shape, scaling);
  const bool packed = scaling.packed && scaling.format.bits() < 8 && shape.rank() > 0;
  copy.codes = make(code_view(nullptr, scaling.format, shape, packed));
  const Tensor scales = make(scales_like(grid, scaling.scale.format));
  View view = scales.view();
  view.strides =
      scale_strides(view.shape, element_bytes(view.dtype, view.format), scaling.scale_order);
  copy.scales = Tensor::adopt(view, scales.owner());
  if (scaling.scale.format == ScaleFormat::e4m3_f32)
    copy.tensor_scale = make(value_view(nullptr, DType::f32, {}));
  return copy;
}

template <typename Copy>
QuantizedTensor copied(const QuantizedTensor& from, const Copy& copy) {
  QuantizedTensor to = from;
  for (QuantizedCopy* part : {&to.rowwise, &to.columnwise})
    for (Tensor* tensor : {&part->codes, &part->scales, &part->tensor_scale})
      if (tensor->owner() != nullptr) *tensor = copy(tensor->view());
  return to;
}

// The position of element `at` of a dense array, for messages.
std::string position_text(const Shape& shape, std::int64_t at) {
  std::string out;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    out = text(at % shape[i], out.empty() ? "" : ", ", out);
    at /= shape[i];
  }
  return text("(", out, ")");
}

double scale_value(const Tensor& scales, const std::byte* at, std::size_t bytes) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, bytes);
  if (scales.dtype() == DType::f32) return static_cast<double>(__builtin_bit_cast(float, bits));
  if (scales.dtype() == DType::bf16) return decode(bf16_format, bits);
  if (scales.dtype() == DType::f16) return decode(f16_format, bits);
  return decode(scales.format(), bits);
}

// Scales are magnitudes. Negative and infinite ones would be applied without complaint and mean a
// bug elsewhere; but a peer's arithmetic makes Inf of Inf, and what was made can be read back.
void check_each(const Tensor& given, std::string_view what, Arith arith, void* stream) {
  if (given.dtype() == DType::code && !given.format().is_signed) return;
  const Device device = given.view().device;
  check_may_wait(
      {.device = device, .stream = stream}, "quantized",
      "scales cannot be validated, which those that may be negative or infinite need; do "
      "this before the capture begins");
  const Tensor host = device.kind == DeviceKind::cpu ? given : to_host(given.view(), stream);
  const Tensor scales = in_order(host, ScaleOrder::row_major);
  const auto bytes = static_cast<std::size_t>(element_bytes(scales.dtype(), scales.format()));
  const std::span<const std::byte> all = scales.bytes();
  const auto is_magnitude = [&](const std::byte* at) {
    const double value = scale_value(scales, at, bytes);
    return value >= 0 ? !std::isinf(value) || is_peer(arith) : !(value < 0);
  };
  std::array<bool, 256> is_good{};  // of scales of a byte, of which there are many
  for (unsigned code = 0; bytes == 1 && code < is_good.size(); ++code) {
    const auto byte = static_cast<std::byte>(code);
    is_good[code] = is_magnitude(&byte);
  }
  for (std::size_t i = 0; i < all.size(); i += bytes) {
    if (bytes == 1 ? is_good[std::to_integer<std::size_t>(all[i])] : is_magnitude(&all[i]))
      continue;
    const double value = scale_value(scales, &all[i], bytes);
    fail(ErrorCode::invalid_argument, "quantized", "the ", what, " of tile ",
         position_text(scales.shape(), static_cast<std::int64_t>(i / bytes)), " is ", value,
         "; a scale is positive, zero or NaN: ",
         value < 0 ? "give its magnitude, and put signs into the codes"
                   : "give NaN for a tile that holds nothing finite");
  }
}

}  // namespace

std::int64_t QuantizedCopy::nbytes() const {
  if (!exists()) return 0;
  return codes.nbytes() + scales.nbytes() +
         (tensor_scale.owner() != nullptr ? tensor_scale.nbytes() : 0);
}

std::int64_t QuantizedTensor::nbytes() const { return rowwise.nbytes() + columnwise.nbytes(); }

Shape scale_shape(const Shape& shape, const Scaling& scaling) {
  if (scaling.tile == Tile{0, 0}) return {};
  const int rank = shape.rank();
  const int axis = checked_axis(shape, scaling);
  Shape grid = shape;
  if (rank == 0) return grid;
  grid[axis] = tile_count(scaling.tile.cols, shape[axis]);
  if (axis == rank - 1 && rank >= 2)
    grid[rank - 2] = tile_count(scaling.tile.rows, shape[rank - 2]);
  return grid;
}

Device QuantizedTensor::device() const {
  return (rowwise.exists() ? rowwise : columnwise).codes.view().device;
}

QuantizedTensor transposed(const QuantizedTensor& tensor) {
  check(tensor.columnwise.exists(), ErrorCode::invalid_argument, "transposed",
        "the tensor has no columnwise copy; quantize it with columnwise = true");
  QuantizedTensor transpose = tensor;
  transpose.shape = tensor.columnwise.codes.shape();
  std::swap(transpose.rowwise, transpose.columnwise);
  std::swap(transpose.scaling.rowwise, transpose.scaling.columnwise);
  std::swap(transpose.scaling.hadamard.rowwise, transpose.scaling.hadamard.columnwise);
  return transpose;
}

QuantizedTensor to_device(const QuantizedTensor& from, Device device, void* stream) {
  return copied(from, [&](const View& view) { return to_device(view, device, stream); });
}

QuantizedTensor to_host(const QuantizedTensor& from, void* stream) {
  return copied(from, [&](const View& view) { return to_host(view, stream); });
}

QuantizedTensor make_quantized(const Shape& shape, DType source, const Scaling& scaling,
                               Device device, void* stream) {
  return make_quantized(shape, source, scaling, [&](const View& like) {
    return like.dtype == DType::code
               ? codes_on(device, like.shape, like.format, like.packed, stream)
               : values_on(device, like.shape, like.dtype, stream);
  });
}

QuantizedTensor make_quantized(const Shape& shape, DType source, const Scaling& scaling,
                               const MakeTensor& make) {
  check_scaling(scaling);
  QuantizedTensor out;
  out.shape = shape;
  out.source = source;
  out.scaling = scaling;
  if (scaling.rowwise) out.rowwise = make_copy(shape, scaling, make);
  if (scaling.columnwise) out.columnwise = make_copy(transposed_shape(shape), scaling, make);
  return out;
}

QuantizedTensor quantized_from(const Shape& shape, const Scaling& scaling, const Tensor& codes,
                               const Tensor& scales, const Tensor& tensor_scale, void* stream,
                               bool validate) {
  constexpr std::string_view kOp = "quantized";
  check_scaling(scaling);
  const auto need = [&](bool holds, const auto&... parts) {
    if (!holds) fail(ErrorCode::invalid_argument, kOp, parts...);
  };
  need(codes.dtype() == DType::code && codes.format() == scaling.format,
       "the codes are not codes of ", format_name(scaling.format));
  need(codes.shape() == shape, "the codes have shape ", to_string(codes.shape()),
       "; expected that of the tensor, ", to_string(shape));
  const Shape grid = scale_shape(shape, scaling);
  need(scales.shape() == grid, "the scales have shape ", to_string(scales.shape()), "; expected ",
       to_string(grid), " for ", describe(scaling), " of ", to_string(shape));
  const View wanted = scales_like({0}, scaling.scale.format);
  need(scales.dtype() == wanted.dtype &&
           (scales.dtype() != DType::code || scales.format() == wanted.format),
       "the scales are ",
       scales.dtype() == DType::code ? format_name(scales.format())
                                     : std::string(dtype_name(scales.dtype())),
       "; expected ", name_of(scaling.scale.format));
  check_view(codes.view(), kOp, "codes");
  check_view(scales.view(), kOp, "scales");
  const bool two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
  need(two_levels == (tensor_scale.owner() != nullptr),
       two_levels ? "scales of e4m3 come with one f32 scale of the tensor, and there is none"
                  : "got a tensor scale, which only scales of e4m3 have");
  std::vector<NamedView> views{{&codes.view(), "codes"}, {&scales.view(), "scales"}};
  if (two_levels) {
    check_view(tensor_scale.view(), kOp, "the tensor scale");
    views.push_back({&tensor_scale.view(), "the tensor scale"});
  }
  (void)common_device(views, kOp);
  const auto lies = [&](ScaleOrder order) { return is_ordered(scales.view(), order); };
  const ScaleOrder order = lies(scaling.scale_order)     ? scaling.scale_order
                           : lies(ScaleOrder::row_major) ? ScaleOrder::row_major
                                                         : ScaleOrder::col_major;
  need(lies(order),
       "the scales have gaps between them; expected them contiguous: row-major, or "
       "column-major with all dimensions but the last as one");
  if (validate) check_each(scales, "scale", scaling.scale.arith, stream);
  if (two_levels) {
    need(tensor_scale.dtype() == DType::f32 && element_count(tensor_scale.shape()) == 1,
         "the tensor scale must be one float32");
    if (validate) check_each(tensor_scale, "tensor scale", scaling.scale.arith, stream);
  }
  Scaling stored = scaling;
  stored.scale_order = order;
  stored.rowwise = true;
  stored.columnwise = false;
  if (scaling.format.bits() < 8) stored.packed = codes.view().packed;
  return {.shape = shape,
          .source = DType::f32,
          .scaling = stored,
          .rowwise = {.codes = codes, .scales = scales, .tensor_scale = tensor_scale},
          .columnwise = {}};
}

void check_scales(const QuantizedTensor& tensor, void* stream) {
  for (const QuantizedCopy* copy : {&tensor.rowwise, &tensor.columnwise}) {
    if (!copy->exists()) continue;
    check_each(copy->scales, "scale", tensor.scaling.scale.arith, stream);
    if (copy->tensor_scale.owner() != nullptr)
      check_each(copy->tensor_scale, "tensor scale", tensor.scaling.scale.arith, stream);
  }
}

}  // namespace octavo
