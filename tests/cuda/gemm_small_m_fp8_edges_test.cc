// Small M GEMM by FP8 weights at its limits: non-finite and extreme codes and scales, and memory
// that ends where operands do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "tests/cuda/gemm_on_device.h"
#include "tests/cuda/small_m_fp8_cases.h"

namespace octavo::testing {
namespace {

class GemmSmallMFp8Edges : public support::CudaTest {};

// NaN and Inf codes: IEEE results, in their own row alone.
TEST_F(GemmSmallMFp8Edges, CodesThatAreNoNumbers) {
  for (const char* name : {"mxfp8", "mxfp8:e5m2", "fp8-channel", "fp8:e5m2", "fp8-block"})
    for (const std::int64_t k : {768, 336}) {
      const std::int64_t n = 200;
      QuantizedTensor w = exact_weights(quantized_as(name), n, k).tensor;
      const bool has_inf = w.scaling.format == e5m2;
      for (std::int64_t row = 0; row < n; row += 3) {
        const unsigned code = row % 2 == 0 ? 0x7Fu : has_inf ? 0xFCu : 0xFFu;
        w.rowwise.codes.bytes()[static_cast<std::size_t>(row * k + row * 41 % k)] =
            static_cast<std::byte>(code);
      }
      const Tensor x = values_as(integers(5, k, 8), {5, k}, DType::bf16);
      const oracle::Numbers values = oracle::numbers_of(x.view()), numbers = oracle::numbers_of(w);
      const Tensor got = to_host(gemm(to_device(x.view(), kThere), to_device(w, kThere)).view());
      Wrong wrong;
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const double wanted = oracle::element_of(values, numbers, row, col).sum;
        if (std::isnan(wanted) ? !std::isnan(value) : value != wanted)
          wrong.add(row, col, value, wanted);
      });
      EXPECT_EQ(wrong.report(), "") << name << ", K " << k;
    }
}

// The smallest and the largest scales, and NaN.
TEST_F(GemmSmallMFp8Edges, AnyScale) {
  for (const char* name : {"mxfp8", "mxfp8:e5m2", "fp8-channel", "fp8-1x128"})
    for (const std::int64_t k : {512, 352}) {
      const std::int64_t n = 256;
      QuantizedTensor w = quantize(values_as(usual_values(n, k, 3), {n, k}, DType::f32).view(),
                                   preset(name), {.backend = &reference_backend()});
      set_scales(w, [](std::int64_t row) {  // row r has the scale of the code r of e8m0
        return static_cast<float>(decode(e8m0fnu, static_cast<unsigned>(row)));
      });
      const Tensor x = values_as(usual_values(3, k, 4), {3, k}, DType::bf16);
      const oracle::Numbers values = oracle::numbers_of(x.view()), numbers = oracle::numbers_of(w);
      const Tensor got = to_host(gemm(to_device(x.view(), kThere), to_device(w, kThere)).view());
      Wrong wrong;
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const oracle::Element exact = oracle::element_of(values, numbers, row, col);
        if (exact.magnitude > 0x1p112) return;  // Inf on the way, where the largest code is 2^15
        const double bound = oracle::bound_f32(k, exact.magnitude);
        const bool right =
            std::isnan(exact.sum) ? std::isnan(value) : std::fabs(value - exact.sum) <= bound;
        if (!right) wrong.add(row, col, value, exact.sum);
      });
      EXPECT_EQ(wrong.report(), "") << name << ", K " << k;
    }
}

