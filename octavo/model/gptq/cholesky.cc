// By blocks, right-looking: factor the block on the diagonal, solve the panel below it, take the
// panel's product from what is left. Eigen computes single blocks on the calling thread; which
// blocks there are depends on n alone.
#include "octavo/model/gptq/cholesky_internal.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>

#include "octavo/base/thread_pool.h"

namespace octavo::gptq_detail {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;

// Large enough that a product of blocks runs from the caches, small enough that threads have work.
constexpr std::int64_t kBlock = 192;

}  // namespace

bool has_cholesky() { return true; }

bool cholesky(std::span<double> matrix, std::int64_t n, int threads) {
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  const auto size = [&](std::int64_t block) { return std::min(kBlock, n - block * kBlock); };
  const auto block = [&](std::int64_t row, std::int64_t col) {
    return Block(matrix.data() + row * kBlock * n + col * kBlock, size(row), size(col),
                 Eigen::OuterStride<>(n));
  };
  for (std::int64_t at = 0; at < blocks; ++at) {
    Block diagonal = block(at, at);
    const Eigen::LLT<Eigen::Ref<RowMajor>> factor(diagonal);  // in place
    if (factor.info() != Eigen::Success) return false;
    const auto below = static_cast<int>(blocks - at - 1);
    parallel_for(below, threads, [&](int i) {
      Block panel = block(at + 1 + i, at);
      block(at, at).triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(
          panel);
    });
    // Blocks on and below the diagonal, in rows of 1, 2, 3 ...
    parallel_for(below * (below + 1) / 2, threads, [&](int i) {
      std::int64_t row = 0;
      while (i > row) i -= static_cast<int>(++row);
      const std::int64_t to_row = at + 1 + row, to_col = at + 1 + i;
      block(to_row, to_col).noalias() -= block(to_row, at) * block(to_col, at).transpose();
    });
  }
  return true;
}

}  // namespace octavo::gptq_detail
