#include "octavo/model/eval/hidden_difference_internal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "octavo/base/thread_pool.h"

namespace octavo::eval {
namespace {

constexpr std::size_t kLanes = 4;
constexpr std::int64_t kRowsOfPart = 64;

double total_of(const std::array<double, kLanes>& lanes) {
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Of one token.
void add_token(const float* original, const float* hidden, std::size_t count, double& cosine,
               double& relative2) {
  std::array<double, kLanes> x2{}, y2{}, error2{};
  const auto add = [&](std::size_t i, std::size_t lane) {
    const double x = static_cast<double>(original[i]), y = static_cast<double>(hidden[i]);
    x2[lane] += x * x;
    y2[lane] += y * y;
    error2[lane] += (x - y) * (x - y);
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, 0);
  const double x = std::sqrt(total_of(x2)), y = std::sqrt(total_of(y2)), e2 = total_of(error2);
  if (e2 == 0.0) {  // also where both are zeros
    cosine = 1.0;
    relative2 = 0.0;
    return;
  }
  // 1 - cos = (e^2 - (|x| - |y|)^2) / (2 |x| |y|), which subtracts nothing large.
  const double d = x - y;
  cosine = x == 0.0 || y == 0.0 ? 0.0 : 1.0 - (e2 - d * d) / (2.0 * x * y);
  relative2 = e2 / (x * x);
}

}  // namespace

LayerDifference DifferenceSums::difference() const {
  if (tokens == 0) return {};
  const auto n = static_cast<double>(tokens);
  return {.cosine = cosine / n, .relative_error = std::sqrt(relative2 / n)};
}

DifferenceSums difference_of(const View& original, const View& hidden, int threads) {
  const std::int64_t rows = original.shape[0], cols = original.shape[1];
  std::vector<double> cosines(static_cast<std::size_t>(rows)), relatives(cosines.size());
  const auto parts = static_cast<int>((rows + kRowsOfPart - 1) / kRowsOfPart);
  parallel_for(parts, threads, [&](int part) {
    const std::int64_t first = part * kRowsOfPart, end = std::min(rows, first + kRowsOfPart);
    for (std::int64_t row = first; row < end; ++row) {
      const auto at = static_cast<std::size_t>(row);
      add_token(static_cast<const float*>(original.data) + row * cols,
                static_cast<const float*>(hidden.data) + row * cols, static_cast<std::size_t>(cols),
                cosines[at], relatives[at]);
    }
  });
  DifferenceSums sums{.tokens = rows};
  for (const double cosine : cosines) sums.cosine += cosine;
  for (const double relative : relatives) sums.relative2 += relative;
  return sums;
}

}  // namespace octavo::eval
