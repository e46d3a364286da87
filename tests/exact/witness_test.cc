// The project's reference cases (witnesses) through every public interface.
#include <array>

#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

TEST(Witness, OneTwoThreeComeBack) {
  const std::array<float, 3> values{1, 2, 3};
  std::array<std::uint8_t, 3> codes{};
  std::array<float, 3> back{};
  fp8_encode(values, codes);
  fp8_decode(codes, back);
  EXPECT_EQ(codes, (std::array<std::uint8_t, 3>{0x38, 0x40, 0x44}));
  EXPECT_EQ(back, values);
  for (const BackendInfo& backend : every_backend()) {
    for (const oracle::FormatRow& row : oracle::all_rows()) {
      const Format format = parse_format(row.name);
      const Tensor encoded =
          encode(view_of(std::span<const float>(values)), format, {}, {.backend = backend.kernels});
      const Tensor decoded = decode(encoded.view(), DType::f64, {.backend = backend.kernels});
      for (std::size_t i = 0; i < 3; ++i) {
        // Where the format has the number at all.
        const auto is_it = [&](const oracle::Meaning& meaning) {
          return meaning.kind == oracle::Kind::number && meaning.value == double{values[i]};
        };
        if (std::ranges::any_of(oracle::Oracle(row).meanings(), is_it)) {
          EXPECT_EQ(decoded.span<double>()[i], double{values[i]})
              << backend.name << " " << row.name;
        }
      }
    }
  }
}

TEST(Witness, HoldOnEveryBackend) {
  for (const BackendInfo& backend : every_backend()) {
    const ConvertOptions options{.backend = backend.kernels};
    const auto f32 = [&](float value) {
      std::uint8_t code = 0;
      encode(std::span<const float>(&value, 1), std::span(&code, 1), e4m3fn, {}, options);
      return int{code};
    };
    const auto f64 = [&](double value) {
      return int{encode(view_of(std::span<const double>(&value, 1)), e4m3fn, {}, options)
                     .span<std::uint8_t>()[0]};
    };
    EXPECT_EQ(f32(std::bit_cast<float>(0x3F880001u)), 0x39)
        << backend.name << ": one ulp above a tie";
    EXPECT_EQ(f64(1.0625 + 0x1p-40), 0x39) << backend.name << ": f64 rounds once";
    EXPECT_EQ(f32(255), 0x78) << backend.name << ": 255 is 256";
    EXPECT_EQ(f32(-0.0f), 0x80) << backend.name << ": -0 keeps its sign";
    EXPECT_EQ(f64(-0.0), 0x80) << backend.name;
  }
}

}  // namespace
}  // namespace exact
