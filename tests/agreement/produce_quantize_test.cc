// Every scaling of a producer's output: the same bytes as of the plain f32 values, fused or by row
// blocks, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "octavo/quant/scale_order.h"
#include "tests/agreement/produce_cases.h"
#include "tests/agreement/quantize_cases.h"

namespace octavo::testing {
namespace {

void expect_same(const QuantizedCopy& got, const QuantizedCopy& wanted, const std::string& where) {
  ASSERT_EQ(got.exists(), wanted.exists()) << where;
  EXPECT_TRUE(same_bytes(got.scales, wanted.scales)) << where << " scales";
  EXPECT_TRUE(same_bytes(got.codes, wanted.codes)) << where << " codes";
  EXPECT_TRUE(same_bytes(got.tensor_scale, wanted.tensor_scale)) << where << " tensor's scale";
}

class ProduceQuantize : public ::testing::TestWithParam<NamedScaling> {
 protected:
  static void expect_same_as_plain(const View& x, const NamedProducer& named,
                                   const Kernels* backend, int threads) {
    const Production production(named, x.shape[x.shape.rank() - 1], DType::f32);
    const Produced values = production.of(x);
    const Tensor plain = produce(values, {.out = DType::f32, .backend = backend});
    Counts counts, wanted_counts;
    float amax = 0, wanted_amax = 0;
    const QuantizedTensor wanted = quantize(
        plain.view(), GetParam().scaling,
        {.threads = threads, .counts = &wanted_counts, .amax = &wanted_amax, .backend = backend});
    const QuantizedTensor got =
        quantize(values, GetParam().scaling,
                 {.threads = threads, .counts = &counts, .amax = &amax, .backend = backend});
    const std::string where = text(named.name, " of ", to_string(x.shape), ", ", backend->name,
                                   ", ", threads, " threads");
    EXPECT_EQ(got.source, DType::f32);
    expect_same(got.rowwise, wanted.rowwise, where + ", rowwise");
    expect_same(got.columnwise, wanted.columnwise, where + ", columnwise");
    EXPECT_EQ(counts, wanted_counts) << where;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(amax), std::bit_cast<std::uint32_t>(wanted_amax))
        << where;
    const QuantizedTensor again =
        quantize(values, GetParam().scaling, {.threads = 3, .backend = backend});
    expect_same(again.rowwise, wanted.rowwise, where + ", without counts");
  }
};

const NamedProducer kNorm{"layer_norm", oracle::Made::layer_norm, false, true, true};
const NamedProducer kGated{"swiglu", oracle::Made::silu, true};

TEST_P(ProduceQuantize, EveryBackend) {
  std::vector<double> numbers = random_numbers(33 * 70, 5, 70);
  std::fill_n(numbers.begin() + 140, 70, 0.0);
  if (GetParam().scaling.scale.non_finite == NonFinite::poison)
    numbers[700] = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::bf16, DType::f64}) {
    const Values x = values_of({33, 70}, dtype, numbers);
    for (const Kernels* backend : producing_backends())
      for (const NamedProducer& named : {kNorm, kGated})
        expect_same_as_plain(x.tensor.view(), named, backend, 1);
  }
}

// More than one row block, the last one short.
TEST_P(ProduceQuantize, MoreThanOneRowBlock) {
  if (GetParam().scaling.policy == AmaxPolicy::mse && is_peer(GetParam().scaling.scale.arith))
    GTEST_SKIP() << "slow, and split into row blocks like the others";
  const Values x = values_of({290, 260}, DType::bf16, random_numbers(290 * 260, 6, 260));
  expect_same_as_plain(x.tensor.view(), kNorm, &cpu_backend(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, ProduceQuantize, ::testing::ValuesIn(all_kinds_of_scalings()),
                         [](const auto& case_info) {
                           std::string name = case_info.param.name;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

TEST(ProduceQuantizeGated, MoreThanOneRowBlock) {
  const Values x = values_of({590, 260}, DType::f16, random_numbers(590 * 260, 8, 260));
  const Production production(kGated, 260, DType::f32);
  const Produced values = production.of(x.tensor.view());
  const Tensor plain = produce(values, {.out = DType::f32});
  for (const std::string& name : preset_names())
    for (const int threads : {1, 2})
      expect_same(quantize(values, preset(name), {.threads = threads}).rowwise,
                  quantize(plain.view(), preset(name)).rowwise, name);
}

// Statistics come out of a quantization, too: of every row, whichever row block or matrix it is in.
TEST(ProduceQuantizeStatistics, OfEveryRow) {
  const Values x = values_of({2, 300, 300}, DType::f32, random_numbers(180000, 7, 300));
  View cut = x.tensor.view();
  cut.shape = {2, 290, 256};  // dimensions that do not collapse
  const NamedProducer named{"layer_norm", oracle::Made::layer_norm};
  const Production production(named, 256, DType::f32);
  for (const Kernels* backend : producing_backends()) {
    const auto statistics = [&](auto&& use) {
      const Tensor mean = Tensor::values({580}, DType::f32),
                   inv_std = Tensor::values({580}, DType::f32);
      use(production.of(cut, mean.view(), inv_std.view()));
      std::vector<float> all(mean.span<float>().begin(), mean.span<float>().end());
      all.insert(all.end(), inv_std.span<float>().begin(), inv_std.span<float>().end());
      return all;
    };
    const auto plain =
        statistics([&](const Produced& values) { (void)produce(values, {.backend = backend}); });
    for (const char* name : {"mxfp8", "fp8", "nvfp4", "fp8-block"})
      EXPECT_EQ(statistics([&](const Produced& values) {
                  (void)quantize(values, preset(name), {.backend = backend});
                }),
                plain)
          << backend->name << ' ' << name;
  }
}

TEST(ProduceQuantizeStatistics, NotAlongAnotherAxis) {
  const Tensor x = Tensor::values({4, 8}, DType::f32), mean = Tensor::values({4}, DType::f32);
  Scaling scaling = preset("mxfp8");
  scaling.axis = 0;
  EXPECT_THROW((void)quantize(produced(x.view(), LayerNorm{.mean = mean.view()}), scaling), Error);
}

}  // namespace
}  // namespace octavo::testing
