#include "octavo/base/env.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::optional<std::string> env_backend() { return variable("OCTAVO_BACKEND"); }
std::optional<std::string> env_of_launcher(const char* name) { return variable(name); }

std::optional<int> env_threads() {
  const std::optional<std::string> value = variable("OCTAVO_THREADS");
  if (!value) return std::nullopt;
  int threads = 0;
  const char* const end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, threads);
  check(error == std::errc{} && stop == end && threads >= 1 && threads <= kMaxThreads,
        ErrorCode::invalid_argument, "OCTAVO_THREADS", "got '", shown(*value),
        "'; expected a number from 1 to ", kMaxThreads, "; unset it to use every core");
  return threads;
}

std::optional<bool> env_cuda_library_gemm() {
  const std::optional<std::string> value = variable("OCTAVO_CUDA_LIBRARY_GEMM");
  if (!value) return std::nullopt;
  check(*value == "0" || *value == "1", ErrorCode::invalid_argument, "OCTAVO_CUDA_LIBRARY_GEMM",
        "got '", shown(*value),
        "'; expected 0 (octavo's own kernels alone) or 1 (cuBLASLt wherever it can); unset it to "
        "leave the choice to the table of what was measured");
  return *value == "1";
}

}  // namespace octavo
