#include "octavo/model/gptq/gptq.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/thread_pool.h"
#include "octavo/convert/convert.h"
#include "octavo/model/gptq/cholesky_internal.h"
#include "octavo/model/gptq/gptq_factor_internal.h"
#include "octavo/model/gptq/tile_rounding_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace gptq_detail {
namespace {

constexpr const char* kOp = "gptq";
constexpr std::int64_t kBlock = 128;      // columns whose errors reach the next ones at once
constexpr std::int64_t kRowsOfPart = 16;  // that a thread takes at a time

View part_of(const View& view, std::int64_t row, std::int64_t rows, std::int64_t cols) {
  View out = view;
  out.data = static_cast<std::byte*>(view.data) + row * view.strides[0];
  out.shape = {rows, cols};
  return out;
}

// Rows of the factor within a block of columns, transposed: [i][j] is M_ij.
using BlockFactor = std::array<std::array<float, kBlock>, kBlock>;

void take_block(const GptqFactor& factor, std::int64_t first, std::int64_t count,
                BlockFactor& block) {
  const float* const below = factor.below.span<float>().data();
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t i = 0; i < count; ++i)
      block[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] =
          below[(first + j) * factor.width + first + i];
}

// Sums over the rows of D of d_j r_j^2 (gptq_factor_internal.h), less what damping adds: tr(D H
// D^T). `errors`, [N, K] in the order of columns, is D, which `pick` gives number by number:
// pick(row, j, s) is D_j of that row, where s is the sum that the numbers before j make. Rows are
// independent, and each is summed in one order.
template <typename Pick>
double walk_columns(const GptqFactor& factor, const Tensor& errors, int threads, const Pick& pick) {
  const std::int64_t rows = errors.shape()[0], width = factor.width;
  std::vector<double> sums(static_cast<std::size_t>(rows));
  const auto block = std::make_unique<BlockFactor>();
  const Tensor carried = Tensor::values({rows, kBlock}, DType::f32);
  float* const error = errors.span<float>().data();
  for (std::int64_t first = 0; first < width; first += kBlock) {
    const std::int64_t count = std::min(kBlock, width - first);
    View carry = carried.view();
    carry.shape = {rows, count};
    carry.strides = dense_strides(carry.shape, DType::f32, {}, false);
    if (first > 0) {
      gemm_into(part_of(errors.view(), 0, rows, first),
                part_of(factor.below.view(), first, count, first), carry,
                {.accumulator = Accumulator::f32, .threads = threads});
    } else {
      std::ranges::fill(carried.span<float>(), 0.0F);
    }
    take_block(factor, first, count, *block);
    const auto parts = static_cast<int>((rows + kRowsOfPart - 1) / kRowsOfPart);
    parallel_for(parts, threads, [&](int part) {
      const FpEnvGuard guard;
      const std::int64_t end = std::min(rows, (part + 1) * kRowsOfPart);
      for (std::int64_t row = part * kRowsOfPart; row < end; ++row) {
        float* const s = static_cast<float*>(carry.data) + row * count;
        double sum = 0.0;
        for (std::int64_t j = 0; j < count; ++j) {
          const float e = pick(row, first + j, s[j]);
          error[row * width + first + j] = e;
          const double r = static_cast<double>(e) + static_cast<double>(s[j]);
          sum += factor.diagonal[static_cast<std::size_t>(first + j)] * r * r -
                 factor.damping * static_cast<double>(e) * static_cast<double>(e);
          const auto& reach = (*block)[static_cast<std::size_t>(j)];
          for (std::int64_t k = j + 1; k < count; ++k)
            s[k] += e * reach[static_cast<std::size_t>(k)];
        }
        sums[static_cast<std::size_t>(row)] += sum;
      }
    });
  }
  double sum = 0.0;
  for (const double of_row : sums) sum += of_row;
  return std::max(sum, 0.0);
}

void check_weight(const View& weight, const GptqFactor& factor, std::string_view what) {
  check(weight.shape.rank() == 2 && weight.shape[1] == factor.width && is_value(weight.dtype),
        ErrorCode::invalid_argument, kOp, what, " has shape ", to_string(weight.shape),
        "; expected values [N, ", factor.width, "], the width of its Hessian");
}

}  // namespace

