// Every FP8 code packed as f16: sums of a single product have the reference's bits.
#include <cmath>
#include <functional>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

// Rows begin at codes that are seven apart, and 48 columns pick one each: all of them.
constexpr std::int64_t kCodes = 256, kRows = 48;

QuantizedTensor codes_of(const OperandKind& kind, std::int64_t rows,
                         const std::function<std::uint8_t(std::int64_t, std::int64_t)>& code) {
  // The largest value everywhere: scales are 1.
  const std::vector<float> values(static_cast<std::size_t>(rows * kCodes),
                                  static_cast<float>(max_value(kind.scaling->format)));
  QuantizedTensor made = quantize(values_as(values, {rows, kCodes}, DType::f32).view(),
                                  *kind.scaling, {.backend = &reference_backend()});
  auto* bytes = static_cast<std::uint8_t*>(made.rowwise.codes.view().data);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < kCodes; ++k) bytes[row * kCodes + k] = code(row, k);
  return made;
}

// 2^8 of e4m3 and 2^15 of e5m2: large, so that the product loses nothing that the packed f16 has.
constexpr std::uint8_t kLarge = 0x78;

TEST(GemmF16Codes, EveryCodeIsTheReferences) {
  for (const Format& format : {e4m3fn, e5m2})
    for (const char* base : {"fp8", "mxfp8"}) {
      const OperandKind kind = changed(base, base, [&](Scaling& s) { s.format = format; });
      const auto is_number = [&](std::uint8_t code) {
        return std::isfinite(decode(format, std::uint32_t{code}));
      };
      // A line of all codes that are numbers in each row.
      const QuantizedTensor a = codes_of(kind, kRows, [&](std::int64_t row, std::int64_t k) {
        const auto code = static_cast<std::uint8_t>((k + 7 * row) % kCodes);
        return is_number(code) ? code : std::uint8_t{0};
      });
      const QuantizedTensor b = codes_of(kind, kRows, [&](std::int64_t row, std::int64_t k) {
        return row == k ? kLarge : std::uint8_t{0};
      });
      // The others, where all else is zero.
      const QuantizedTensor odd = codes_of(kind, kRows, [&](std::int64_t row, std::int64_t k) {
        const auto code = static_cast<std::uint8_t>(k);
        return row == 20 + k % 5 && !is_number(code) ? code : std::uint8_t{0};
      });
      const std::pair<const QuantizedTensor*, const QuantizedTensor*> pairs[] = {
          {&a, &b}, {&b, &a}, {&odd, &b}, {&b, &odd}};  // as rows, as columns
      for (const auto& [left, right] : pairs) {
        GemmOptions options{.accumulator = Accumulator::f16, .backend = &reference_backend()};
        const Tensor want = gemm(*left, *right, options);
        for (const BackendInfo& backend : multiplying_backends()) {
          options.backend = backend.kernels;
          const Tensor got = gemm(*left, *right, options);
          int differ = 0;
          for (std::size_t i = 0; i < want.span<float>().size(); ++i) {
            const float x = got.span<float>()[i], y = want.span<float>()[i];
            differ += !(x == y || (std::isnan(x) && std::isnan(y)));
          }
          EXPECT_EQ(differ, 0) << backend.name << ", " << format_name(format) << ", " << base;
        }
      }
    }
}

// Gradients in the first step of delayed scaling: a scale of 1, and codes of e5m2 far below its
// largest. Products are then as small as 2^-20, and f16 has steps of 2^-24 there.
TEST(GemmF16Codes, SmallCodesAreNotLost) {
  const auto small = [](const Format& format, float size, std::int64_t rows, unsigned seed) {
    const OperandKind kind = changed("fp8", "fp8", [&](Scaling& s) { s.format = format; });
    std::vector<float> values = usual_values(rows, kCodes, seed);
    for (float& value : values) value *= size;
    return codes_of(kind, rows, [&](std::int64_t row, std::int64_t k) {
      const auto value = static_cast<double>(values[static_cast<std::size_t>(row * kCodes + k)]);
      return static_cast<std::uint8_t>(encode_value(format, value, {}).code);
    });
  };
  const QuantizedTensor a = small(e5m2, 1e-3F, 32, 1), b = small(e4m3fn, 0.1F, 40, 2);
  const Tensor want = gemm(a, b, {.out = DType::f64, .accumulator = Accumulator::f64});
  for (const BackendInfo& backend : multiplying_backends()) {
    const Tensor got = gemm(a, b, {.accumulator = Accumulator::f16, .backend = backend.kernels});
    double off = 0, all = 0;
    for (std::size_t i = 0; i < want.span<double>().size(); ++i) {
      const double x = want.span<double>()[i];
      off += std::pow(static_cast<double>(got.span<float>()[i]) - x, 2);
      all += x * x;
    }
    // What codes of usual size have is 1.5e-3.
    EXPECT_LT(std::sqrt(off / all), 2e-3) << backend.name;
  }
}

}  // namespace
}  // namespace octavo::testing
