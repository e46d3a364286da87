// bench_cuda [--rows N] [--cols N] [--repeats N] [--only TEXT] [--json FILE]
//
// Casts and quantizers through the kernel table, each beside the copy rate measured in the same run
// and the fraction of it that it is held to.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/cuda/timing.h"
#include "octavo/backend/cuda.h"
#include "octavo/base/error.h"
#include "octavo/version.h"

namespace octavo::bench {
namespace {

struct Arguments {
  std::int64_t rows = 16384, cols = 8192;
  int repeats = 51;
  std::string only, json;
};

struct Result {
  const Case* asked = nullptr;
  std::int64_t bytes = 0;
  Timing timing;
  std::string problem;

  [[nodiscard]] double rate() const {
    return static_cast<double>(bytes) / (timing.median_us * 1e-6);
  }
};

Arguments parse(int count, char** words) {
  Arguments asked;
  for (int i = 1; i < count; i += 2) {
    const std::string option = words[i];
    check(i + 1 < count, ErrorCode::invalid_argument, "bench", option, " wants a value");
    const char* const value = words[i + 1];
    if (option == "--rows") {
      asked.rows = std::atoll(value);
    } else if (option == "--cols") {
      asked.cols = std::atoll(value);
    } else if (option == "--repeats") {
      asked.repeats = std::max(20, std::atoi(value));
    } else if (option == "--only") {
      asked.only = value;
    } else if (option == "--json") {
      asked.json = value;
    } else {
      fail(ErrorCode::invalid_argument, "bench", "unknown option ", option);
    }
  }
  return asked;
}

Result measure(const Case& asked, Lab& lab, const Stopwatch& watch) {
  Result result{.asked = &asked, .timing = {}, .problem = {}};
  try {
    const Work work = asked.make(lab);
    result.bytes = work.bytes;
    result.timing = watch.time(work.run, work.other ? work.other : work.run);
  } catch (const std::exception& error) {
    result.problem = error.what();
    (void)cudaGetLastError();
  }
  return result;
}

void print(const Result& result, double ceiling) {
  const Case& asked = *result.asked;
  if (!result.problem.empty()) {
    std::printf("%-10s %-34s %s\n", asked.group.c_str(), asked.name.c_str(),
                result.problem.c_str());
    return;
  }
  const double share = result.rate() / ceiling;
  const double spread =
      100 * (result.timing.high_us - result.timing.low_us) / result.timing.median_us;
  std::printf("%-10s %-34s %9.1f %8.1f %6.1f %8.0f %7.3f", asked.group.c_str(), asked.name.c_str(),
              result.timing.median_us, result.timing.alone_us, spread, result.rate() * 1e-9, share);
  if (asked.bar > 0) std::printf(" %6.2f %s", asked.bar, share >= asked.bar ? "" : "MISSED");
  std::printf("\n");
  std::fflush(stdout);
}

void write_json(const std::string& path, const Arguments& asked, const CopyRate& before,
                const CopyRate& after, double ceiling, const std::vector<Result>& results) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  check(file != nullptr, ErrorCode::io, "bench", "cannot write ", path);
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  std::fprintf(file, "{\n  \"device\": \"%s\",\n  \"octavo\": \"%s\",\n", cuda::summary().c_str(),
               version());
  std::fprintf(file, "  \"cuda\": {\"runtime\": %d, \"driver\": %d},\n", runtime, driver);
  std::fprintf(file, "  \"rows\": %lld, \"cols\": %lld, \"repeats\": %d,\n",
               static_cast<long long>(asked.rows), static_cast<long long>(asked.cols),
               asked.repeats);
  const auto copy = [&](const char* name, const CopyRate& rate) {
    std::fprintf(file, "  \"%s\": {\"driver_gbps\": %.1f, \"kernel_gbps\": %.1f},\n", name,
                 rate.driver * 1e-9, rate.kernel * 1e-9);
  };
  copy("copy_before", before);
  copy("copy_after", after);
  std::fprintf(file, "  \"copy_gbps\": %.1f,\n  \"results\": [", ceiling * 1e-9);
  const char* separator = "\n";
  for (const Result& result : results) {
    std::fprintf(file, "%s    {\"group\": \"%s\", \"case\": \"%s\"", separator,
                 result.asked->group.c_str(), result.asked->name.c_str());
    separator = ",\n";
    if (!result.problem.empty()) {
      std::fprintf(file, ", \"failed\": true}");
      continue;
    }
    std::fprintf(
        file,
        ", \"bytes\": %lld, \"us\": %.2f, \"us_alone\": %.2f, \"us_p10\": %.2f, \"us_p90\": %.2f, "
        "\"gbps\": %.1f, \"of_copy\": %.4f, \"bar\": %.2f}",
        static_cast<long long>(result.bytes), result.timing.median_us, result.timing.alone_us,
        result.timing.low_us, result.timing.high_us, result.rate() * 1e-9, result.rate() / ceiling,
        result.asked->bar);
  }
  std::fprintf(file, "\n  ]\n}\n");
  std::fclose(file);
}

int run(const Arguments& asked) {
  Lab lab(asked.rows, asked.cols);
  const Stopwatch watch(lab, asked.repeats);
  const CopyRate before = copy_rate(lab, watch);
  std::vector<Case> cases = cast_cases();
  for (Case& more : scaled_cases()) cases.push_back(std::move(more));
  for (Case& more : quantize_cases()) cases.push_back(std::move(more));
  std::vector<Result> results;
  for (const Case& one : cases) {
    if ((one.group + " " + one.name).find(asked.only) == std::string::npos) continue;
    results.push_back(measure(one, lab, watch));
    if (!results.back().problem.empty()) print(results.back(), 1);
  }
  const CopyRate after = copy_rate(lab, watch);
  const double ceiling = std::max(before.best(), after.best());
  std::printf("%s; %lld x %lld; octavo %s\n", cuda::summary().c_str(),
              static_cast<long long>(asked.rows), static_cast<long long>(asked.cols), version());
  std::printf("copy: driver %.0f and %.0f GB/s, kernel %.0f and %.0f (before and after)\n",
              before.driver * 1e-9, after.driver * 1e-9, before.kernel * 1e-9, after.kernel * 1e-9);
  std::printf("%-10s %-34s %9s %8s %6s %8s %7s %6s\n", "", "", "us", "alone", "+-%", "GB/s",
              "of copy", "bar");
  bool failed = false;
  for (const Result& result : results) {
    print(result, ceiling);
    failed |= !result.problem.empty();
  }
  if (!asked.json.empty()) write_json(asked.json, asked, before, after, ceiling, results);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int count, char** words) {
  try {
    return octavo::bench::run(octavo::bench::parse(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
