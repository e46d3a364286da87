// octavo doctor: hardware, backends that can run, the chosen one and why, and a self-check of their
// results.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/self_check.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/json_text.h"
#include "octavo/backend/registry.h"
#include "octavo/base/count_text.h"
#include "octavo/base/cpu_features.h"
#include "octavo/base/cpu_topology.h"
#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/base/product_threads.h"
#include "octavo/base/thread_pool.h"
#include "octavo/format/named_formats.h"
#include "octavo/model/gptq/gptq.h"
#include "octavo/model/tokenizer/tokenizer.h"
#include "octavo/version.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo doctor
  octavo doctor --json
  OCTAVO_BACKEND=reference octavo doctor      is the switch understood?

Exit code 1 when something is wrong: a switch that cannot be followed, or a kernel whose bits
differ.)";

struct BackendReport {
  BackendInfo info;
  bool chosen = false;
  std::optional<std::string> difference;  // of the self check; empty string: none
};

struct Report {
  CpuCounts machine, usable;  // all of it, and what this process may use
  std::optional<double> quota;
  std::optional<int> threads;
  std::optional<ProductThreads> product_threads;
  std::optional<std::string> forced_backend, forced_threads;
  std::vector<BackendReport> backends;
  std::string choice;  // why the chosen backend was chosen
  std::vector<std::string> problems;
  bool has_cuda = false;
  std::string gpu;
  // Parts that need a library, and why each is not there: "" where it is.
  std::vector<std::pair<std::string, std::string>> parts;
};

void examine_threads(Report& report) {
  report.machine = count_cpus(cpu_topology());
  report.usable = count_cpus(cpu_topology(), allowed_cpus());
  report.quota = cpu_quota();
  try {
    if (const auto forced = env_threads()) report.forced_threads = std::to_string(*forced);
    report.threads = available_threads();
    report.product_threads = product_threads_with_reason();
  } catch (const Error& error) {
    report.forced_threads = "unusable";
    report.problems.emplace_back(error.what());
  }
}

void examine_backends(Report& report) {
  report.forced_backend = env_backend();
  const Kernels* chosen = nullptr;
  try {
    chosen = &cpu_backend();
    report.choice = report.forced_backend ? "OCTAVO_BACKEND names it"
                                          : "the first of the list that can run here";
  } catch (const Error& error) {
    report.problems.push_back(
        formatted("OCTAVO_BACKEND: {}; unset it to let octavo choose", error.what()));
  }
  for (BackendInfo& info : backends()) {
    BackendReport entry{.info = std::move(info), .chosen = false, .difference = std::nullopt};
    const bool on_cpu = entry.info.name.rfind("cuda", 0) != 0;
    entry.chosen = entry.info.kernels != nullptr && entry.info.kernels == chosen;
    if (entry.info.usable && on_cpu) {
      entry.difference = self_check(*entry.info.kernels);
      if (!entry.difference->empty()) {
        report.problems.push_back(formatted(
            "{} differs from the reference: {}; report this, and set OCTAVO_BACKEND=reference",
            entry.info.name, *entry.difference));
      }
    }
    report.backends.push_back(std::move(entry));
  }
}

void examine_gpu(Report& report) {
  report.gpu = cuda_summary();
  try {
    (void)device_api({DeviceKind::cuda, 0});
    report.has_cuda = true;
  } catch (const Error&) {
    const bool has_driver = access("/dev/nvidiactl", F_OK) == 0;
    report.gpu += has_driver ? "; an NVIDIA driver is here, but everything runs on the CPU"
                             : "; everything runs on the CPU";
  }
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

std::string described_parts(const Report& report) {
  std::string line;
  for (const auto& [part, why] : report.parts)
    line += (line.empty() ? "" : "; ") + (why.empty() ? part : "no " + part + ": " + why);
  return line;
}

nlohmann::ordered_json json_of(const CpuCounts& counts) {
  return {{"sockets", counts.sockets},
          {"nodes", counts.nodes},
          {"cores", counts.cores},
          {"cpus", counts.cpus}};
}

nlohmann::ordered_json json_of(const Report& report) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json out{{"version", version()},
                             {"compiler", compiler()},
                             {"cpu", {{"name", cpu_name()}, {"features", cpu_feature_names()}}},
                             {"topology",
                              {{"machine", json_of(report.machine)},
                               {"usable", json_of(report.usable)},
                               {"quota", or_null(report.quota)}}},
                             {"threads", or_null(report.threads)},
                             {"product_threads", nullptr},
                             {"gpu", {{"available", report.has_cuda}, {"reason", report.gpu}}},
                             {"unavailable", nlohmann::ordered_json::object()},
                             {"backends", nlohmann::ordered_json::array()},
                             {"environment",
                              {{"OCTAVO_BACKEND", or_null(report.forced_backend)},
                               {"OCTAVO_THREADS", or_null(report.forced_threads)}}},
                             {"problems", report.problems}};
  if (report.product_threads)
    out["product_threads"] = {{"count", report.product_threads->threads},
                              {"reason", report.product_threads->reason}};
  for (const auto& [part, why] : report.parts)
    if (!why.empty()) out["unavailable"][part] = why;
  for (const BackendReport& backend : report.backends) {
    const bool checked = backend.difference.has_value();
    out["backends"].push_back(
        {{"name", backend.info.name},
         {"usable", backend.info.usable},
         {"chosen", backend.chosen},
         {"reason", backend.info.reason},
         {"bits_as_reference", checked ? nlohmann::ordered_json(backend.difference->empty())
                                       : nlohmann::ordered_json(nullptr)}});
  }
  return out;
}

