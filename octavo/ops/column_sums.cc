#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/exec/place_internal.h"
#include "octavo/ops/column_sums_internal.h"
#include "octavo/ops/gemm.h"

namespace octavo {
namespace {

// A vector as the one row of a matrix.
View as_row(const View& vector) {
  View row = vector;
  row.shape = {1, vector.shape[0]};
  row.strides = {vector.shape[0] * vector.strides[0], vector.strides[0]};
  return row;
}

Matrix matrix_of(const View& view) {
  return {.data = view.data,
          .dtype = view.dtype,
          .rows = view.shape[0],
          .cols = view.shape[1],
          .row_pitch = view.strides[0],
          .col_stride = view.strides[1]};
}

void sums_on_device(const View& values, const View& sums, const ColumnSumsOptions& options,
                    std::string_view op) {
  std::vector<NamedView> views{{&values, "the values to sum"}, {&sums, "the sums"}};
  const bool adds = options.before.data != nullptr;
  if (adds) views.push_back({&options.before, "the sums so far"});
  const Exec exec = make_exec_on(views, element_count(values.shape), options, op);
  const auto entry = offered(exec, options.backend, &Kernels::column_sums, op);
  entry(exec, matrix_of(values), adds ? matrix_of(as_row(options.before)) : Matrix{},
        matrix_of(as_row(sums)));
}

}  // namespace

void column_sums_into(const View& values, const View& sums, const ColumnSumsOptions& options,
                      std::string_view op) {
  if (values.device.kind != DeviceKind::cpu) return sums_on_device(values, sums, options, op);
  static constexpr float kOne = 1.0F;  // one is enough for a row of ones
  View ones = as_read_only(value_view(const_cast<float*>(&kOne), DType::f32, {1}));
  ones.shape = {1, values.shape[0]};
  ones.strides = {0, 0};
  View transposed = values;
  transposed.shape = {values.shape[1], values.shape[0]};
  transposed.strides = {values.strides[1], values.strides[0]};
  GemmOptions product{.threads = options.threads, .backend = options.backend, .log = options.log};
  if (values.dtype == DType::f64 || sums.dtype == DType::f64)
    product.accumulator = Accumulator::f64;
  if (options.before.data != nullptr) product.residual = as_row(options.before);
  gemm_into(ones, transposed, as_row(sums), product);
}

}  // namespace octavo
