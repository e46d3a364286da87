// Grouped GEMM: the bytes of one product for each group.
#include <cstring>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

struct Grouped {
  std::vector<std::int64_t> rows;
  std::int64_t n = 0, k = 0;
  [[nodiscard]] std::int64_t all() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : rows) sum += count;
    return sum;
  }
};

Tensor part(const Tensor& of, std::int64_t first, std::int64_t count) {
  View view = of.view();
  const std::int64_t row = view.strides[0];
  view.data = static_cast<std::byte*>(view.data) + first * row;
  view.shape =
      view.shape.rank() == 2 ? Shape{count, view.shape[1]} : Shape{view.shape[1], view.shape[2]};
  std::vector<float> values(static_cast<std::size_t>(element_count(view.shape)));
  std::memcpy(values.data(), view.data, values.size() * sizeof(float));
  return values_as(values, view.shape, DType::f32);
}

// Each group quantized and multiplied by itself: no tile is in two of them.
void expect_each(const Grouped& sizes, const char* preset_name) {
  const Scaling scaling = preset(preset_name);
  const auto groups = static_cast<std::int64_t>(sizes.rows.size());
  const Tensor x = values_as(usual_values(sizes.all(), sizes.k, 1), {sizes.all(), sizes.k},
                             DType::f32),
               w = values_as(usual_values(groups * sizes.n, sizes.k, 2), {groups, sizes.n, sizes.k},
                             DType::f32),
               bias = values_as(usual_values(1, sizes.n, 3), {sizes.n}, DType::f32),
               residual = values_as(usual_values(sizes.all(), sizes.n, 4), {sizes.all(), sizes.n},
                                    DType::f32);
  const GemmOptions options{
      .bias = bias.view(), .activation = ActivationKind::relu, .residual = residual.view()};
  const Tensor got =
      gemm_grouped(quantize(x.view(), scaling), quantize(w.view(), scaling), sizes.rows, options);
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < groups; first += sizes.rows[static_cast<std::size_t>(i)], ++i) {
    const std::int64_t count = sizes.rows[static_cast<std::size_t>(i)];
    if (count == 0) continue;
    const Tensor its_residual = part(residual, first, count);
    GemmOptions its = options;
    its.residual = its_residual.view();
    const Tensor wanted = gemm(quantize(part(x, first, count).view(), scaling),
                               quantize(part(w, i, 1).view(), scaling), its),
                 is = part(got, first, count);
    EXPECT_TRUE(std::ranges::equal(is.bytes(), wanted.bytes()))
        << preset_name << ", group " << i << " of " << count << " rows";
  }
}

TEST(GemmGrouped, IsAProductForEachGroup) {
  for (const char* name : {"mxfp8", "fp8-1x128", "fp8-channel", "mxfp4"})
    expect_each({.rows = {3, 0, 1, 17, 64}, .n = 24, .k = 160}, name);
  expect_each({.rows = {128, 256, 0}, .n = 128, .k = 256}, "fp8-block");
}

TEST(GemmGrouped, TakesValuesAndNoRows) {
  const Tensor x = values_as(usual_values(5, 8, 1), {5, 8}, DType::f32),
               w = values_as(usual_values(6, 8, 2), {2, 3, 8}, DType::f32);
  const Tensor got = gemm_grouped(x.view(), w.view(), std::vector<std::int64_t>{2, 3});
  const Tensor wanted = gemm(part(x, 2, 3).view(), part(w, 1, 1).view());
  EXPECT_TRUE(std::ranges::equal(part(got, 2, 3).bytes(), wanted.bytes()));
  const Tensor none = values_as({}, {0, 8}, DType::f32);
  EXPECT_EQ(gemm_grouped(none.view(), w.view(), std::vector<std::int64_t>{0, 0}).shape(),
            (Shape{0, 3}));
}

TEST(GemmGrouped, SaysWhatDoesNotFit) {
  const Tensor x = values_as(usual_values(5, 8, 1), {5, 8}, DType::f32),
               w = values_as(usual_values(6, 8, 2), {2, 3, 8}, DType::f32);
  const auto told = [&](const Operand& a, const Operand& b, std::vector<std::int64_t> rows) {
    try {
      (void)gemm_grouped(a, b, rows);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto holds = [](const std::string& words, const char* wanted) {
    return words.find(wanted) != std::string::npos;
  };
  EXPECT_PRED2(holds, told(x.view(), w.view(), {5}), "got rows of 1 groups, and B has 2");
  EXPECT_PRED2(holds, told(x.view(), w.view(), {2, 2}), "groups have 4 rows, and A has 5");
  EXPECT_PRED2(holds, told(x.view(), w.view(), {6, -1}), "group 0 has 6 rows");
  EXPECT_PRED2(holds, told(x.view(), w.view(), {-1, 6}), "group 0 has -1 rows");
  EXPECT_PRED2(holds, told(x.view(), x.view(), {5}), "expected [rows, K] and [groups, N, K]");
  const Tensor big = values_as(usual_values(160, 128, 1), {160, 128}, DType::f32),
               blocks = values_as(usual_values(256, 128, 2), {2, 128, 128}, DType::f32);
  const QuantizedTensor q = quantize(big.view(), preset("fp8-block"));
  EXPECT_PRED2(holds, told(q, blocks.view(), {100, 60}), "within a tile of 128 rows");
}

}  // namespace
}  // namespace octavo::testing