std::string described(const CpuCounts& counts) {
  return formatted("{}, {}, {}, {}", counted(counts.sockets, "socket"),
                   counted(counts.nodes, "NUMA node"), counted(counts.cores, "core"),
                   counted(counts.cpus, "logical CPU"));
}

std::string described_topology(const Report& report) {
  if (report.machine.cpus == 0) return "unknown: /sys does not tell";
  std::string line = described(report.machine);
  if (report.usable != report.machine) line += "; this process may use " + described(report.usable);
  if (report.quota) line += formatted("; CPU quota {:.4g}", *report.quota);
  return line;
}

std::string described_threads(const Report& report) {
  if (!report.threads || !report.product_threads) return "unknown";
  const auto& [threads, reason] = *report.product_threads;
  return formatted("{}; products {}: {}", *report.threads, threads, reason);
}

void print_report(const Report& report) {
  const Style style(stdout);
  const auto line = [&](std::string_view label, std::string_view value) {
    print(style.bold(formatted("{:<12}", label)) + std::string(value) + "\n");
  };
  line("octavo", formatted("{} ({})", version(), compiler()));
  line("cpu", cpu_name());
  line("features", joined(cpu_feature_names(), " "));
  line("topology", described_topology(report));
  line("threads", described_threads(report));
  line("gpu", report.gpu);
  line("has", described_parts(report));
  line("switches",
       formatted("OCTAVO_BACKEND {}, OCTAVO_THREADS {}", report.forced_backend.value_or("not set"),
                 report.forced_threads.value_or("not set")));

  print("\n" + style.bold("kernels, fastest first") + "\n");
  for (const BackendReport& backend : report.backends) {
    const bool usable = backend.info.usable;
    const std::string state = backend.chosen ? style.good("runs   ")
                              : usable       ? "can run"
                                             : style.dim("cannot ");
    print(formatted("  {} {:<15} {}  {}{}\n", backend.chosen ? "->" : "  ", backend.info.name,
                    state, backend.info.reason,
                    backend.chosen ? style.good(formatted("; chosen: {}", report.choice)) : ""));
  }

  std::string checked;
  std::int64_t agreeing = 0;
  for (const BackendReport& backend : report.backends) {
    if (backend.difference && backend.difference->empty())
      checked += (agreeing++ == 0 ? "" : ", ") + backend.info.name;
  }
  print("\n");
  line("self check",
       formatted("{} {} the reference's bits ({} inputs x {} formats)", checked,
                 plural(agreeing, "gives", "give"), kSelfCheckInputs, kNamedFormats.size()));
  for (const std::string& problem : report.problems)
    print(style.bad(formatted("{:<12}", "problem")) + problem + "\n");
  if (report.problems.empty()) line("verdict", style.good("good"));
}

int run_doctor(const Globals& globals) {
  Report report;
  examine_threads(report);
  examine_backends(report);
  examine_gpu(report);
  report.parts = {{"tokenizers", Tokenizer::why_unavailable()},
                  {"GPTQ", why_gptq_is_unavailable()}};
  if (globals.json) {
    print(json_text(json_of(report)));
  } else {
    print_report(report);
  }
  return report.problems.empty() ? kGood : kFailed;
}

}  // namespace

Command add_doctor(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(
      program, globals, "doctor",
      "Show which kernels run on this machine, why, and whether they are right", kExamples);
  return {app, [&globals] { return run_doctor(globals); }};
}

}  // namespace octavo::cli
