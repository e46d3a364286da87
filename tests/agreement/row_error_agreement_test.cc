// Error sums of rows on every backend that has them: the reference's bits, whatever the values, the
// scales and where results come from; and what the reference itself adds up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/row_error_job.h"
#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

// What results are given as.
enum class From { decoded, decoded_with_codes, codes };

// A row, and all that a job may point to.
struct Row {
  std::vector<float> x;
  std::vector<std::uint16_t> bf16;
  std::vector<std::uint8_t> codes;
  std::vector<float> decoded, scales, large_scales;
  double unit = 1;
  Format format{};
};

enum class Values { normal, tiny, zeros, beyond };

// Codes that are near the values, and some that are not.
Row make_row(const Format& format, int blocks, int run, Values values, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  Row row;
  row.unit = std::ldexp(1.0, format.bias - 127);
  row.format = format;
  const int count = blocks * kErrorBlock;
  for (int i = 0; i < count / run; ++i) {
    row.scales.push_back(std::ldexp(1.0F + 0.25F * static_cast<float>(i % 4), -7 - i % 5));
    row.large_scales.push_back(static_cast<float>(row.scales.back() / row.unit));
  }
  for (int i = 0; i < count; ++i) {
    float x = normal(random);
    if (values == Values::tiny) x *= 0x1p-16F;
    if (values == Values::zeros && i % 3 == 0) x = i % 2 == 0 ? 0.0F : -0.0F;
    if (values == Values::beyond && i % 57 == 0) x *= 1000.0F;
    const auto bits = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, x) >> 16);
    row.bf16.push_back(bits);
    row.x.push_back(i % 2 == 0 ? __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16)
                               : x);
    const float scale = row.scales[static_cast<std::size_t>(i / run)];
    const Encoded encoded = encode_value(format, static_cast<double>(x / scale), {}, 0);
    row.codes.push_back(static_cast<std::uint8_t>(encoded.code));
    row.decoded.push_back(static_cast<float>(decode(format, encoded.code)));
  }
  return row;
}

RowErrorJob job_of(const Row& row, int run, bool is_bf16, From from) {
  const bool reads_codes = from == From::codes;
  const float half_step = row.format == e4m3fn ? 16.0F : 4096.0F;
  return {.x = is_bf16 ? static_cast<const void*>(row.bf16.data()) : row.x.data(),
          .is_bf16 = is_bf16,
          .decoded = reads_codes ? nullptr : row.decoded.data(),
          .scales = reads_codes ? row.large_scales.data() : row.scales.data(),
          .blocks = static_cast<int>(row.x.size()) / kErrorBlock,
          .run = run,
          .most_error = half_step * (reads_codes ? static_cast<float>(row.unit) : 1.0F),
          .mantissa_bits = reads_codes ? row.format.mantissa_bits : 0,
          .codes = from == From::decoded ? nullptr : row.codes.data()};
}

void expect_same(const RowErrorSums& got, const RowErrorSums& wanted, const std::string& where) {
  EXPECT_EQ(got.error2, wanted.error2) << where;
  EXPECT_EQ(got.value2, wanted.value2) << where;
  EXPECT_EQ(got.result2, wanted.result2) << where;
  EXPECT_EQ(got.max_abs, wanted.max_abs) << where;
  EXPECT_EQ(got.max_relative, wanted.max_relative) << where;
  EXPECT_EQ(got.flushed, wanted.flushed) << where;
}

template <typename Visit>
void for_each_case(const Visit& visit) {
  for (const Format& format : {e4m3fn, e5m2})
    for (const int run : {16, 32, 128})
      for (const Values values : {Values::normal, Values::tiny, Values::zeros, Values::beyond})
        for (const int blocks : {1, 2, 5, kMaxErrorBlocks})
          for (const bool is_bf16 : {false, true}) {
            const unsigned seed =
                static_cast<unsigned>(run * 1000 + blocks * 10) + static_cast<unsigned>(values);
            visit(make_row(format, blocks, run, values, seed), run, is_bf16,
                  text(format_name(format), ", run ", run, ", values ", static_cast<int>(values),
                       ", ", blocks, " blocks, ", is_bf16 ? "bf16" : "f32"));
          }
}

