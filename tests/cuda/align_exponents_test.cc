// MX exponent alignment on a device: the host's bytes and counts, in one pass or two, and products
// equal to those of MX operands where alignment changed nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/octavo.h"
#include "tests/cuda/device_memory.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

constexpr Device kThere{DeviceKind::cuda, 0};
constexpr AlignTo kBoth[] = {AlignTo::rows, AlignTo::blocks_of_128};

std::string different(const QuantizedTensor& got, const QuantizedTensor& wanted) {
  std::string found;
  for (const auto& [a, b] :
       {std::pair{&got.rowwise, &wanted.rowwise}, std::pair{&got.columnwise, &wanted.columnwise}}) {
    if (!b->exists()) continue;
    if (!same_bytes(to_host(a->codes.view()), b->codes)) found += "codes; ";
    if (!same_bytes(to_host(a->scales.view()), b->scales)) found += "scales; ";
  }
  return found;
}

class AlignOnDevice : public support::CudaTest {};

TEST_F(AlignOnDevice, HasTheBytesOfTheHost) {
  unsigned seed = 0;
  for (const Shape& shape : {Shape{64, 4096}, Shape{33, 512}, Shape{33, 520}, Shape{130, 257},
                             Shape{5, 8200}, Shape{3, 20000}, Shape{2, 40000}, Shape{4, 5, 96},
                             Shape{300}, Shape{1, 1}, Shape{0, 8}, Shape{8, 0}})
    for (const char* name : {"mxfp8", "mxfp8:e5m2"})
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
        for (const AlignTo to : kBoth)
          for (const bool columnwise : {false, true}) {
            ++seed;
            Scaling scaling = preset(name);
            scaling.columnwise = columnwise;
            // With NaN and Inf, which poison whole rows, and without.
            const Tensor values = values_as(
                all_kinds_of_values(element_count(shape), seed, seed % 3 != 0), shape, dtype);
            const QuantizedTensor mx = quantize(values.view(), scaling);
            const Aligned wanted = align_exponents(mx, to);
            const Tensor there = to_device(values.view(), kThere);
            const Aligned got = align_exponents(to_device(mx, kThere), to),
                          at_once = quantize_aligned(there.view(), scaling, to);
            EXPECT_EQ(different(got.tensor, wanted.tensor), "")
                << to_string(shape) << " " << name << " " << dtype_name(dtype);
            EXPECT_EQ(different(at_once.tensor, wanted.tensor), "")
                << to_string(shape) << " " << name << " " << dtype_name(dtype);
            EXPECT_EQ(got.changed, wanted.changed) << to_string(shape);
            EXPECT_EQ(at_once.changed, wanted.changed) << to_string(shape);
            if (HasFailure()) return;
          }
}

// Every code at every distance from the largest exponent, NaN and Inf of both signs among them.
TEST_F(AlignOnDevice, EveryCode) {
  for (const Format& format : {e4m3fn, e5m2}) {
    const Scaling scaling = preset(format == e5m2 ? "mxfp8:e5m2" : "mxfp8");
    const std::int64_t rows = 64, cols = 288;
    const Tensor codes = Tensor::codes({rows, cols}, format),
                 scales = Tensor::codes({rows, cols / 32}, e8m0fnu);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col)
        codes.span<std::uint8_t>()[static_cast<std::size_t>(row * cols + col)] =
            static_cast<std::uint8_t>(col);
      for (std::int64_t block = 0; block < cols / 32; ++block)
        scales.span<std::uint8_t>()[static_cast<std::size_t>(row * (cols / 32) + block)] =
            static_cast<std::uint8_t>(block % 4 == 0 ? 150 : 150 - row);
    }
    const QuantizedTensor mx = quantized_from({rows, cols}, scaling, codes, scales);
    for (const AlignTo to : kBoth) {
      const Aligned wanted = align_exponents(mx, to),
                    got = align_exponents(to_device(mx, kThere), to);
      EXPECT_EQ(different(got.tensor, wanted.tensor), "");
      EXPECT_EQ(got.changed, wanted.changed);
    }
  }
}

// A part of a larger matrix: rows at any address.
TEST_F(AlignOnDevice, ValuesWithGaps) {
  const Tensor all = values_as(usual_values(40, 600, 5), {40, 600}, DType::bf16);
  const Tensor there = to_device(all.view(), kThere);
  for (const std::int64_t first : {0, 1, 8})
    for (const std::int64_t cols : {512, 520, 77}) {
      const auto part = [&](View view) {
        view.data = static_cast<std::byte*>(view.data) + first * 2;
        view.shape = {40, cols};
        return view;
      };
      for (const AlignTo to : kBoth) {
        const Aligned wanted = quantize_aligned(part(all.view()), preset("mxfp8"), to),
                      got = quantize_aligned(part(there.view()), preset("mxfp8"), to);
        EXPECT_EQ(different(got.tensor, wanted.tensor), "") << first << ", " << cols;
        EXPECT_EQ(got.changed, wanted.changed);
      }
    }
}

