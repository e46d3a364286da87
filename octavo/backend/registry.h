// The registry of backends: which are compiled in, which can run on this machine, and which one is
// chosen.
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

// The kernels, memory and streams of a device; throws Error(unsupported) with the reason: built
// without CUDA, no driver, no such device, or one that the kernels were not built for.
OCTAVO_API const DeviceApi& device_api(Device device);

// The kernel table of a device; throws where `wanted` is given and is another table.
const Kernels& device_backend(Device device, const Kernels* wanted, std::string_view op);

// One line about CUDA: version, device, driver; or what is missing.
OCTAVO_API std::string cuda_summary();

// The Exec of an operation on this many elements. `threads` is the caller's maximum, 0 for all
// cores; throws Error(invalid_argument) when out of range. Small work gets one thread.
Exec make_exec(std::int64_t elements, int threads, Log* log, std::string_view op);

// The caller's backend, or the registry's choice where that is null; throws where it is not a CPU
// backend.
const Kernels& checked_cpu_backend(const Kernels* wanted, std::string_view op);

// An entry of the caller's backend, or of the registry's choice where that is null. An entry that
// the backend leaves null falls back to `reference`, which is slow: the log is told once.
template <typename Entry>
Entry offered(const Kernels* wanted, Entry Kernels::*entry, Log* log, std::string_view what) {
  const Kernels& kernels = checked_cpu_backend(wanted, what);
  if (kernels.*entry != nullptr) return kernels.*entry;
  if (log != nullptr) {
    log->once(text('[', what, "] backend '", kernels.name,
                   "' does not offer it; falls back to 'reference', which is slow"));
  }
  return reference_backend().*entry;
}

// Throws Error(unsupported) where a device's backend does not offer something, with the advice to
// use the CPU. `instead`, if not empty, is another remedy, put before that advice.
[[noreturn]] void fail_not_offered(const Kernels& kernels, std::string_view op,
                                   std::string_view what, std::string_view instead = "");

// The same for any device. A device backend offers the entry or throws: nothing is copied silently.
template <typename Entry>
Entry offered(const Exec& exec, const Kernels* wanted, Entry Kernels::*entry,
              std::string_view what) {
  if (exec.device.kind == DeviceKind::cpu) return offered(wanted, entry, exec.log, what);
  const Kernels& kernels = device_backend(exec.device, wanted, what);
  if (kernels.*entry == nullptr) fail_not_offered(kernels, what, "it");
  return kernels.*entry;
}

}  // namespace octavo
