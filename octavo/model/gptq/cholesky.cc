// By blocks, right-looking: factor the block on the diagonal, solve the panel below it, take the
// panel's product from the trailing matrix. Eigen computes single blocks on the calling thread,
// compiled for the least processor of the architecture; the products, nearly all of the work, are
// of the backend's kernel where the processor has one. Which blocks there are depends on n alone.
#include "octavo/model/gptq/cholesky_internal.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <vector>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/thread_pool.h"

namespace octavo::gptq_detail {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;

// Large enough that a product of blocks runs from the caches, small enough that threads have work.
constexpr std::int64_t kBlock = 96;
static_assert(kBlock % kF64Panel == 0);

// As F64Update has it.
void pack(const Block& block, double* to) {
  for (std::int64_t first = 0; first < block.rows(); first += kF64Panel) {
    const std::int64_t rows = std::min<std::int64_t>(kF64Panel, block.rows() - first);
    double* const panel = to + first * block.cols();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < block.cols(); ++k)
        panel[k * kF64Panel + r] = block(first + r, k);
  }
}

}  // namespace

bool has_cholesky() { return true; }

bool cholesky(std::span<double> matrix, std::int64_t n, int threads) {
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  const auto size = [&](std::int64_t block) { return std::min(kBlock, n - block * kBlock); };
  const auto block = [&](std::int64_t row, std::int64_t col) {
    return Block(matrix.data() + row * kBlock * n + col * kBlock, size(row), size(col),
                 Eigen::OuterStride<>(n));
  };
  const auto subtract = offered(nullptr, &Kernels::subtract_f64, nullptr, "gptq");
  const bool has_kernel = subtract({}, {});
  // The panel, block by block: 768 K bytes, less than summing the Hessian up took.
  std::vector<double> packed(static_cast<std::size_t>(has_kernel ? blocks * kBlock * kBlock : 0));
  const auto packed_of = [&](std::int64_t row) { return packed.data() + row * kBlock * kBlock; };
  for (std::int64_t at = 0; at < blocks; ++at) {
    Block diagonal = block(at, at);
    const Eigen::LLT<Eigen::Ref<RowMajor>> factor(diagonal);  // in place
    if (factor.info() != Eigen::Success) return false;
    const auto below = static_cast<int>(blocks - at - 1);
    parallel_for(below, threads, [&](int i) {
      Block panel = block(at + 1 + i, at);
      block(at, at).triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(
          panel);
      if (has_kernel) pack(panel, packed_of(at + 1 + i));
    });
    // Blocks on and below the diagonal, in rows of 1, 2, 3 ...
    parallel_for(below * (below + 1) / 2, threads, [&](int i) {
      std::int64_t row = 0;
      while (i > row) i -= static_cast<int>(++row);
      const std::int64_t to_row = at + 1 + row, to_col = at + 1 + i;
      if (!has_kernel) {
        block(to_row, to_col).noalias() -= block(to_row, at) * block(to_col, at).transpose();
        return;
      }
      (void)subtract({}, {.a = packed_of(to_row),
                          .b = packed_of(to_col),
                          .c = block(to_row, to_col).data(),
                          .pitch = n,
                          .rows = size(to_row),
                          .cols = size(to_col),
                          .depth = size(at)});
    });
  }
  return true;
}

}  // namespace octavo::gptq_detail