// Alignment changed nothing, so the product has the bits of that of the MX operands, which are
// aligned by row inside the GEMM.
TEST_F(AlignOnDevice, ProductsAreThoseOfMx) {
  const std::int64_t m = 300, n = 520, k = 1024;
  const auto operand = [&](std::int64_t rows, unsigned seed) {
    std::vector<float> values = usual_values(rows, k, seed);
    for (std::size_t i = 0; i < values.size(); ++i)  // few bits, blocks at most three binades apart
      values[i] = std::round(values[i] * 2.0F + (values[i] < 0 ? -1.0F : 1.0F)) *
                  static_cast<float>(1 << (i / 32 % 4));
    return quantize(to_device(values_as(values, {rows, k}, DType::f32).view(), kThere).view(),
                    preset("mxfp8"));
  };
  const QuantizedTensor a = operand(m, 1), b = operand(n, 2);
  std::int64_t inside = 0;
  const Tensor wanted = gemm(a, b, {.aligned = &inside});
  EXPECT_EQ(inside, 0);
  const Aligned fa = align_exponents(a, AlignTo::rows), fb = align_exponents(b, AlignTo::rows);
  ASSERT_EQ(fa.changed + fb.changed, 0);
  const Tensor got = gemm(fa.tensor, fb.tensor);
  EXPECT_TRUE(same_bytes(to_host(got.view()), to_host(wanted.view())));
}

// Unused features are blocks of zeros, whose exponent is as far from others as possible: operands
// are aligned by row as without them.
TEST_F(AlignOnDevice, BlocksOfZerosChangeNothing) {
  const std::int64_t m = 160, n = 200, k = 1024;
  const auto operand = [&](std::int64_t rows, unsigned seed, bool all_of_a_row) {
    std::vector<float> values = usual_values(rows, k, seed);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < k; ++col)
        if (col / 32 % 7 == 3 || (all_of_a_row && row % 50 == 9))
          values[static_cast<std::size_t>(row * k + col)] = 0.0F;
    return quantize(to_device(values_as(values, {rows, k}, DType::f32).view(), kThere).view(),
                    preset("mxfp8"));
  };
  const QuantizedTensor a = operand(m, 5, true), b = operand(n, 6, false);
  const Tensor got = to_host(gemm(a, b).view()),
               wanted = to_host(gemm(align_exponents(a, AlignTo::rows).tensor,
                                     align_exponents(b, AlignTo::rows).tensor,
                                     {.accumulator = Accumulator::hopper_fp8})
                                    .view());
  EXPECT_TRUE(same_bytes(got, wanted));
}

// The count that a product reports is that of aligning both operands.
TEST_F(AlignOnDevice, CountsAreThoseOfProducts) {
  const std::int64_t m = 200, n = 264, k = 2048;
  const auto operand = [&](std::int64_t rows, unsigned seed) {
    return quantize(
        to_device(values_as(usual_values(rows, k, seed), {rows, k}, DType::bf16).view(), kThere)
            .view(),
        preset("mxfp8"));
  };
  const QuantizedTensor a = operand(m, 3), b = operand(n, 4);
  std::int64_t inside = 0;
  const Tensor wanted = gemm(a, b, {.aligned = &inside});
  const Aligned fa = align_exponents(a, AlignTo::rows), fb = align_exponents(b, AlignTo::rows);
  EXPECT_EQ(fa.changed + fb.changed, inside);
  EXPECT_TRUE(same_bytes(to_host(gemm(fa.tensor, fb.tensor).view()), to_host(wanted.view())));
}

TEST_F(AlignOnDevice, CapturedIntoAGraph) {
  const support::Stream stream;
  for (const AlignTo to : kBoth) {
    const Tensor here = values_as(usual_values(64, 1024, 7), {64, 1024}, DType::bf16);
    const Tensor there = to_device(here.view(), kThere);
    QuantizedTensor out = make_aligned({64, 1024}, DType::bf16, preset("mxfp8"), to, kThere);
    const support::DeviceMemory changed(sizeof(std::int64_t));
    const std::int64_t zero = 0;
    changed.write(std::as_bytes(std::span(&zero, 1)));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    support::must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    quantize_aligned_into(there.view(), preset("mxfp8"), out, {.stream = stream.get()},
                          reinterpret_cast<std::int64_t*>(changed.data()));
    support::must(cudaStreamEndCapture(stream.get(), &graph));
    support::must(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; ++i) support::must(cudaGraphLaunch(ready, stream.get()));
    stream.wait();
    const Aligned wanted = quantize_aligned(here.view(), preset("mxfp8"), to);
    EXPECT_EQ(different(out, wanted.tensor), "");
    std::int64_t counted = 0;
    std::memcpy(&counted, changed.read(0, sizeof counted).data(), sizeof counted);
    EXPECT_EQ(counted, 3 * wanted.changed);
    (void)cudaGraphExecDestroy(ready);
    (void)cudaGraphDestroy(graph);
  }
}

}  // namespace
}  // namespace octavo::testing
