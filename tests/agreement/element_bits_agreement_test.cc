// Elements as bits on every backend that has such kernels: the largest magnitude, and transposes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};

std::vector<std::uint64_t> random_bits(std::int64_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> words(static_cast<std::size_t>(bytes / 8 + 1));
  for (std::uint64_t& word : words) word = random();
  return words;
}

TEST(ElementBitsAgreement, LargestMagnitude) {
  for (const BackendInfo& backend : support::every_backend()) {
    const auto entry = backend.kernels->largest_bits;
    if (entry == nullptr) continue;
    for (const DType dtype : kTypes)
      for (const std::int64_t count : {0, 1, 7, 8, 31, 32, 33, 64, 100, 1000}) {
        const std::int64_t size = element_bytes(dtype);
        std::vector<std::uint64_t> values = random_bits(count * size, 5);
        EXPECT_EQ(entry({}, dtype, values.data(), count),
                  reference_backend().largest_bits({}, dtype, values.data(), count))
            << backend.name << ": " << count << " of " << dtype_name(dtype);
        // Wherever the only one is that is not zero; a NaN, whose sign does not count.
        for (std::int64_t at = 0; at < count; at += 3) {
          std::ranges::fill(values, 0);
          auto* const bytes = reinterpret_cast<std::uint8_t*>(values.data()) + at * size;
          bytes[0] = 1;
          bytes[size - 1] = 0xFF;
          const std::uint64_t wanted = std::uint64_t{0x7F} << (8 * (size - 1)) | 1;
          EXPECT_EQ(entry({}, dtype, values.data(), count), wanted) << backend.name << ": " << at;
        }
      }
  }
}

TEST(ElementBitsAgreement, Transpose) {
  struct Size {
    std::int64_t rows, cols;
  };
  const Size sizes[] = {{0, 5}, {1, 1}, {1, 40}, {40, 1}, {31, 33}, {32, 64}, {100, 65}};
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->transpose == nullptr) continue;
    for (const DType dtype : kTypes)
      for (const auto [rows, cols] : sizes) {
        const std::int64_t size = element_bytes(dtype), bytes = rows * cols * size;
        std::vector<std::uint64_t> values = random_bits(bytes, 6), got = random_bits(bytes, 7),
                                   wanted = got;  // what lies behind the matrix stays
        const auto matrix = [&](std::vector<std::uint64_t>& memory, std::int64_t height,
                                std::int64_t width) {
          return Matrix{.data = memory.data(),
                        .dtype = dtype,
                        .rows = height,
                        .cols = width,
                        .row_pitch = width * size,
                        .col_stride = size};
        };
        backend.kernels->transpose({}, matrix(values, rows, cols), matrix(got, cols, rows));
        reference_backend().transpose({}, matrix(values, rows, cols), matrix(wanted, cols, rows));
        EXPECT_EQ(got, wanted) << backend.name << ": " << rows << " x " << cols << " of "
                               << dtype_name(dtype);
        const auto* const from = reinterpret_cast<const std::byte*>(values.data());
        const auto* const to = reinterpret_cast<const std::byte*>(wanted.data());
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t col = 0; col < cols; ++col)
            ASSERT_EQ(std::memcmp(to + (col * rows + row) * size, from + (row * cols + col) * size,
                                  static_cast<std::size_t>(size)),
                      0);
      }
  }
}

// Beside the reference, which does not fuse: with u = 2^-53 either sum of K products is off by at
// most K u / (1 - K u) of the sum of their magnitudes, and the difference by u of itself.
TEST(ElementBitsAgreement, UpdateOfF64) {
  struct Size {
    std::int64_t rows, cols, depth;
  };
  std::mt19937 random(8);
  std::normal_distribution<double> normal;
  for (const auto [rows, cols, depth] :
       {Size{1, 1, 1}, Size{16, 16, 192}, Size{33, 50, 7}, Size{192, 192, 192}, Size{7, 100, 65}}) {
    const auto panels = [&](std::int64_t count) {
      std::vector<double> out(
          static_cast<std::size_t>((count + kF64Panel - 1) / kF64Panel * kF64Panel * depth));
      for (double& x : out) x = normal(random);
      return out;
    };
    const std::vector<double> a = panels(rows), b = panels(cols);
    const std::int64_t pitch = cols + 3;
    std::vector<double> before(static_cast<std::size_t>(rows * pitch));
    for (double& x : before) x = normal(random);
    const auto by = [&](const Kernels& kernels, std::vector<double>& c) {
      return kernels.subtract_f64({}, {.a = a.data(),
                                       .b = b.data(),
                                       .c = c.data(),
                                       .pitch = pitch,
                                       .rows = rows,
                                       .cols = cols,
                                       .depth = depth});
    };
    std::vector<double> wanted = before;
    ASSERT_TRUE(by(reference_backend(), wanted));
    const auto at = [&](const std::vector<double>& packed, std::int64_t row, std::int64_t k) {
      return packed[static_cast<std::size_t>(row / kF64Panel * kF64Panel * depth + k * kF64Panel +
                                             row % kF64Panel)];
    };
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.kernels->subtract_f64 == nullptr) continue;
      std::vector<double> got = before;
      if (!by(*backend.kernels, got)) continue;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t col = 0; col < pitch; ++col) {
          const auto i = static_cast<std::size_t>(row * pitch + col);
          double magnitudes = 0.0;
          for (std::int64_t k = 0; col < cols && k < depth; ++k)
            magnitudes += std::fabs(at(a, row, k) * at(b, col, k));
          const double most =
              0x1p-53 * (2.01 * static_cast<double>(depth) * magnitudes + 2 * std::fabs(wanted[i]));
          // Beside the matrix nothing changes.
          ASSERT_LE(std::fabs(got[i] - wanted[i]), col < cols ? most : 0.0)
              << backend.name << ": " << row << ", " << col << " of " << rows << " x " << cols;
        }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
