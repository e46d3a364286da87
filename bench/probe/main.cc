// bench_probe [iterations]: the peaks of the core it runs on, as a line of JSON.
#include <cstdio>
#include <cstdlib>

#include "bench/probe/peak.h"
#include "octavo/base/cpu_features.h"

int main(int count, char** words) {
  using namespace octavo;
  const int iterations = count > 1 ? std::atoi(words[1]) : 200;
  if (iterations < 1) {
    std::fprintf(stderr, "bench_probe: got '%s'; expected a number of iterations\n", words[1]);
    return 2;
  }
  const CpuFeatures& cpu = cpu_features();
  const struct {
    const char* name;
    bool offered;
    double (*peak)(int);
  } probes[] = {
#ifdef __x86_64__
      {"fma_avx2", cpu.avx2, probe::peak_fma_avx2},
      {"fma_avx512", cpu.avx512, probe::peak_fma_avx512},
      {"tdpbf16ps", cpu.amx && amx_permitted(), probe::peak_tdpbf16ps},
      {"tdpbssd", cpu.amx && amx_permitted(), probe::peak_tdpbssd},
#else
      {"fmla_f32", cpu.neon, probe::peak_fmla_f32}, {"fmla_f16", cpu.fp16, probe::peak_fmla_f16},
      {"sdot", cpu.dotprod, probe::peak_sdot},      {"bfmmla", cpu.bf16, probe::peak_bfmmla},
      {"smmla", cpu.i8mm, probe::peak_smmla},
#endif
  };
  const char* separator = "{";
  for (const auto& one : probes) {
    if (!one.offered) continue;
    std::printf("%s\"%s\": %.1f", separator, one.name, one.peak(iterations));
    separator = ", ";
  }
  std::puts("}");
  return 0;
}
