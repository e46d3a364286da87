// f32 to e4m3fn: every backend is a step of the ladder, from the obvious loop to half-precision
// lanes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/convert/convert.h"

namespace {

constexpr std::int64_t kElements = 65536;

void run(benchmark::State& state, const octavo::Kernels* kernels,
         const octavo::EncodePolicy& policy) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements);
  for (float& value : values) value = normal(generator);
  std::vector<std::uint8_t> codes(kElements), wanted(kElements);
  octavo::encode(values, wanted, octavo::e4m3fn, policy, {.backend = &octavo::reference_backend()});
  const octavo::ConvertOptions options{.threads = 1, .backend = kernels};
  octavo::encode(values, codes, octavo::e4m3fn, policy, options);
  if (codes != wanted) state.SkipWithError("wrong bits");
  for (auto _ : state) {
    octavo::encode(values, codes, octavo::e4m3fn, policy, options);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

const int kRegistered = [] {
  const auto backends = octavo::backends();
  for (auto step = backends.rbegin(); step != backends.rend(); ++step) {
    if (!step->usable) continue;
    const std::string name = "encode_e4m3fn_f32/" + step->name;
    benchmark::RegisterBenchmark(
        name.c_str(), [kernels = step->kernels](benchmark::State& s) { run(s, kernels, {}); });
    benchmark::RegisterBenchmark((name + "/stochastic").c_str(),
                                 [kernels = step->kernels](benchmark::State& s) {
                                   run(s, kernels, {.rounding = octavo::Rounding::stochastic});
                                 });
  }
  return 0;
}();

}  // namespace
