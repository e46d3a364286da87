// Every scaling on every backend, held against reference: the same bytes, for any number of
// threads.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

std::string first_difference(const Tensor& got, const Tensor& wanted) {
  // Scales may be column-major, but never have gaps.
  const auto memory = [](const Tensor& tensor) {
    return std::span(static_cast<const std::byte*>(tensor.view().data),
                     static_cast<std::size_t>(tensor.nbytes()));
  };
  const auto a = memory(got), b = memory(wanted);
  if (a.size() != b.size()) return text("sizes ", a.size(), " and ", b.size());
  if (got.view().strides != wanted.view().strides) return "other strides";
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i])
      return text("byte ", i, ": got ", std::to_integer<int>(a[i]), "; expected ",
                  std::to_integer<int>(b[i]));
  return "";
}

void expect_same(const QuantizedCopy& got, const QuantizedCopy& wanted, const std::string& where) {
  ASSERT_EQ(got.exists(), wanted.exists()) << where;
  if (!got.exists()) return;
  EXPECT_EQ(first_difference(got.scales, wanted.scales), "") << where << " scales";
  EXPECT_EQ(first_difference(got.codes, wanted.codes), "") << where << " codes";
  if (wanted.tensor_scale.owner() != nullptr) {
    EXPECT_EQ(first_difference(got.tensor_scale, wanted.tensor_scale), "") << where << " tensor";
  }
}

class QuantizeAgreement : public ::testing::TestWithParam<NamedScaling> {
 protected:
  // Quantizes with every backend, then compares results, counts and what comes back.
  static void expect_agreement(const View& values, const Scaling& scaling, std::string where) {
    Counts counts;
    float amax = 0;
    const QuantizeOptions by_reference{
        .counts = &counts, .amax = &amax, .backend = &reference_backend()};
    const QuantizedTensor wanted = quantize(values, scaling, by_reference);
    const bool rotated = scaling.hadamard.rowwise;
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.name == "reference") continue;
      for (const int threads : {1, 2, 3}) {
        if (threads > 1 && support::is_staged(backend)) break;
        const std::string here = text(where, ", ", backend.name, ", ", threads, " threads");
        Counts met;
        float found = 0;
        const QuantizeOptions options{
            .threads = threads, .counts = &met, .amax = &found, .backend = backend.kernels};
        const QuantizedTensor got = quantize(values, scaling, options);
        expect_same(got.rowwise, wanted.rowwise, here + ", rowwise");
        expect_same(got.columnwise, wanted.columnwise, here + ", columnwise");
        EXPECT_EQ(met, counts) << here;
        EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(amax)) << here;
        const QuantizedTensor again = quantize(values, scaling, {.backend = backend.kernels});
        expect_same(again.rowwise, wanted.rowwise, here + ", without counts");
        expect_same(again.columnwise, wanted.columnwise, here + ", columnwise, without counts");
        for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::f16}) {
          if (rotated && dtype != DType::f32) continue;
          if (rotated && !wanted.rowwise.exists()) continue;
          EXPECT_EQ(first_difference(dequantize(wanted, dtype, {.backend = backend.kernels}),
                                     dequantize(wanted, dtype, {.backend = &reference_backend()})),
                    "")
              << here << ", back to " << dtype_name(dtype);
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
};

TEST_P(QuantizeAgreement, EverySourceAndShape) {
  const Scaling& scaling = GetParam().scaling;
  struct Case {
    Shape shape;
    DType dtype;
  };
  for (const auto& [shape, dtype] : std::vector<Case>{{{40, 96}, DType::f32},
                                                      {{33, 70}, DType::bf16},
                                                      {{7, 130}, DType::f16},
                                                      {{48, 136}, DType::bf16},
                                                      {{19, 45}, DType::f64},
                                                      {{1, 2500}, DType::f32},
                                                      {{3, 4, 64}, DType::f32},
                                                      {{65}, DType::bf16},
                                                      {{}, DType::f32},
                                                      {{0, 5}, DType::f32},
                                                      {{5, 0}, DType::f32}}) {
    const bool rotated = scaling.hadamard.rowwise;
    if (rotated && dtype == DType::f64) continue;
    if (scaling.columnwise && shape.rank() == 3 && scaling.tile.rows > 1) continue;
    const std::vector<float> values =
        all_kinds_of_values(element_count(shape), 7 + static_cast<unsigned>(shape.rank()));
    const Tensor tensor = values_as(values, shape, dtype);
    expect_agreement(tensor.view(), scaling,
                     text(GetParam().name, ", ", to_string(shape), " ", dtype_name(dtype)));
    if (HasFailure()) return;
  }
}

TEST_P(QuantizeAgreement, Transposed) {
  const Scaling& scaling = GetParam().scaling;
  const std::vector<float> values = all_kinds_of_values(50 * 80, 3);
  const Tensor tensor = values_as(values, {50, 80}, DType::f32);
  View transposed = tensor.view();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  expect_agreement(transposed, scaling, text(GetParam().name, ", transposed"));
}

TEST_P(QuantizeAgreement, Requantized) {
  const Scaling& scaling = GetParam().scaling;
  const std::vector<float> values = all_kinds_of_values(40 * 96, 5);
  const Tensor tensor = values_as(values, {40, 96}, DType::f32);
  for (const char* from : {"mxfp8", "nvfp4", "fp8-block", "mxfp6"}) {
    const QuantizedTensor first = quantize(tensor.view(), preset(from));
    const Tensor plain = dequantize(first);
    const QuantizedTensor wanted =
        quantize(plain.view(), scaling, {.backend = &reference_backend()});
    for (const BackendInfo& backend : support::every_backend()) {
      const QuantizedTensor got = requantize(first, scaling, {.backend = backend.kernels});
      const std::string here = text(GetParam().name, " from ", from, ", ", backend.name);
      expect_same(got.rowwise, wanted.rowwise, here);
      expect_same(got.columnwise, wanted.columnwise, here + ", columnwise");
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeAgreement, ::testing::ValuesIn(all_kinds_of_scalings()),
                         [](const auto& case_info) {
                           std::string name = case_info.param.name;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace octavo::testing
