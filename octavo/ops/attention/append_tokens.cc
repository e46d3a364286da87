#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/ops/attention/append_tokens_internal.h"

namespace octavo {

void append_tokens(const Exec& exec, const AppendJob& job) {
  if (exec.device.kind == DeviceKind::cpu) return reference_backend().append_tokens({}, job);
  constexpr std::string_view kOp = "KvCache";
  const Kernels& kernels = device_backend(exec.device, nullptr, kOp);
  if (kernels.append_tokens == nullptr) fail_not_offered(kernels, kOp, "a cache on a device");
  kernels.append_tokens(exec, job);
}

}  // namespace octavo
