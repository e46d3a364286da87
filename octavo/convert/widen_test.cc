#include "octavo/convert/widen.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

TEST(Widen, EveryCodeOfEveryType) {
  const auto all = [](const Tensor& numbers, const Format& format, auto span) {
    for (std::size_t i = 0; i < span.size(); ++i)
      span[i] = static_cast<std::remove_reference_t<decltype(span[0])>>(i);
    const Tensor wide = widened(numbers);
    for (std::size_t i = 0; i < span.size(); ++i) {
      const double wanted = decode(format, static_cast<std::uint32_t>(i));
      const float got = wide.span<float>()[i];
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted) << i;
    }
  };
  const Tensor bf16 = Tensor::values({1 << 16}, DType::bf16);
  const Tensor f16 = Tensor::values({1 << 16}, DType::f16);
  const Tensor e4m3 = Tensor::codes({16, 16}, e4m3fn), e8m0 = Tensor::codes({256}, e8m0fnu);
  all(bf16, bf16_format, bf16.span<std::uint16_t>());
  all(f16, f16_format, f16.span<std::uint16_t>());
  all(e4m3, e4m3fn, e4m3.span<std::uint8_t>());
  all(e8m0, e8m0fnu, e8m0.span<std::uint8_t>());
}

TEST(Widen, DoublesRoundOnceAndFloatsAreThemselves) {
  const Tensor doubles = Tensor::values({2}, DType::f64);
  doubles.span<double>()[0] = 1 + 0x1p-24 + 0x1p-50;  // above the midpoint
  doubles.span<double>()[1] = 1 + 0x1p-24;            // on it: to even
  const Tensor wide = widened(doubles);
  EXPECT_EQ(wide.span<float>()[0], 1 + 0x1p-23F);
  EXPECT_EQ(wide.span<float>()[1], 1.0F);
  EXPECT_EQ(widened(wide).view().data, wide.view().data);
}

}  // namespace
}  // namespace octavo