TEST(RowErrorAgreement, EveryBackend) {
  for (const BackendInfo& backend : support::every_backend()) {
    const Kernels& kernels = *backend.kernels;
    if (kernels.row_error == nullptr) continue;
    for_each_case([&](const Row& row, int run, bool is_bf16, const std::string& where) {
      for (const From from : {From::decoded, From::decoded_with_codes, From::codes}) {
        if (from == From::codes && (kernels.row_error_reads_codes == nullptr ||
                                    !kernels.row_error_reads_codes(row.format)))
          continue;
        for (const float known : {0.0F, 0.04F, 1.0F}) {
          RowErrorJob job = job_of(row, run, is_bf16, from);
          job.knows_one = known == 1.0F && run == 16;
          // Onto sums that are there already.
          RowErrorSums got{.error2 = 3, .max_abs = 0.01F, .max_relative = known, .flushed = 7},
              wanted = got;
          const std::uint32_t got_beyond = kernels.row_error({}, job, got),
                              wanted_beyond = reference_backend().row_error({}, job, wanted);
          EXPECT_EQ(got_beyond, wanted_beyond) << backend.name << ": " << where;
          expect_same(got, wanted,
                      text(backend.name, ": ", where, ", from ", static_cast<int>(from)));
        }
      }
    });
  }
}

// However results are given.
TEST(RowErrorAgreement, CodesAreWhatTheyDecodeTo) {
  for_each_case([&](const Row& row, int run, bool is_bf16, const std::string& where) {
    RowErrorSums decoded, codes;
    const std::uint32_t by_value = reference_backend().row_error(
                            {}, job_of(row, run, is_bf16, From::decoded), decoded),
                        by_code = reference_backend().row_error(
                            {}, job_of(row, run, is_bf16, From::codes), codes);
    EXPECT_EQ(by_code, by_value) << where;
    expect_same(codes, decoded, where);
  });
}

// In f64, which row_error_job.h says how far f32 may be from.
TEST(RowErrorAgreement, SumsOfTheReference) {
  for_each_case([&](const Row& row, int run, bool is_bf16, const std::string& where) {
    RowErrorSums sums;
    const std::uint32_t beyond =
        reference_backend().row_error({}, job_of(row, run, is_bf16, From::decoded), sums);
    double error2 = 0, value2 = 0, result2 = 0;
    std::int64_t flushed = 0;
    std::uint32_t large = 0;
    for (std::size_t i = 0; i < row.x.size(); ++i) {
      const float x = is_bf16 ? __builtin_bit_cast(float, std::uint32_t{row.bf16[i]} << 16)
                              : row.x[i],
                  scale = row.scales[i / static_cast<std::size_t>(run)];
      const double y = static_cast<double>(row.decoded[i] * scale), e = std::fabs(x - y);
      error2 += e * e;
      value2 += static_cast<double>(x) * static_cast<double>(x);
      result2 += y * y;
      flushed += x != 0.0F && y == 0.0 ? 1 : 0;
      const float half_step = row.format == e4m3fn ? 16.0F : 4096.0F;
      if (e > static_cast<double>(half_step * scale)) large |= 1U << (i / kErrorBlock);
    }
    EXPECT_NEAR(sums.error2, error2, 1.2e-6 * error2) << where;
    EXPECT_NEAR(sums.value2, value2, 1.2e-6 * value2) << where;
    EXPECT_NEAR(sums.result2, result2, 1.2e-6 * result2) << where;
    EXPECT_EQ(sums.flushed, flushed) << where;
    EXPECT_EQ(beyond, large) << where;
  });
}

}  // namespace
}  // namespace octavo::testing
