#include "octavo/base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/system_file.h"

namespace octavo {
namespace {

// Takes a number off the front of a text.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<int> read_number(const std::string& path) {
  const std::optional<std::string> text = read_system_file(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  const std::optional<int> number = take_number(rest);
  return rest.empty() ? number : std::nullopt;
}

std::vector<int> read_list(const std::string& path, int end) {
  const std::optional<std::string> text = read_system_file(path);
  return text ? parse_cpu_list(*text, end) : std::vector<int>{};
}

// Numbers keys in the order in which they are first seen.
template <typename Key>
class Numbering {
 public:
  int operator[](const Key& key) {
    return known_.try_emplace(key, static_cast<int>(known_.size())).first->second;
  }

 private:
  std::map<Key, int> known_;
};

// What the threads of a core have in common. Where the list of siblings is there, the first of
// them. Else all ids together: on ARM core_id begins anew in each cluster. A CPU without an id is a
// core.
using CoreKey = std::array<int, 5>;
CoreKey core_key(const std::string& folder, int cpu) {
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    const std::vector<int> siblings = read_list(folder + name, kMostCpus);
    if (std::binary_search(siblings.begin(), siblings.end(), cpu)) return {0, siblings.front()};
  }
  const std::optional<int> core = read_number(folder + "core_id");
  if (!core || *core < 0) return {1, cpu};
  const auto id = [&](const char* name) { return read_number(folder + name).value_or(-1); };
  return {2, *core, id("cluster_id"), id("die_id"), id("physical_package_id")};
}

std::map<int, int> read_nodes(const std::string& folder) {
  std::map<int, int> node_of;
  for (const int node : read_list(folder + "online", kMostNodes))
    for (const int cpu : read_list(text(folder, "node", node, "/cpulist"), kMostCpus))
      node_of.try_emplace(cpu, node);
  return node_of;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text, int end) {
  std::set<int> found;
  while (!text.empty()) {
    const std::optional<int> first = take_number(text);
    std::optional<int> last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (!first || !last || *first < 0 || *last < *first || *last >= end) return {};
    for (int number = *first; number <= *last; ++number) found.insert(number);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  return {found.begin(), found.end()};
}

CpuTopology read_cpu_topology(const std::string& root) {
  const std::string system = root + "/sys/devices/system/";
  const std::map<int, int> node_of = read_nodes(system + "node/");
  Numbering<CoreKey> cores;
  Numbering<int> sockets, nodes;
  CpuTopology topology;
  for (const int cpu : read_list(system + "cpu/online", kMostCpus)) {
    const std::string folder = text(system, "cpu/cpu", cpu, "/topology/");
    const int socket = read_number(folder + "physical_package_id").value_or(0);
    const auto node = node_of.find(cpu);
    topology.cpus.push_back({.cpu = cpu,
                             .core = cores[core_key(folder, cpu)],
                             .socket = sockets[std::max(socket, 0)],
                             .node = nodes[node != node_of.end() ? node->second : 0]});
  }
  return topology;
}

// No lock that a fork could leave held: the thread that loses the race deletes what it read.
const CpuTopology& cpu_topology() {
  static constinit std::atomic<const CpuTopology*> kept{nullptr};
  const CpuTopology* found = kept.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto read = std::make_unique<const CpuTopology>(read_cpu_topology("/"));
  if (kept.compare_exchange_strong(found, read.get(), std::memory_order_acq_rel))
    return *read.release();
  return *found;
}

// Asked by every product: bits on the stack, no tree of numbers.
CpuCounts count_cpus(const CpuTopology& topology, std::span<const int> allowed) {
  std::bitset<kMostCpus> sockets, nodes, cores;
  int unknown = 0;
  for (const int cpu : allowed) {
    const auto at =
        std::lower_bound(topology.cpus.begin(), topology.cpus.end(), cpu,
                         [](const LogicalCpu& x, int number) { return x.cpu < number; });
    if (at == topology.cpus.end() || at->cpu != cpu) {
      ++unknown;
      continue;
    }
    cores.set(static_cast<std::size_t>(at->core));
    sockets.set(static_cast<std::size_t>(at->socket));
    nodes.set(static_cast<std::size_t>(at->node));
  }
  const auto counted = [&](const auto& known) {
    return std::max(static_cast<int>(known.count()), unknown > 0 ? 1 : 0);
  };
  return {.sockets = counted(sockets),
          .nodes = counted(nodes),
          .cores = static_cast<int>(cores.count()) + unknown,
          .cpus = static_cast<int>(allowed.size())};
}

CpuCounts count_cpus(const CpuTopology& topology) {
  std::vector<int> all;
  for (const LogicalCpu& one : topology.cpus) all.push_back(one.cpu);
  return count_cpus(topology, all);
}

std::vector<int> allowed_cpus() {
  std::vector<int> found;
  // The system refuses a mask that is shorter than its own.
  for (int cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    std::vector<cpu_set_t> mask(static_cast<std::size_t>(cpus / CPU_SETSIZE));
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (int cpu = 0; cpu < cpus; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, mask.data())) found.push_back(cpu);
    break;
  }
  return found;
}

}  // namespace octavo
