// What tests of products on a device share: numbers whose sums are exact, and what is wrong with a
// result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "tests/cuda/device_memory.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {

inline constexpr Device kThere{DeviceKind::cuda, 0};

// From -8 to 8: a sum of 2^17 products is below 2^24.
inline std::vector<float> integers(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (float& x : values) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return values;
}

// How many are wrong, the first of them, and the rows and columns that they are in: enough to see
// whether an edge, a tile, a warpgroup's rows or everything is.
class Wrong {
 public:
  void add(std::int64_t row, std::int64_t col, double got, double wanted) {
    if (count_++ == 0)
      first_ = text("row ", row, ", column ", col, ": got ", got, ", wanted ", wanted);
    top_ = std::min(top_, row), bottom_ = std::max(bottom_, row);
    left_ = std::min(left_, col), right_ = std::max(right_, col);
  }
  [[nodiscard]] std::string report() const {
    if (count_ == 0) return "";
    return text(count_, " wrong, in rows ", top_, " to ", bottom_, ", columns ", left_, " to ",
                right_, ", first ", first_);
  }

 private:
  std::int64_t count_ = 0, top_ = 1 << 30, bottom_ = -1, left_ = 1 << 30, right_ = -1;
  std::string first_;
};

inline double sum_of(const std::vector<float>& a, const std::vector<float>& b, std::int64_t row,
                     std::int64_t col, std::int64_t k) {
  double sum = 0;
  for (std::int64_t i = 0; i < k; ++i)
    sum += static_cast<double>(a[static_cast<std::size_t>(row * k + i)]) *
           static_cast<double>(b[static_cast<std::size_t>(col * k + i)]);
  return sum;
}

}  // namespace octavo::testing
