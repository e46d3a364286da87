#include "octavo/base/product_threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "octavo/base/count_text.h"
#include "octavo/base/cpu_quota.h"
#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

enum class Limit { cores, quota };

struct Choice {
  int threads = 1;
  Limit limit = Limit::cores;
};

Choice choose(const CpuCounts& usable, std::optional<double> quota) {
  const int cores = std::clamp(usable.cores, 1, kMaxThreads);
  if (!quota || !(std::ceil(*quota) < cores)) return {cores, Limit::cores};
  return {std::max(1, static_cast<int>(std::ceil(*quota))), Limit::quota};
}

std::string reason_for(const Choice& choice, const CpuCounts& usable, std::optional<double> quota) {
  if (choice.limit == Limit::quota)
    return text("the CPU quota is ", *quota, " of ", counted(usable.cores, "core"));
  if (usable.cpus > usable.cores) return "one per core; its other threads (SMT) are left idle";
  return "one per core";
}

}  // namespace

ProductThreads choose_product_threads(const CpuTopology& topology, std::span<const int> allowed,
                                      std::optional<double> quota) {
  const CpuCounts usable = count_cpus(topology, allowed);
  const Choice choice = choose(usable, quota);
  return {choice.threads, reason_for(choice, usable, quota)};
}

// Negative while it has not been read; 0: none. As in cpu_topology(), no lock.
std::optional<double> cpu_quota() {
  static constinit std::atomic<double> kept{-1.0};
  double found = kept.load(std::memory_order_relaxed);
  if (found < 0.0) {
    found = read_cpu_quota("/").value_or(0.0);
    kept.store(found, std::memory_order_relaxed);
  }
  return found > 0.0 ? std::optional(found) : std::nullopt;
}

ProductThreads product_threads_with_reason() {
  if (const std::optional<int> wanted = env_threads()) return {*wanted, "OCTAVO_THREADS says so"};
  const std::vector<int> allowed = allowed_cpus();
  if (allowed.empty()) return {available_threads(), "the system does not tell which CPUs it gives"};
  return choose_product_threads(cpu_topology(), allowed, cpu_quota());
}

int product_threads() {
  if (const std::optional<int> wanted = env_threads()) return *wanted;
  const std::vector<int> allowed = allowed_cpus();
  if (allowed.empty()) return available_threads();
  return choose(count_cpus(cpu_topology(), allowed), cpu_quota()).threads;
}

}  // namespace octavo
