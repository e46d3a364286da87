// A backend with a null entry in its kernel table: the call falls back to reference and logs it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/backend/registry.h"
#include "octavo/convert/convert.h"

namespace octavo {
namespace {

Log* seen_log = nullptr;

// Offers encode only, and keeps the log it was handed.
constexpr Kernels kHalfFilled{
    .name = "half-filled",
    .description = "for this test",
    .encode = [](const Exec& exec, const Matrix& values, const Matrix& codes,
                 const EncodePolicy& policy, Counts* counts) {
      seen_log = exec.log;
      reference_backend().encode(exec, values, codes, policy, counts);
    }};
constexpr Kernels kEmpty{.name = "empty", .description = "for this test"};

class Fallback : public testing::Test {
 protected:
  void convert(const Kernels& kernels, Log* given, const Format& format = e4m3fn) {
    const ConvertOptions options{.backend = &kernels, .log = given};
    encode(values, codes, format, {}, options);
    decode(codes, format, back, options);
    EXPECT_EQ(back, values);
  }

  const std::vector<float> values{1.0f, -2.0f, 3.0f};
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(3);
  std::vector<float> back = std::vector<float>(3);
  std::vector<std::string> told;
  Log log{[this](std::string_view message) { told.emplace_back(message); }};
};

TEST_F(Fallback, IsToldOncePerLogAndSlot) {
  convert(kEmpty, &log);
  convert(kEmpty, &log, e2m1fn);  // has no NaN, so the call counts NaN as well
  convert(kEmpty, &log, e2m1fn);
  const std::string rest =
      "] backend 'empty' does not offer it; falls back to 'reference', which is slow";
  EXPECT_EQ(told,
            (std::vector<std::string>{"[encode" + rest, "[decode" + rest, "[count_nan" + rest}));

  std::vector<std::string> other_told;
  Log other([&](std::string_view message) { other_told.emplace_back(message); });
  convert(kEmpty, &other);
  EXPECT_EQ(other_told.size(), 2u);
}

TEST_F(Fallback, NeedsNoLog) { convert(kEmpty, nullptr); }

TEST_F(Fallback, OnlyWhatIsMissingIsTold) {
  convert(kHalfFilled, &log);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].rfind("[decode] backend 'half-filled'", 0), 0u) << told[0];
}

TEST_F(Fallback, KernelsGetTheLog) {
  seen_log = nullptr;
  convert(kHalfFilled, &log);
  EXPECT_EQ(seen_log, &log);
}

TEST_F(Fallback, RealBackendsLackNothing) {
  for (const BackendInfo& info : backends()) {
    if (info.usable) convert(*info.kernels, &log, e2m1fn);
  }
  EXPECT_TRUE(told.empty()) << told[0];
}

}  // namespace
}  // namespace octavo
