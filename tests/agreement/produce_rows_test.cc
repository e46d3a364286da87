// Norms of many rows: a backend may process row after row with one group of threads (a warp, a
// block), whose rows must not mix. Seven rows over and over; the first seven are held against
// formulas elsewhere.
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/base/error.h"
#include "tests/agreement/produce_cases.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kDistinct = 7;  // no row stride of a group is a multiple of it

// Rows of `tensor`, each like the row with its number modulo seven.
void expect_repeats(const Tensor& tensor, std::int64_t rows, const std::string& where) {
  const auto bytes = tensor.bytes();
  const std::size_t each = bytes.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = kDistinct; row < rows; ++row) {
    const auto at = [&](std::int64_t r) {
      return bytes.subspan(static_cast<std::size_t>(r) * each, each);
    };
    ASSERT_TRUE(std::ranges::equal(at(row), at(row % kDistinct))) << where << ", row " << row;
  }
}

class ProduceRows : public ::testing::TestWithParam<NamedProducer> {};

TEST_P(ProduceRows, AreAlikeWhereverTheyStand) {
  struct Case {
    std::int64_t rows, cols;
    DType dtype;
  };
  // A warp to a row, and several; more rows than a device has groups, three times over.
  for (const auto& [rows, cols, dtype] :
       {Case{10'000, 48, DType::bf16}, Case{2'100, 2'064, DType::f32}}) {
    // Long rows take long, and two kinds of them have everything in them.
    if (cols > 100 && (!GetParam().weighted || GetParam().zero_centred ||
                       (GetParam().kind == oracle::Made::layer_norm && !GetParam().biased)))
      continue;
    const std::vector<double> distinct = random_numbers(kDistinct * cols, 21, cols);
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < rows * cols; ++i)
      numbers.push_back(distinct[static_cast<std::size_t>(i % (kDistinct * cols))]);
    const Values x = values_of({rows, cols}, dtype, numbers);
    const Production production(GetParam(), cols, DType::bf16);
    for (const Kernels* backend : producing_backends()) {
      const std::string where = text(GetParam().name, " of ", rows, " rows, ", backend->name);
      const Tensor inv_std = Tensor::values({rows}, DType::f32);
      const Produced values = production.of(x.tensor.view(), {}, inv_std.view());
      expect_repeats(produce(values, {.out = DType::f32, .backend = backend}), rows, where);
      expect_repeats(inv_std, rows, where + ", inv_std");
      for (const char* name : {"mxfp8", "fp8-1x128", "fp8-channel"}) {
        const QuantizedTensor got = quantize(values, preset(name), {.backend = backend});
        expect_repeats(got.rowwise.codes, rows, text(where, ", ", name));
        if (std::string_view(name) != "fp8-1x128")  // whose scales lie column by column
          expect_repeats(got.rowwise.scales, rows, text(where, ", scales of ", name));
      }
      if (HasFailure()) return;
    }
  }
}

std::vector<NamedProducer> every_norm() {
  std::vector<NamedProducer> norms = every_producer();
  std::erase_if(norms, [](const NamedProducer& one) { return !one.is_norm(); });
  return norms;
}

INSTANTIATE_TEST_SUITE_P(All, ProduceRows, ::testing::ValuesIn(every_norm()),
                         [](const auto& case_info) { return case_info.param.name; });

}  // namespace
}  // namespace octavo::testing
