// The one list of backends: who is compiled in, who can run on this machine, and who is chosen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/device.h"
#include "octavo/backend/kernels.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"

namespace octavo {

struct BackendInfo {
  const Kernels* kernels = nullptr;  // null when it was not built
  std::string name;
  bool usable = false;
  std::string reason;  // why it is or is not usable
};

// Fastest first; `reference` is last and always usable.
OCTAVO_API std::vector<BackendInfo> backends();

// The backend that runs CPU work: the first usable one, or the one that OCTAVO_BACKEND names.
// Throws Error(unsupported) when that name is unknown or cannot run here.
OCTAVO_API const Kernels& cpu_backend();

// A backend by name; throws Error as cpu_backend does.
OCTAVO_API const Kernels& backend_named(std::string_view name);

OCTAVO_API const Kernels& reference_backend();

// The kernels, memory and queues of a device; throws Error(unsupported) that says why not: built
// without CUDA, no driver, no such device, or one that the kernels were not built for.
OCTAVO_API const DeviceApi& device_api(Device device);

// The kernels of a device; `wanted`, if given, must be them.
const Kernels& device_backend(Device device, const Kernels* wanted, std::string_view op);

// One line about CUDA: version, device, driver; or what is missing.
OCTAVO_API std::string cuda_summary();

// How an operation on so many elements is to run. `threads` is what the caller asked for, 0 for all
// cores; throws Error(invalid_argument) when it cannot be. Little work gets one thread.
Exec make_exec(std::int64_t elements, int threads, Log* log, std::string_view op);

// The caller's backend, or the registry's choice where that is null; throws where it is not one of
// the CPU.
const Kernels& checked_cpu_backend(const Kernels* wanted, std::string_view op);

// An entry of the caller's backend, or of the registry's choice where that is null. Slots that a
// backend leaves empty are done by the reference, which is slow enough to be told.
template <typename Entry>
Entry offered(const Kernels* wanted, Entry Kernels::*entry, Log* log, std::string_view what) {
  const Kernels& kernels = checked_cpu_backend(wanted, what);
  if (kernels.*entry != nullptr) return kernels.*entry;
  if (log != nullptr) {
    log->once(text('[', what, "] backend '", kernels.name,
                   "' does not offer it; 'reference' does it instead, slowly"));
  }
  return reference_backend().*entry;
}

// Where a device's backend does not do something: throws Error(unsupported), which says that it can
// be done on the CPU. `instead`, if there is any, is what else can be done, as a beginning of that
// sentence.
[[noreturn]] void fail_not_offered(const Kernels& kernels, std::string_view op,
                                   std::string_view what, std::string_view instead = "");

// The same wherever the work is done. A device does it or refuses: nothing is copied in silence.
template <typename Entry>
Entry offered(const Exec& exec, const Kernels* wanted, Entry Kernels::*entry,
              std::string_view what) {
  if (exec.device.kind == DeviceKind::cpu) return offered(wanted, entry, exec.log, what);
  const Kernels& kernels = device_backend(exec.device, wanted, what);
  if (kernels.*entry == nullptr) fail_not_offered(kernels, what, "it");
  return kernels.*entry;
}

}  // namespace octavo
