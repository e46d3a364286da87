// The topology of a machine's CPUs: which logical CPUs are threads of one core (SMT siblings), and
// which socket and NUMA node they belong to, as Linux tells it in /sys.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// The most that Linux can be built for; larger numbers in /sys are not believed.
inline constexpr int kMostCpus = 8192, kMostNodes = 1024;

// Logical CPUs are what the scheduler runs threads on. Cores, sockets and nodes are numbered from 0
// in the order of their first CPU.
struct LogicalCpu {
  int cpu = 0, core = 0, socket = 0, node = 0;
};

struct CpuTopology {
  std::vector<LogicalCpu> cpus{};  // those online, by number; empty: unknown
};

// Below `root`, which is "/" but in tests: sys/devices/system/cpu and .../node. Throws nothing:
// what is missing or malformed counts as a core of its own, on the first socket or node.
[[nodiscard]] CpuTopology read_cpu_topology(const std::string& root);

// That of this machine, read once.
[[nodiscard]] const CpuTopology& cpu_topology();

struct CpuCounts {
  int sockets = 0, nodes = 0, cores = 0, cpus = 0;

  [[nodiscard]] bool operator==(const CpuCounts&) const = default;
};

// Of the whole machine, and of those logical CPUs that `allowed` names, each once. Such CPUs that
// the topology does not know count as a core each.
[[nodiscard]] CpuCounts count_cpus(const CpuTopology& topology);
[[nodiscard]] CpuCounts count_cpus(const CpuTopology& topology, std::span<const int> allowed);

// The logical CPUs in the affinity mask of the calling thread, by number; empty where the system
// does not tell.
[[nodiscard]] std::vector<int> allowed_cpus();

// A list as Linux prints it, "0-3,8", as numbers in ascending order, each once. Empty where it is
// malformed or has a number of `end` or more.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text, int end = kMostCpus);

}  // namespace octavo
