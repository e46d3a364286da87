// In place of cholesky.cc where Eigen was not found.
#include "octavo/model/gptq/cholesky_internal.h"

namespace octavo::gptq_detail {

bool has_cholesky() { return false; }
bool cholesky(std::span<double>, std::int64_t, int) { return false; }

}  // namespace octavo::gptq_detail
