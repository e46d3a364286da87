// Transformer Engine's delayed scaling, step by step, bit for bit: delayed_scaling_te.tsv.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/format/parse_format.h"
#include "octavo/quant/delayed.h"
#include "octavo/tensor/tensor.h"
#include "tests/conformance/golden.h"

namespace octavo {
namespace {

float float_of(const std::string& hex) {
  return std::bit_cast<float>(golden::number<std::uint32_t>(hex, 16));
}
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(DelayedScaling, StepsAsTransformerEngineDoes) {
  const std::string path =
      std::string(OCTAVO_SOURCE_DIR) + "/tests/conformance/delayed_scaling_te.tsv";
  for (const golden::Line& line : golden::read_lines(path)) {
    SCOPED_TRACE(line.number);
    ASSERT_EQ(line.columns.size(), 10u);
    const auto& at = line.columns;
    const std::vector<std::string> before = golden::split(at[4], ','),
                                   after = golden::split(at[7], ',');
    const Tensor history =
        Tensor::values({static_cast<std::int64_t>(before.size()), 1}, DType::f32);
    const Tensor inv_scale = Tensor::values({1}, DType::f32),
                 scale = Tensor::values({1}, DType::f32);
    std::ranges::transform(before, history.span<float>().begin(), float_of);
    history.span<float>()[0] = float_of(at[6]);
    inv_scale.span<float>()[0] = float_of(at[5]);
    scale.span<float>()[0] = 1.0F / float_of(at[5]);
    update_delayed({history.view(), inv_scale.view(), scale.view(), {}},
                   {.format = parse_format(at[1]),
                    .policy = parse_history_policy(at[2]),
                    .margin = golden::number<int>(at[3], 10)});
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_EQ(bits_of(history.span<float>()[i]), bits_of(float_of(after[i]))) << "row " << i;
    EXPECT_EQ(bits_of(inv_scale.span<float>()[0]), bits_of(float_of(at[8])));
    EXPECT_EQ(bits_of(scale.span<float>()[0]), bits_of(float_of(at[9])));
  }
}

}  // namespace
}  // namespace octavo
