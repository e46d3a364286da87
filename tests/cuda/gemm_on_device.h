// Shared by tests of GEMM on a device: operands for the kernel table, values whose sums are exact,
// and reports of wrong elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/cuda/device_memory.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {

inline constexpr Device kThere{DeviceKind::cuda, 0};

inline constexpr Exec kExecThere{.device = kThere};

// Of rank two, or a scalar.
inline Matrix matrix_of(const View& view) {
  const bool per_tensor = view.shape.rank() == 0;
  const std::int64_t each = element_bytes(view.dtype, view.format);
  return {.data = view.data,
          .dtype = view.dtype,
          .format = view.format,
          .rows = per_tensor ? 1 : view.shape[0],
          .cols = per_tensor ? 1 : view.shape[1],
          .row_pitch = per_tensor ? each : view.strides[0],
          .col_stride = per_tensor ? each : view.strides[1]};
}

inline GemmOperand operand_of(const Tensor& values) { return {.values = matrix_of(values.view())}; }

inline GemmOperand operand_of(const QuantizedTensor& tensor) {
  GemmOperand made;
  made.quantized.codes = matrix_of(tensor.rowwise.codes.view());
  made.quantized.scales = matrix_of(tensor.rowwise.scales.view());
  made.quantized.tile = tensor.scaling.tile;
  return made;
}

// NaN shows elements that are not written.
inline Tensor empty_there(std::int64_t rows, std::int64_t cols, DType dtype) {
  const std::vector<float> values(static_cast<std::size_t>(rows * cols),
                                  std::numeric_limits<float>::quiet_NaN());
  return to_device(values_as(values, {rows, cols}, dtype).view(), kThere);
}

// usual_values, quantized by the definition.
inline QuantizedTensor usual_operand(const Scaling& scaling, std::int64_t rows, std::int64_t cols,
                                     unsigned seed) {
  return quantize(values_as(usual_values(rows, cols, seed), {rows, cols}, DType::f32).view(),
                  scaling, {.backend = &reference_backend()});
}

inline Scaling scaling_of(const std::string& name, const Format& format) {
  Scaling scaling = preset(name);
  scaling.format = format;
  return scaling;
}

// The reference's model of Hopper's FP8 tensor cores.
inline Tensor model_of(const Operand& a, const Operand& b, DType out = DType::f32) {
  return gemm(
      a, b, {.out = out, .accumulator = Accumulator::hopper_fp8, .backend = &reference_backend()});
}

// From -8 to 8: a sum of 2^17 products is below 2^24.
inline std::vector<float> integers(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (float& x : values) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return values;
}

// Counts wrong elements, with the first of them, and the rows and columns that they are in: enough
// to see whether an edge, a tile, a warpgroup's rows or everything is wrong.
class Wrong {
 public:
  void add(std::int64_t row, std::int64_t col, double got, double wanted) {
    if (count_++ == 0)
      first_ = text("row ", row, ", column ", col, ": got ", got, "; expected ", wanted);
    top_ = std::min(top_, row), bottom_ = std::max(bottom_, row);
    left_ = std::min(left_, col), right_ = std::max(right_, col);
  }
  [[nodiscard]] std::string report() const {
    if (count_ == 0) return "";
    return text(count_, " wrong, in rows ", top_, " to ", bottom_, ", columns ", left_, " to ",
                right_, ", first ", first_);
  }

 private:
  std::int64_t count_ = 0, top_ = 1 << 30, bottom_ = -1, left_ = 1 << 30, right_ = -1;
  std::string first_;
};

// Of two results on the host. NaN equals NaN.
inline std::string differences(const Tensor& got, const Tensor& wanted) {
  if (got.shape() != wanted.shape()) return "another shape";
  Wrong wrong;
  for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
    const double other = oracle::number_at(wanted.view(), row, col);
    if (value != other && !(value != value && other != other)) wrong.add(row, col, value, other);
  });
  return wrong.report();
}

using support::Graph;

inline double sum_of(const std::vector<float>& a, const std::vector<float>& b, std::int64_t row,
                     std::int64_t col, std::int64_t k) {
  double sum = 0;
  for (std::int64_t i = 0; i < k; ++i)
    sum += static_cast<double>(a[static_cast<std::size_t>(row * k + i)]) *
           static_cast<double>(b[static_cast<std::size_t>(col * k + i)]);
  return sum;
}

}  // namespace octavo::testing