GptqResult gptq_with(const GptqFactor& factor, const View& weight, const Scaling& scaling,
                     const GptqOptions& options, std::string_view what) {
  check_weight(weight, factor, what);
  GptqResult out;
  out.codes = quantize(weight, scaling,
                       {.threads = options.threads,
                        .given_amax = options.given_amax,
                        .column_weights = options.column_weights});
  const TileRounding rounding(out.codes);
  const std::int64_t rows = weight.shape[0], width = factor.width;
  if (rows == 0 || width == 0) return out;
  const auto column = [&](std::int64_t j) {
    return factor.order.empty() ? j : factor.order[static_cast<std::size_t>(j)];
  };
  const LinearRun run{.threads = options.threads};
  const Tensor values = converted(weight, DType::f32, kOp, run);
  const Tensor rounded = dequantize(out.codes, DType::f32, {.threads = options.threads});
  const Tensor errors = Tensor::values(weight.shape, DType::f32);
  const float* const w = values.span<float>().data();
  float* const nearest = rounded.span<float>().data();
  // Errors are relative to the results themselves, which are those of W in place of D.
  const double whole = walk_columns(
      factor, errors, options.threads,
      [&](std::int64_t row, std::int64_t j, float) { return w[row * width + column(j)]; });
  check(std::isfinite(whole), ErrorCode::invalid_argument, kOp, what,
        " has NaN or Inf; expected finite weights");
  const double by_rounding =
      walk_columns(factor, errors, options.threads, [&](std::int64_t row, std::int64_t j, float) {
        const std::int64_t at = row * width + column(j);
        return w[at] - nearest[at];
      });
  // What codes mean, without their scales; it takes the place of what rounding gave.
  float* const codes = nearest;
  const double by_gptq =
      walk_columns(factor, errors, options.threads, [&](std::int64_t row, std::int64_t j, float s) {
        const std::int64_t col = column(j), at = row * width + col;
        const RoundedNumber number = rounding.round(row, col, w[at] + s);
        codes[at] = number.code;
        return w[at] - number.value;
      });
  check(std::isfinite(by_gptq), ErrorCode::invalid_argument, kOp, what,
        " has scales or Hessians beyond float32; expected finite results");
  encode(rounded.view(), out.codes.rowwise.codes.view(), {}, {.threads = options.threads});
  const double one = whole > 0.0 ? whole : 1.0;
  out.error = by_gptq / one;
  out.rounded_error = by_rounding / one;
  return out;
}

}  // namespace gptq_detail

std::string why_gptq_is_unavailable() {
  if (gptq_detail::has_cholesky()) return {};
  return "octavo was built without Eigen, which factors Hessians; install it (Debian: "
         "libeigen3-dev) and build octavo again";
}

std::string_view name_of(ColumnOrder order) {
  return order == ColumnOrder::natural ? "natural" : "activation";
}

ColumnOrder parse_column_order(std::string_view name) {
  for (const ColumnOrder order : {ColumnOrder::natural, ColumnOrder::activation})
    if (name == name_of(order)) return order;
  fail(ErrorCode::invalid_argument, "gptq", "got the order of columns '", shown(name),
       "'; expected natural or activation");
}

GptqResult gptq(const View& weight, const View& hessian, const Scaling& scaling,
                const GptqOptions& options) {
  constexpr const char* kName = "the layer";
  const FpEnvGuard guard;  // sums and factors are computed on this thread, too
  const Shape& shape = hessian.shape;
  check(shape.rank() == 2 && shape[0] == shape[1] && is_dense(hessian) &&
            (hessian.dtype == DType::f32 || hessian.dtype == DType::f64) &&
            hessian.device.kind == DeviceKind::cpu && weight.device.kind == DeviceKind::cpu,
        ErrorCode::invalid_argument, gptq_detail::kOp, "the Hessian is ",
        is_value(hessian.dtype) ? dtype_name(hessian.dtype) : "codes", " of shape ",
        to_string(shape), "; expected dense float32 or float64 [K, K] on the CPU");
  check(weight.shape.rank() == 2 && weight.shape[1] == shape[0], ErrorCode::invalid_argument,
        gptq_detail::kOp, "the weight has shape ", to_string(weight.shape), "; expected [N, ",
        shape[0], "], the width of its Hessian");
  gptq_detail::check_scaling_fits(scaling);  // before the factorisation, which takes long
  const auto count = static_cast<std::size_t>(element_count(shape));
  std::vector<double> values(count);
  if (hessian.dtype == DType::f64)
    std::copy_n(static_cast<const double*>(hessian.data), count, values.begin());
  else
    std::copy_n(static_cast<const float*>(hessian.data), count, values.begin());
  const gptq_detail::GptqFactor factor =
      gptq_detail::factor_hessian(std::move(values), shape[0], options, kName);
  return gptq_detail::gptq_with(factor, weight, scaling, options, kName);
}

}  // namespace octavo
