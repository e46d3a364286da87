// CPU seconds of repeated work, and the memory it adds to the process.
#pragma once

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace bench {

// CPU time, so that other processes on the machine do not count.
inline double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A field of /proc/self/status in bytes: VmRSS (resident now) or VmHWM (resident at most).
inline double resident_bytes(const char* field) {
  std::ifstream status("/proc/self/status");
  double kibibytes = 0;
  for (std::string word; status >> word;)
    if (word == std::string(field) + ":") status >> kibibytes;
  return kibibytes * 1024;
}

inline std::string contents_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Runs `work` `repeats` times and prints the seconds of each run, and the peak of the first one
// above what was resident before.
template <typename Work>
void print_cost(int repeats, Work work) {
  std::vector<double> seconds;
  const double before = resident_bytes("VmRSS");
  double peak = 0;
  long result = 0;
  for (int i = 0; i < repeats; ++i) {
    const double start = cpu_seconds();
    result = work();
    seconds.push_back(cpu_seconds() - start);
    if (i == 0) peak = resident_bytes("VmHWM") - before;
  }
  std::printf("{\"result\": %ld, \"peak_bytes\": %.0f, \"seconds\": [", result, peak);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    std::printf("%s%.9f", i > 0 ? ", " : "", seconds[i]);
  std::printf("]}\n");
}

}  // namespace bench
