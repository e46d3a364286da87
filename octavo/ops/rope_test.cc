#include "octavo/ops/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

using error_testing::message_of;

// [batch, tokens, heads, size] of numbers that differ everywhere.
Tensor some_values(const Shape& shape) {
  Tensor x = Tensor::values(shape, DType::f32);
  for (std::size_t i = 0; i < x.span<float>().size(); ++i)
    x.span<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + 0.1));
  return x;
}

const std::vector<float> kFrequencies{1.0F, 0.3F, 0.01F};
const View kThree = view_of(std::span<const float>(kFrequencies));

std::vector<BackendInfo> with_rope() {
  std::vector<BackendInfo> out = backends();
  std::erase_if(out, [](const BackendInfo& one) {
    return !one.usable || one.kernels == nullptr || one.kernels->rope == nullptr;
  });
  return out;
}

// From complex numbers: (a + i b) e^(i angle), in f64.
double rotated(const Tensor& x, std::size_t head_at, std::size_t i, double position,
               double factor) {
  const std::size_t pairs = kFrequencies.size(), pair = i % pairs;
  const double a = static_cast<double>(x.span<float>()[head_at + pair]),
               b = static_cast<double>(x.span<float>()[head_at + pairs + pair]);
  const double length = std::hypot(a, b) * factor,
               angle = std::atan2(b, a) + position * static_cast<double>(kFrequencies[pair]);
  return i < pairs ? length * std::cos(angle) : length * std::sin(angle);
}

TEST(Rope, EveryBackendTurnsPairsByTheirAngles) {
  const Shape shape{2, 5, 3, 8};  // the last two elements of a head are not rotated
  const Tensor x = some_values(shape);
  for (const BackendInfo& backend : with_rope()) {
    const Tensor y =
        rope(x.view(), {.inverse_frequencies = kThree, .factor = 1.5, .first_position = 7},
             {.backend = backend.kernels});
    for (std::size_t at = 0; at < y.span<float>().size(); at += 8)
      for (std::size_t i = 0; i < 8; ++i) {
        const auto position = static_cast<double>(7 + at / 24 % 5);
        const double wanted =
            i < 6 ? rotated(x, at, i, position, 1.5) : static_cast<double>(x.span<float>()[at + i]);
        // Six roundings of 2^-24 to numbers of 1.5 sqrt(2), and of an angle of up to 11.
        EXPECT_NEAR(static_cast<double>(y.span<float>()[at + i]), wanted,
                    6 * 0x1p-24 * 2.2 + 11 * 0x1p-24 * 2.2)
            << backend.name << ' ' << at << ' ' << i;
      }
  }
}

TEST(Rope, EveryBackendHasTheBitsOfTheReference) {
  std::vector<float> many(150);  // more pairs than a kernel does at a time
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = std::pow(10000.0F, -static_cast<float>(i) / 150.0F);
  const Tensor x = some_values({1, 37, 2, 310});
  const Rope how{.inverse_frequencies = view_of(std::span<const float>(many)),
                 .first_position = 4000};
  const Tensor wanted = rope(x.view(), how, {.backend = &reference_backend()});
  for (const BackendInfo& backend : with_rope()) {
    for (const int threads : {1, 3}) {
      const Tensor y = rope(x.view(), how, {.threads = threads, .backend = backend.kernels});
      EXPECT_TRUE(std::ranges::equal(y.bytes(), wanted.bytes())) << backend.name;
    }
    Tensor in_place = some_values({1, 37, 2, 310});
    rope_into(in_place.view(), how, in_place.view(), {.backend = backend.kernels});
    EXPECT_TRUE(std::ranges::equal(in_place.bytes(), wanted.bytes())) << backend.name;
  }
}

TEST(Rope, ShortValuesAreRoundedOnce) {
  const Tensor x = some_values({4, 1, 6});
  Tensor half = Tensor::values({4, 1, 6}, DType::bf16),
         wide = Tensor::values({4, 1, 6}, DType::f32);
  for (std::size_t i = 0; i < 24; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x.span<float>()[i]) & 0xFFFF0000U;
    half.span<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
    wide.span<float>()[i] = __builtin_bit_cast(float, bits);
  }
  const Rope how{.inverse_frequencies = kThree, .first_position = 2};
  const Tensor y = rope(half.view(), how), exact = rope(wide.view(), how);
  for (std::size_t i = 0; i < 24; ++i)
    EXPECT_NEAR(decode(bf16_format, y.span<std::uint16_t>()[i]), exact.span<float>()[i], 0x1p-8);
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const Tensor x = some_values({2, 1, 4}), flat = some_values({4});
  const Rope how{.inverse_frequencies = kThree};
  EXPECT_NE(
      message_of([&] { (void)rope(x.view(), how); }).find("3 inverse frequencies for heads of 4"),
      std::string::npos);
  EXPECT_NE(message_of([&] { (void)rope(flat.view(), how); }).find("[tokens, heads, size]"),
            std::string::npos);
  const Tensor wide = some_values({2, 1, 8});
  EXPECT_NE(message_of([&] {
              (void)rope(wide.view(), {.inverse_frequencies = kThree, .first_position = -1});
            }).find("position -1"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              (void)rope(wide.view(),
                         {.inverse_frequencies = kThree, .first_position = std::int64_t{1} << 62});
            }).find("positions from 0 to"),
            std::string::npos);
  View shifted = wide.view();
  shifted.data = static_cast<std::byte*>(shifted.data) + 4;
  shifted.shape = {1, 1, 8};
  View first = wide.view();
  first.shape = {1, 1, 8};
  EXPECT_NE(message_of([&] { rope_into(first, how, shifted); }).find("overlaps"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo
