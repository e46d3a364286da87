// A quantized product on the device, in row blocks where it is large: the bytes of the two calls
// one after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "tests/cuda/gemm_forced.h"
#include "tests/cuda/gemm_on_device.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

constexpr Device kThere{DeviceKind::cuda, 0};

std::string different_bytes(const Tensor& got, const Tensor& wanted, const char* what) {
  const Tensor a = to_host(got.view()), b = to_host(wanted.view());
  const auto x = a.bytes(), y = b.bytes();
  if (x.size() != y.size()) return text(what, " have another size; ");
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = x.size(); i-- > 0;)
    if (x[i] != y[i]) ++wrong, first = i;
  return wrong == 0 ? "" : text(what, ": ", wrong, " bytes wrong, first ", first, "; ");
}

class GemmQuantizedOnDevice : public support::CudaTest {};

TEST_F(GemmQuantizedOnDevice, HasTheBytesOfTwoCalls) {
  // More than a row block, with few rows left over; rows of very different magnitudes, so that MX
  // is aligned by 128 columns on account of some of them alone.
  const std::int64_t m = 3001, n = 3504, k = 320;
  std::vector<float> values = usual_values(m, k, 1);
  for (std::int64_t i = 0; i < 32; ++i) values[static_cast<std::size_t>(2900 * k + i)] *= 0x1p20F;
  const Tensor x = to_device(values_as(values, {m, k}, DType::f32).view(), kThere),
               w = to_device(values_as(usual_values(n, k, 2), {n, k}, DType::f32).view(), kThere),
               residual =
                   to_device(values_as(usual_values(m, n, 3), {m, n}, DType::bf16).view(), kThere);
  for (const char* name : {"fp8-channel", "fp8-1x128", "mxfp8", "nvfp4"}) {
    const QuantizedTensor a = quantize(x.view(), preset(name)),
                          b = quantize(w.view(), preset(name));
    const GemmOptions options{.activation = ActivationKind::relu, .residual = residual.view()};
    for (const char* to : {"mxfp8", "fp8-1x128", "fp8-channel", "fp8", "mxfp4"}) {
      const QuantizedTensor got = gemm_quantized(a, b, preset(to), options),
                            wanted = quantize(gemm(a, b, options).view(), preset(to));
      EXPECT_EQ(different_bytes(got.rowwise.codes, wanted.rowwise.codes, "codes") +
                    different_bytes(got.rowwise.scales, wanted.rowwise.scales, "scales"),
                "")
          << name << " into " << to;
    }
  }
}

// cuBLASLt may be chosen for plain bf16 products, with bits that depend on the number of rows: not
// for those that are quantized in row blocks.
TEST_F(GemmQuantizedOnDevice, HasThemAlsoWhereCublasLtIsChosen) {
  const std::int64_t m = 3008, n = 3504, k = 320;
  const auto there = [&](std::int64_t rows, unsigned seed) {
    return to_device(values_as(usual_values(rows, k, seed), {rows, k}, DType::bf16).view(), kThere);
  };
  const Tensor x = there(m, 1), w = there(n, 2);
  const ForcedLibrary library(true);
  for (const char* to : {"mxfp8", "fp8-channel"}) {
    const QuantizedTensor got = gemm_quantized(x, w, preset(to)),
                          wanted = quantize(gemm(x, w).view(), preset(to));
    EXPECT_EQ(different_bytes(got.rowwise.codes, wanted.rowwise.codes, "codes") +
                  different_bytes(got.rowwise.scales, wanted.rowwise.scales, "scales"),
              "")
        << "into " << to;
  }
}

// Row blocks that are all aligned with the same B, which counts once, as in one product.
TEST_F(GemmQuantizedOnDevice, CountsAlignmentOnce) {
  const std::int64_t m = 3001, n = 3504, k = 320;
  // Values over eleven binades, in blocks that are six apart: within the eight that are aligned by
  // row, and the smallest lose bits.
  std::vector<float> values(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(static_cast<float>(9 + i % 7),
                           -static_cast<int>(i % 11) - (i / 32 % 2 == 1 ? 6 : 0));
  const Tensor x = to_device(values_as(usual_values(m, k, 1), {m, k}, DType::f32).view(), kThere),
               w = to_device(values_as(values, {n, k}, DType::f32).view(), kThere);
  const QuantizedTensor a = quantize(x.view(), preset("fp8-channel")),
                        b = quantize(w.view(), preset("mxfp8"));
  std::int64_t whole = 0, blocked = 0;
  (void)gemm(a, b, {.aligned = &whole});
  (void)gemm_quantized(a, b, preset("fp8-1x128"), {.aligned = &blocked});
  EXPECT_GT(whole, 0);
  EXPECT_EQ(blocked, whole);
}

// In row blocks and as a whole, into existing memory: nothing waits, values come from the pool.
TEST_F(GemmQuantizedOnDevice, IsCaptured) {
  const support::Stream stream;
  for (const std::int64_t m : {200, 3001}) {
    const std::int64_t n = 3504, k = 320;
    const Tensor x = to_device(values_as(usual_values(m, k, 1), {m, k}, DType::f32).view(), kThere),
                 w = to_device(values_as(usual_values(n, k, 2), {n, k}, DType::f32).view(), kThere);
    const QuantizedTensor a = quantize(x.view(), preset("fp8-1x128")),
                          b = quantize(w.view(), preset("fp8-block"));
    for (const char* to : {"mxfp8", "fp8", "nvfp4"}) {
      const QuantizedTensor wanted = gemm_quantized(a, b, preset(to));
      QuantizedTensor got = make_quantized({m, n}, DType::f32, preset(to), kThere);
      support::must(cudaDeviceSynchronize());
      const Graph graph(stream, [&] { gemm_quantized_into(a, b, got, {.stream = stream.get()}); });
      graph.launch(stream);
      stream.wait();
      EXPECT_EQ(different_bytes(got.rowwise.codes, wanted.rowwise.codes, "codes") +
                    different_bytes(got.rowwise.scales, wanted.rowwise.scales, "scales"),
                "")
          << m << " rows into " << to;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
