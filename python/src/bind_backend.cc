#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "bind.h"
#include "octavo/backend/kernel_clock.h"
#include "octavo/backend/registry.h"
#include "octavo/base/cpu_features.h"
#include "octavo/base/cpu_topology.h"
#include "octavo/base/product_threads.h"
#include "octavo/base/thread_pool.h"
#include "octavo/version.h"

namespace octavo::python {
namespace {

using BackendTuple = std::tuple<std::string, bool, std::string, std::string>;

std::vector<BackendTuple> list_backends() {
  std::vector<BackendTuple> all;
  for (const BackendInfo& info : backends()) {
    all.emplace_back(info.name, info.usable, info.reason,
                     info.kernels ? info.kernels->description : "");
  }
  return all;
}

}  // namespace

void bind_backend(nb::module_& module) {
  module.def("version", &version, "The version of the library.");
  module.def("backends", &list_backends,
             "Every backend, fastest first: (name, usable, reason, description).");
  module.def(
      "chosen_backend", [] { return cpu_backend().name; }, "The backend that runs CPU work now.");
  module.def("cuda_summary", &cuda_summary, "What there is of CUDA, in one line.");
  module.def(
      "check_cuda",
      [](int index) {
        (void)device_api({DeviceKind::cuda, index});
      },
      nb::arg("index"), "Raises RuntimeError that says why a CUDA device cannot be used.");
  nb::class_<KernelClock>(module, "KernelClock",
                          "While one is there, calls of the CPU backend are timed; one at a time.")
      .def(nb::init<>())
      .def_prop_ro("seconds", &KernelClock::seconds, "Of the calls that have ended.")
      .def_prop_ro("calls", &KernelClock::calls);
  module.def("cpu_name", &cpu_name, "The CPU, for display.");
  module.def("cpu_features", &cpu_feature_names,
             "The CPU features octavo knows and this CPU reports.");
  module.def("available_threads", &available_threads, "Threads a call uses when it does not say.");
  module.def(
      "product_threads",
      [] {
        const ProductThreads chosen = product_threads_with_reason();
        return std::pair(chosen.threads, chosen.reason);
      },
      "Threads a product uses when it does not say, and why.");
  module.def(
      "usable_cpus",
      [] {
        const CpuCounts usable = count_cpus(cpu_topology(), allowed_cpus());
        return std::tuple(usable.sockets, usable.nodes, usable.cores, usable.cpus);
      },
      "Sockets, NUMA nodes, cores and logical CPUs that this process may use.");
  module.def(
      "max_threads", [] { return kMaxThreads; }, "The most threads that a call may ask for.");
}

}  // namespace octavo::python
