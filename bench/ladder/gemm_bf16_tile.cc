// The bf16 microkernel of 8 x 12 (BFMMLA): as GCC compiles intrinsics, and in assembly. Panels of A
// and B in L1, and B in L2, as in a product. items_per_second counts products (MAC): divided by the
// clock, 64 is the peak of a Neoverse V1.
#include <benchmark/benchmark.h>

#if defined(__aarch64__)
#include <vector>

#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kDepth = 1024, kRows = 8, kCols = 12;

void run_tiles(benchmark::State& state, void (*tile)(const MicrokernelJob&)) {
  if (!cpu_features().bf16) return state.SkipWithError("this CPU has no bf16 matrix products");
  const std::int64_t panels = state.range(0);
  const std::vector<std::uint16_t> a(kRows * kDepth, 0x3F80),
      b(static_cast<std::size_t>(panels * kCols * kDepth), 0x3F80);
  std::vector<float> sums(static_cast<std::size_t>(kRows * kCols * panels));
  MicrokernelJob job{};
  job.a = reinterpret_cast<const std::byte*>(a.data());
  job.run = kDepth;
  job.runs = 1;
  job.pitch = kCols * panels;
  for (auto _ : state)
    for (std::int64_t p = 0; p < panels; ++p) {
      job.b = reinterpret_cast<const std::byte*>(b.data() + p * kCols * kDepth);
      job.sums = sums.data() + p * kCols;
      tile(job);
    }
  if (sums[0] != static_cast<float>(kDepth) * static_cast<float>(state.iterations()) &&
      sums[0] < 0x1p24F)
    return state.SkipWithError("wrong sums");
  state.SetItemsProcessed(state.iterations() * panels * kRows * kCols * kDepth);
}

BENCHMARK_CAPTURE(run_tiles, compiled, neon_bf16_tile_compiled)->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(run_tiles, assembly, neon_bf16_tile)->Arg(1)->Arg(32);

}  // namespace
}  // namespace octavo::cpu
#endif
