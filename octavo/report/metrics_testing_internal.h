// Oracle of the metrics, written from docs/numerics/metrics.md: one loop over a whole dequantized
// copy.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/quantize.h"
#include "octavo/round/encode.h"

namespace octavo::testing {

// Element i of a view of any strides, in row-major order.
inline double value_at(const View& view, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
    offset += i % view.shape[axis] * view.strides[axis];
    i /= view.shape[axis];
  }
  const std::byte* at = static_cast<const std::byte*>(view.data) + offset;
  switch (view.dtype) {
    case DType::f64:
      return *reinterpret_cast<const double*>(at);
    case DType::f32:
      return static_cast<double>(*reinterpret_cast<const float*>(at));
    case DType::f16:
      return decode(f16_format, *reinterpret_cast<const std::uint16_t*>(at));
    case DType::bf16:
      return decode(bf16_format, *reinterpret_cast<const std::uint16_t*>(at));
    case DType::code:
      break;
  }
  return decode(view.format, view.format.code_bytes() == 1
                                 ? std::to_integer<std::uint32_t>(*at)
                                 : *reinterpret_cast<const std::uint16_t*>(at));
}

// Which scale element i has: its position divided by the tile, along the last two dimensions, or
// along the axis.
inline std::int64_t tile_of(const QuantizedTensor& q, std::int64_t i) {
  const Scaling& scaling = q.scaling;
  if (scaling.tile == Tile{0, 0} || q.shape.rank() == 0) return 0;
  const int rank = q.shape.rank();
  const int axis = scaling.axis < 0 ? scaling.axis + rank : scaling.axis;
  const Shape grid = scale_shape(q.shape, scaling);
  std::int64_t at[kMaxRank] = {}, index = 0;
  for (int d = rank - 1; d >= 0; --d) {
    at[d] = i % q.shape[d];
    i /= q.shape[d];
  }
  at[axis] /= tile_extent(scaling.tile.cols, q.shape[axis]);
  if (axis == rank - 1 && rank >= 2)
    at[rank - 2] /= tile_extent(scaling.tile.rows, q.shape[rank - 2]);
  for (int d = 0; d < rank; ++d) index = index * grid[d] + at[d];
  return index;
}

struct Expected {
  long double error2 = 0, value2 = 0, result2 = 0, product = 0;
  std::int64_t count = 0, finite = 0, saturated = 0, flushed = 0;
  std::int64_t nan_in = 0, inf_in = 0, nan_out = 0, inf_out = 0;
  double max_abs = 0, max_relative = 0, amax = 0;
  std::vector<long double> row_error2, tile_error2;
  std::vector<std::int64_t> row_count, tile_count;
  std::vector<double> tile_max_abs;
};

// Of the rowwise copy.
inline Expected expected_metrics(const View& values, const QuantizedTensor& q) {
  Expected out;
  const Tensor back = dequantize(q, DType::f32);
  const std::int64_t n = element_count(values.shape);
  const int rank = values.shape.rank();
  const std::int64_t cols = rank == 0 ? 1 : values.shape[rank - 1];
  const Format& format = q.scaling.format;
  const double top = decode(format, format.max_field()),
               step = top - decode(format, format.max_field() - 1);
  const View& scales = q.rowwise.scales.view();
  const double tensor_scale =
      q.rowwise.tensor_scale.owner() ? value_at(q.rowwise.tensor_scale.view(), 0) : 1.0;
  out.tile_error2.resize(static_cast<std::size_t>(element_count(scales.shape)));
  out.tile_count.resize(out.tile_error2.size());
  out.tile_max_abs.resize(out.tile_error2.size());
  out.row_error2.resize(static_cast<std::size_t>(cols > 0 ? n / cols : 0));
  out.row_count.resize(out.row_error2.size());
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = value_at(values, i), y = value_at(back.view(), i);
    const auto tile = static_cast<std::size_t>(tile_of(q, i)),
               row = static_cast<std::size_t>(i / cols);
    out.nan_in += std::isnan(x);
    out.inf_in += std::isinf(x);
    out.nan_out += std::isnan(y);
    out.inf_out += std::isinf(y);
    if (!std::isfinite(x)) continue;
    const double scale = value_at(scales, static_cast<std::int64_t>(tile)) * tensor_scale;
    ++out.finite;
    out.amax = std::fmax(out.amax, std::fabs(x));
    out.saturated += scale > 0 && (x > (top + step / 2) * scale ||
                                   x < (lowest_value(format) - step / 2) * scale);
    out.flushed += x != 0 && y == 0;
    if (!std::isfinite(y)) continue;
    const double error = std::fabs(x - y);
    ++out.count;
    ++out.row_count[row];
    ++out.tile_count[tile];
    const long double error2 = static_cast<long double>(error) * error;
    out.error2 += error2;
    out.row_error2[row] += error2;
    out.tile_error2[tile] += error2;
    out.value2 += static_cast<long double>(x) * x;
    out.result2 += static_cast<long double>(y) * y;
    out.product += static_cast<long double>(x) * y;
    out.max_abs = std::fmax(out.max_abs, error);
    out.tile_max_abs[tile] = std::fmax(out.tile_max_abs[tile], error);
    if (x != 0) out.max_relative = std::fmax(out.max_relative, error / std::fabs(x));
  }
  return out;
}

// A stack of matrices with a few of everything, to be quantized.
inline Tensor sample_values(const Shape& shape, DType dtype, bool finite = false) {
  Tensor out = Tensor::values(shape, DType::f32);
  std::uint32_t state = 12345;
  const auto next = [&] { return state = state * 1664525u + 1013904223u, state >> 8; };
  std::int64_t i = 0;
  for (float& x : out.span<float>()) {
    x = (static_cast<float>(next() % 2001) - 1000.0F) *
        std::exp2(static_cast<float>(static_cast<int>(next() % 24) - 12));
    if (i % 97 == 5) x = 0.0F;
    if (i % 211 == 7) x *= 0x1p-100F;
    if (!finite && i == 300) x = std::numeric_limits<float>::quiet_NaN();
    if (!finite && i == 701) x = -std::numeric_limits<float>::infinity();
    ++i;
  }
  if (dtype == DType::f32) return out;
  Tensor other = Tensor::values(shape, dtype);
  const auto from = out.span<float>();
  for (std::size_t at = 0; at < from.size(); ++at) {
    const auto x = static_cast<double>(from[at]);
    if (dtype == DType::f64) {
      other.span<double>()[at] = x * (1 + 0x1p-40);
    } else {
      const Format& format = dtype == DType::f16 ? f16_format : bf16_format;
      other.span<std::uint16_t>()[at] = static_cast<std::uint16_t>(
          encode_value(format, x, {.overflow = Overflow::propagate}).code);
    }
  }
  return other;
}

}  // namespace octavo::testing