// A matrix with gaps between rows and after the last one: all ones, which is NaN in every type that
// is read here.
class WithGaps {
 public:
  WithGaps(const View& rows, std::int64_t row_bytes, std::int64_t pitch)
      : matrix_(matrix_of(rows)), memory_(static_cast<std::size_t>(pitch * matrix_.rows + kAfter)) {
    std::vector<std::byte> bytes(memory_.size(), std::byte{0xFF});
    for (std::int64_t row = 0; row < matrix_.rows; ++row)
      std::memcpy(bytes.data() + row * pitch,
                  static_cast<const std::byte*>(matrix_.data) + row * matrix_.row_pitch,
                  static_cast<std::size_t>(row_bytes));
    memory_.write(bytes);
    matrix_.data = memory_.data();
    matrix_.row_pitch = pitch;
  }
  [[nodiscard]] const Matrix& matrix() const { return matrix_; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return memory_.read(0, memory_.size()); }
  // Whether gaps are unchanged.
  [[nodiscard]] bool has_gaps(const std::vector<std::byte>& bytes, std::int64_t row_bytes) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const bool is_gap =
          at / matrix_.row_pitch >= matrix_.rows || at % matrix_.row_pitch >= row_bytes;
      if (is_gap && bytes[i] != std::byte{0xFF}) return false;
    }
    return true;
  }
  [[nodiscard]] float at(const std::vector<std::byte>& bytes, std::int64_t row,
                         std::int64_t col) const {
    float value = 0;
    std::memcpy(&value, bytes.data() + row * matrix_.row_pitch + col * 4, sizeof(value));
    return value;
  }

 private:
  static constexpr std::int64_t kAfter = 4096;

  Matrix matrix_;
  support::DeviceMemory memory_;
};

// Nothing beyond the end of a row is read, or affects the result, and nothing is written there.
TEST_F(GemmSmallMFp8Edges, BeyondTheEnd) {
  for (const OperandKind& kind : fp8_kinds())
    for (const Sizes& sizes : {Sizes{3, 37, 512}, Sizes{32, 65, 560}, Sizes{9, 8195, 48}})
      for (const std::int64_t gap : {16, 48, 8}) {  // with 8, another kernel is chosen
        const ExactWeights w = exact_weights(kind, sizes.n, sizes.k);
        const std::vector<float> values = integers(sizes.m, sizes.k, 8);
        const Tensor x = values_as(values, {sizes.m, sizes.k}, DType::bf16),
                     nothing =
                         values_as(std::vector<float>(static_cast<std::size_t>(sizes.m * sizes.n)),
                                   {sizes.m, sizes.n}, DType::f32);
        const View codes = w.tensor.rowwise.codes.view(), scales = w.tensor.rowwise.scales.view();
        const Matrix scale_matrix = matrix_of(scales);
        const std::int64_t scale_bytes =
            scale_matrix.cols * element_bytes(scales.dtype, scales.format);
        if (scale_matrix.cols > 1 && scale_matrix.col_stride > scale_bytes) continue;  // by column
        const WithGaps x_there(x.view(), sizes.k * 2, sizes.k * 2 + 32),
            codes_there(codes, sizes.k, sizes.k + gap),
            scales_there(scales, scale_bytes, scale_bytes + 4 * gap),
            out(nothing.view(), sizes.n * 4, sizes.n * 4 + 12);
        GemmJob job{.accumulator = Accumulator::native};
        job.a.values = x_there.matrix();
        job.b.quantized = {.codes = codes_there.matrix(),
                           .scales = scales_there.matrix(),
                           .tile = w.tensor.scaling.tile};
        job.out = out.matrix();
        const std::string where = text(kind.name, ", ", to_text(sizes), ", gaps of ", gap);
        ASSERT_EQ(cuda::fits_small_m_fp8_weights(job.b), gap % 16 == 0) << where;
        cuda::gemm_matrix(kExecThere, job);
        support::must(cudaDeviceSynchronize());
        const std::vector<std::byte> bytes = out.bytes();
        EXPECT_TRUE(out.has_gaps(bytes, sizes.n * 4)) << where;
        Wrong wrong;
        const std::int64_t step = sizes.n > 1000 ? 97 : 1;
        for (std::int64_t row = 0; row < sizes.m; ++row)
          for (std::int64_t col = (sizes.n - 1) % step; col < sizes.n; col += step) {
            const auto value = static_cast<double>(out.at(bytes, row, col));
            const double wanted = sum_of(values, w.numbers, row, col, sizes.k);
            if (value != wanted) wrong.add(row, col, value, wanted);
          }
        EXPECT_EQ(wrong.report(), "") << where;
      }
}

}  // namespace
}  // namespace octavo::testing
