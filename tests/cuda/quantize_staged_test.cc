// Matrices that are quantized a row block at a time: more than one row block of each kind, the last
// one short, against the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/agreement/quantize_cases.h"
#include "tests/cuda/device_memory.h"
#include "tests/support/every_backend.h"

namespace octavo::support {
namespace {

// 35 MiB of bf16, 71 MiB of f32; no multiple of a block of 32 either way.
constexpr std::int64_t kRows = 9'008, kCols = 2'056;

class QuantizeStaged : public CudaTest {
 protected:
  static const Kernels* staged() {
    for (const BackendInfo& backend : every_backend())
      if (is_staged(backend)) return backend.kernels;
    return nullptr;
  }
  static Tensor values() {
    return testing::values_as(testing::all_kinds_of_values(kRows * kCols, 11), {kRows, kCols},
                              DType::bf16);
  }
  static void expect_same(const QuantizedCopy& got, const QuantizedCopy& wanted,
                          const std::string& where) {
    ASSERT_EQ(got.exists(), wanted.exists()) << where;
    if (!got.exists()) return;
    const auto memory = [](const Tensor& tensor) {
      return std::span(static_cast<const std::byte*>(tensor.view().data),
                       static_cast<std::size_t>(tensor.nbytes()));
    };
    EXPECT_TRUE(std::ranges::equal(memory(got.codes), memory(wanted.codes))) << where << " codes";
    EXPECT_TRUE(std::ranges::equal(memory(got.scales), memory(wanted.scales)))
        << where << " scales";
  }
  static std::vector<testing::NamedScaling> scalings() {
    std::vector<testing::NamedScaling> list;
    const auto add = [&](const char* base, const char* what, auto&& edit) {
      Scaling scaling = preset(base);
      scaling.columnwise = true;
      scaling.encode.nan_input = NanInput::zero;
      edit(scaling);
      list.push_back({text(base, " ", what), scaling});
    };
    for (const char* base : {"fp8", "fp8-1x128", "fp8-block", "mxfp4"})
      add(base, "", [](Scaling&) {});
    add("mxfp8", "te", [](Scaling& s) { s.scale.arith = Arith::te; });
    add("mxint8", "", [](Scaling&) {});
    add("nvfp4", "stochastic", [](Scaling& s) {
      s.encode.rounding = Rounding::stochastic;
      s.encode.seed = 9;
    });
    add("mxfp8", "stochastic", [](Scaling& s) {
      s.encode.rounding = Rounding::stochastic;
      s.encode.stochastic_bits = 7;
    });
    return list;
  }
};

TEST_F(QuantizeStaged, OfValues) {
  const Tensor x = values();
  for (const auto& [name, scaling] : scalings()) {
    const QuantizedTensor got = quantize(x.view(), scaling, {.backend = staged()});
    const QuantizedTensor wanted =
        quantize(x.view(), scaling, {.threads = 8, .backend = &cpu_backend()});
    expect_same(got.rowwise, wanted.rowwise, name + ", rowwise");
    expect_same(got.columnwise, wanted.columnwise, name + ", columnwise");
  }
}

TEST_F(QuantizeStaged, OfCodes) {
  const Tensor x = values();
  const QuantizedTensor codes = quantize(x.view(), preset("mxfp8"), {.threads = 8});
  for (const auto& [name, scaling] : scalings()) {
    const QuantizedTensor got = requantize(codes, scaling, {.backend = staged()});
    const QuantizedTensor wanted =
        requantize(codes, scaling, {.threads = 8, .backend = &cpu_backend()});
    expect_same(got.rowwise, wanted.rowwise, name + ", rowwise");
    expect_same(got.columnwise, wanted.columnwise, name + ", columnwise");
  }
}

}  // namespace
}  // namespace octavo::support
