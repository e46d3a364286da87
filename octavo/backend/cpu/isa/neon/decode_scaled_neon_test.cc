// Codes times scales in bf16: every code, beside the product of the decoded value in f32.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

constexpr std::array kScales{1.0F,     0.5F,    448.0F, 0x1p-9F,  0x1p50F,
                             0x1p-50F, -1.875F, 0.0F,   INFINITY, NAN};

void expect_products(const Format& format, std::int64_t n, std::int64_t width) {
  const Decoder decoder{.format = format, .target = DType::f32};
  const DecodeScaled decode_scaled = neon_decode_scaled(decoder);
  ASSERT_NE(decode_scaled, nullptr);
  for (const float first : kScales) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    for (std::uint8_t& code : codes) code &= static_cast<std::uint8_t>(format.code_mask());
    std::vector<float> scales;
    for (std::int64_t t = 0; t * width < n; ++t) scales.push_back(t % 2 == 0 ? first : 2.0F);
    constexpr std::uint16_t kUntouched = 0x1234;
    std::vector<std::uint16_t> found(codes.size() + 1, kUntouched);
    decode_scaled(decoder, codes.data(), found.data(), n, scales.data(), width);
    EXPECT_EQ(found.back(), kUntouched);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float scale = scales[i / static_cast<std::size_t>(width)];
      const float product = static_cast<float>(decode(format, codes[i])) * scale;
      const float got = std::bit_cast<float>(static_cast<std::uint32_t>(found[i]) << 16);
      if (std::isnan(product))
        EXPECT_TRUE(std::isnan(got)) << "code " << int{codes[i]} << " times " << scale;
      else
        EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(product))
            << "code " << int{codes[i]} << " times " << scale;
    }
  }
}

TEST(DecodeScaledNeon, EveryCodeTimesItsScale) {
  for (const Format& format : {e4m3fn, e5m2, e2m1fn, e2m3fn, e3m2fn})
    for (const std::int64_t width : {16, 32, 128})
      for (const std::int64_t n : {256, 255, 130, 16, 5}) expect_products(format, n, width);
}

}  // namespace
}  // namespace octavo::cpu
