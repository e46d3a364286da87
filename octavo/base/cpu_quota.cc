#include "octavo/base/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/system_file.h"

namespace octavo {
namespace {

// The part of `text` before the separator; `text` becomes what follows it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

// Both in microseconds. A negative quota, as v1 writes it, is none.
std::optional<double> quota_of(std::string_view quota, std::string_view period) {
  const std::optional<std::int64_t> time = whole_number(quota), every = whole_number(period);
  if (!time || !every || *time <= 0 || *every <= 0) return std::nullopt;
  return static_cast<double>(*time) / static_cast<double>(*every);
}

std::optional<double> quota_v2(const std::string& folder) {
  const std::optional<std::string> found = read_system_file(folder + "/cpu.max");
  if (!found) return std::nullopt;
  std::string_view text = *found;  // "max 100000", "250000 100000"
  const std::string_view quota = take_until(text, ' ');
  return quota_of(quota, text);
}

std::optional<double> quota_v1(const std::string& folder) {
  const std::optional<std::string> quota = read_system_file(folder + "/cpu.cfs_quota_us"),
                                   period = read_system_file(folder + "/cpu.cfs_period_us");
  return quota && period ? quota_of(*quota, *period) : std::nullopt;
}

// Asks the group and all above it. In a container the path may be the host's: its folders are not
// there, and the top is the container's own group.
template <typename QuotaOf>
void take_least(std::optional<double>& least, const std::string& mount, std::string_view path,
                const QuotaOf& quota_in) {
  constexpr int kMostGroups = 64;
  if (!path.starts_with('/') || path.find("..") != std::string_view::npos) path = "/";
  for (int i = 0; i < kMostGroups; ++i) {
    while (path.ends_with('/')) path.remove_suffix(1);
    const std::optional<double> found = quota_in(mount + std::string(path));
    if (found) least = std::min(least.value_or(*found), *found);
    if (path.empty()) return;
    path = path.substr(0, std::min(path.rfind('/'), path.size()));
  }
}

bool has_controller(std::string_view controllers, std::string_view name) {
  while (!controllers.empty())
    if (take_until(controllers, ',') == name) return true;
  return false;
}

}  // namespace

std::optional<double> read_cpu_quota(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  const std::optional<std::string> groups = read_system_file(root + "/proc/self/cgroup");
  std::string_view lines = groups ? std::string_view(*groups) : "0::/";
  std::optional<double> least;
  while (!lines.empty()) {  // "4:cpu,cpuacct:/a/group", "0::/a/group"
    std::string_view path = take_until(lines, '\n');
    const std::string_view number = take_until(path, ':'), controllers = take_until(path, ':');
    if (number == "0" && controllers.empty()) {
      take_least(least, mounts, path, quota_v2);
    } else if (has_controller(controllers, "cpu")) {
      take_least(least, mounts + "/cpu", path, quota_v1);
      take_least(least, text(mounts, '/', controllers), path, quota_v1);
    }
  }
  return least;
}

}  // namespace octavo
