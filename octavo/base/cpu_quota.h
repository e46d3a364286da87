// The CPU quota of the process's control group (cgroup): how much CPU time a container may use,
// whatever CPUs are in its affinity mask.
#pragma once

#include <optional>
#include <string>

namespace octavo {

// In CPUs: 2.5 is two and a half seconds of CPU time a second. The smallest of the group and those
// above it, of cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us). Below `root`, which is "/" but in
// tests: proc/self/cgroup and sys/fs/cgroup. Empty where there is none, or what is there is
// malformed. Throws nothing.
[[nodiscard]] std::optional<double> read_cpu_quota(const std::string& root);

}  // namespace octavo
