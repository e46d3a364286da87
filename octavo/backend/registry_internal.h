// Dispatch of one call for convert, quant, ops, report and pipeline: Exec, the backend that was
// chosen, and its kernel-table entries, with the fallback to reference.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/backend/device.h"
#include "octavo/backend/kernels.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/base/thread_pool.h"

namespace octavo {

// The kernels of a device; throws if `wanted` is given and is another backend.
const Kernels& device_backend(Device device, const Kernels* wanted, std::string_view op);

// How many threads a call has whose caller does not say: available_threads or product_threads.
using DefaultThreads = int (*)();

// The Exec of a CPU operation on `elements` elements. `threads` is the caller's, 0 for the default;
// throws Error(invalid_argument) where it is out of range. Little work gets one thread.
Exec make_exec(std::int64_t elements, int threads, Log* log, std::string_view op,
               DefaultThreads default_threads = available_threads);

// The caller's backend, or the registry's choice where that is null; throws where it is no CPU
// backend.
const Kernels& checked_cpu_backend(const Kernels* wanted, std::string_view op);

// A kernel-table entry of the caller's backend, or of the registry's choice where that is null.
// Entries that a backend leaves null fall back to reference, which is slow, so it is logged.
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

// Throws Error(unsupported) where a device's backend does not offer an operation; the message says
// that the CPU does. `instead`, if given, is an alternative that the message begins with.
[[noreturn]] void fail_not_offered(const Kernels& kernels, std::string_view op,
                                   std::string_view what, std::string_view instead = "");

// The same on the CPU or a device. A device runs it or refuses: nothing is copied silently.
template <typename Entry>
Entry offered(const Exec& exec, const Kernels* wanted, Entry Kernels::*entry,
              std::string_view what) {
  if (exec.device.kind == DeviceKind::cpu) return offered(wanted, entry, exec.log, what);
  const Kernels& kernels = device_backend(exec.device, wanted, what);
  if (kernels.*entry == nullptr) fail_not_offered(kernels, what, "it");
  return kernels.*entry;
}

}  // namespace octavo
