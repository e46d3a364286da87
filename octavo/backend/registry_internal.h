// The kernels of one call: what an operation of convert, quant, ops and report asks the registry
// for.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/backend/device.h"
#include "octavo/backend/kernels.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"

namespace octavo {

// The kernels of a device; `wanted`, if given, must be them.
const Kernels& device_backend(Device device, const Kernels* wanted, std::string_view op);

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
