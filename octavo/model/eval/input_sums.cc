#include "octavo/model/eval/input_sums_internal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/base/thread_pool.h"

namespace octavo::eval {
namespace {

constexpr std::int64_t kBlockSquared = kHessianBlock * kHessianBlock;
constexpr std::int64_t kRowsOfPass = 256;  // of which a block's columns stay in the cache

// Numbers of E[x x^T], neighbouring channels' and all channels'.
std::uint64_t hessian_numbers(std::int64_t width, const InputSumsOptions& options) {
  constexpr std::int64_t kWidest = 1 << 24;  // its square in bytes is more than any machine has
  const std::int64_t wide = std::min(width, kWidest);
  const std::int64_t blocks = (wide + kHessianBlock - 1) / kHessianBlock;
  return static_cast<std::uint64_t>((options.block_hessians ? blocks * kBlockSquared : 0) +
                                    (options.hessian ? wide * wide : 0));
}

}  // namespace

std::uint64_t InputSums::nbytes(std::int64_t width, const InputSumsOptions& options) {
  const auto wide = static_cast<std::uint64_t>(width);
  return wide * sizeof(float) + (wide + hessian_numbers(width, options)) * sizeof(double);
}

std::uint64_t InputSums::result_nbytes(std::int64_t width, const InputSumsOptions& options) {
  const auto wide = static_cast<std::uint64_t>(width);
  return (2 * wide + hessian_numbers(width, options)) * sizeof(float);
}

InputSums::InputSums(std::int64_t width, const InputSumsOptions& options)
    : options_(options),
      width_(width),
      amax_(static_cast<std::size_t>(width)),
      squares_(static_cast<std::size_t>(width)) {
  const std::int64_t blocks = (width + kHessianBlock - 1) / kHessianBlock;
  if (options.block_hessians) blocks_.resize(static_cast<std::size_t>(blocks * kBlockSquared));
  if (options.hessian) hessian_.resize(static_cast<std::size_t>(width * width));
}

void InputSums::add(const View& input, int threads) {
  const auto* const rows = static_cast<const float*>(input.data);
  const std::int64_t count = input.shape[0];
  rows_ += count;
  if (count == 0) return;
  const auto blocks = static_cast<int>((width_ + kHessianBlock - 1) / kHessianBlock);
  parallel_for(blocks, threads, [&](int block) {
    const std::int64_t first = block * kHessianBlock;
    for (std::int64_t row = 0; row < count; row += kRowsOfPass) {
      const std::int64_t some = std::min(kRowsOfPass, count - row);
      add_block(rows + row * width_, some, first);
      if (options_.hessian) add_hessian(rows + row * width_, some, first);
    }
  });
}

void InputSums::add_block(const float* rows, std::int64_t count, std::int64_t first) {
  const auto channels = static_cast<std::size_t>(std::min(kHessianBlock, width_ - first));
  constexpr auto kWidth = static_cast<std::size_t>(kHessianBlock);
  std::array<double, kWidth> x{};
  std::array<float, kWidth> most{};
  std::array<double, kWidth> squares{};
  const auto at = static_cast<std::size_t>(first);
  std::copy_n(&amax_[at], channels, most.begin());
  std::copy_n(&squares_[at], channels, squares.begin());
  double* const hessian =
      options_.block_hessians ? &blocks_[static_cast<std::size_t>(first * kHessianBlock)] : nullptr;
  for (std::int64_t row = 0; row < count; ++row) {
    const float* const values = rows + row * width_ + first;
    for (std::size_t i = 0; i < channels; ++i) {
      const float magnitude = std::fabs(values[i]);
      // NaN stays where it came once.
      most[i] = magnitude > most[i] || magnitude != magnitude ? magnitude : most[i];
      x[i] = static_cast<double>(values[i]);
    }
    for (std::size_t i = 0; i < kWidth; ++i) squares[i] += x[i] * x[i];
    if (hessian == nullptr) continue;
    for (std::size_t i = 0; i < kWidth; ++i)
      for (std::size_t j = 0; j < kWidth; ++j) hessian[i * kWidth + j] += x[i] * x[j];
  }
  std::copy_n(most.begin(), channels, &amax_[at]);
  std::copy_n(squares.begin(), channels, &squares_[at]);
}

// Rows [first, first + kHessianBlock) of it, from the diagonal on; the rest is their mirror image.
void InputSums::add_hessian(const float* rows, std::int64_t count, std::int64_t first) {
  const std::int64_t end = std::min(width_, first + kHessianBlock);
  for (std::int64_t row = 0; row < count; ++row) {
    const float* const values = rows + row * width_;
    for (std::int64_t i = first; i < end; ++i) {
      const double x = static_cast<double>(values[i]);
      double* const sums = &hessian_[static_cast<std::size_t>(i * width_)];
      for (std::int64_t j = first; j < width_; ++j) sums[j] += x * static_cast<double>(values[j]);
    }
  }
}

ModuleStatistics InputSums::statistics() const {
  ModuleStatistics out{.rows = rows_, .amax = amax_};
  const double n = rows_ == 0 ? 1.0 : static_cast<double>(rows_);
  const auto means = [&](const std::vector<double>& sums) {
    std::vector<float> values(sums.size());
    std::transform(sums.begin(), sums.end(), values.begin(),
                   [&](double sum) { return static_cast<float>(sum / n); });
    return values;
  };
  out.mean_square = means(squares_);
  out.block_hessians = means(blocks_);
  out.hessian = means(hessian_);
  if (out.hessian.empty()) return out;
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t i = 0; i < width; ++i)
    for (std::size_t j = 0; j < i; ++j) out.hessian[i * width + j] = out.hessian[j * width + i];
  return out;
}

}  // namespace octavo::eval
