#include "octavo/backend/cuda/gemm/cublaslt/cublaslt_loader.h"

#include <dlfcn.h>

#include <array>
#include <mutex>

#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

struct Loaded {
  CublasLt entries{};
  std::string problem{};
};

template <typename Function>
void find(void* library, const char* name, Function& entry, std::string& problem) {
  entry = reinterpret_cast<Function>(dlsym(library, name));
  if (entry == nullptr && problem.empty()) problem = text("the library has no ", name);
}

Loaded load() {
  Loaded loaded;
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* why = dlerror();
    loaded.problem += text(loaded.problem.empty() ? "" : "; ", why != nullptr ? why : name);
  }
  if (library == nullptr) return loaded;
  loaded.problem.clear();
  CublasLt& to = loaded.entries;
  find(library, "cublasLtCreate", to.create, loaded.problem);
  find(library, "cublasLtMatmul", to.matmul, loaded.problem);
  find(library, "cublasLtMatmulAlgoGetHeuristic", to.choose, loaded.problem);
  find(library, "cublasLtMatmulDescInit_internal", to.describe, loaded.problem);
  find(library, "cublasLtMatmulDescSetAttribute", to.set, loaded.problem);
  find(library, "cublasLtMatrixLayoutInit_internal", to.lay_out, loaded.problem);
  find(library, "cublasLtMatmulPreferenceInit_internal", to.prefer, loaded.problem);
  find(library, "cublasLtMatmulPreferenceSetAttribute", to.set_preference, loaded.problem);
  find(library, "cublasLtGetStatusString", to.status_text, loaded.problem);
  return loaded;
}

// Never destroyed: a GEMM may be called while the process exits.
const Loaded& loaded() {
  static const Loaded* const once = new Loaded(load());
  return *once;
}

}  // namespace

const CublasLt* cublaslt() { return loaded().problem.empty() ? &loaded().entries : nullptr; }

const std::string& cublaslt_problem() { return loaded().problem; }

CublasLtHandle cublaslt_handle(const CublasLt& library, const Exec& exec) {
  constexpr std::size_t kMaxDevices = 64;
  static std::mutex guard;
  static std::array<cublasLtHandle_t, kMaxDevices> handles{};
  const auto index = static_cast<std::size_t>(exec.device.index);
  if (index >= kMaxDevices) return {.status = CUBLAS_STATUS_NOT_SUPPORTED};
  const std::lock_guard lock(guard);
  if (handles[index] == nullptr) {
    cublasLtHandle_t made = nullptr;
    const cublasStatus_t status = library.create(&made);
    if (status != CUBLAS_STATUS_SUCCESS) return {.status = status};
    handles[index] = made;
  }
  return {.handle = handles[index]};
}

}  // namespace octavo::cuda
