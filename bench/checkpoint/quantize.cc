// One run of quantize_checkpoint, for run.py to time: SOURCE OUT RECIPE TARGET [measure|blind].
#include <cstdio>
#include <cstring>
#include <exception>

#include "octavo/pipeline/quantize_checkpoint.h"

namespace {

// Peak RSS in MiB. Not getrusage: its peak includes that of the parent process.
double peak_mebibytes() {
  double kibibytes = 0;
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "VmHWM: %lf", &kibibytes) == 1) break;
  if (file != nullptr) std::fclose(file);
  return kibibytes / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: bench_checkpoint SOURCE OUT RECIPE TARGET [measure|blind]\n");
    return 2;
  }
  try {
    octavo::QuantizeCheckpointOptions options;
    options.plan.recipe = argv[3];
    options.plan.target = octavo::parse_dialect(argv[4]);
    options.measure = argc < 6 || std::strcmp(argv[5], "blind") != 0;
    const octavo::CheckpointReport report = octavo::quantize_checkpoint(argv[1], argv[2], options);
    double worst = 1;
    for (const octavo::TensorReport& tensor : report.tensors)
      if (tensor.measured && tensor.metrics.cosine < worst) worst = tensor.metrics.cosine;
    std::printf(
        "{\"seconds\": %.4f, \"bytes_after\": %llu, \"worst_cosine\": %.8f, "
        "\"peak_mebibytes\": %.1f}\n",
        report.seconds, static_cast<unsigned long long>(report.bytes_after), worst,
        peak_mebibytes());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
