// The Cholesky factorisation that GPTQ needs: f64, in place, by blocks that threads share.
#pragma once

#include <cstdint>
#include <span>

namespace octavo::gptq_detail {

// Was octavo built with a library for it?
[[nodiscard]] bool has_cholesky();

// The lower triangle of a symmetric matrix [n, n], row-major, becomes its factor L (A = L L^T); the
// upper one is scratch. False where the matrix is not positive definite. Blocks have one size and
// each is computed by one thread: no bit depends on the number of threads.
[[nodiscard]] bool cholesky(std::span<double> matrix, std::int64_t n, int threads);

}  // namespace octavo::gptq_detail
