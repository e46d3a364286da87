// The bf16 microkernel of 32 x 32 in AMX tiles, over a block of columns that stays in L2: how deep
// a piece of K, and what is prefetched. items_per_second counts products (MAC); "L1" has both
// panels in L1, which is the ceiling.
#include <benchmark/benchmark.h>

#if defined(__x86_64__) && defined(__AMX_TILE__)
#include <cstdint>
#include <vector>

#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

enum class Ahead { none, a, a_and_b };

// Panels of A and B of `depth` products; the next four steps of B are prefetched, 32 lines each.
template <Ahead kAhead>
void piece(MicrokernelJob job) {
  job.prefetch_bytes = kAhead == Ahead::none ? 0 : job.prefetch_bytes;
  if constexpr (kAhead == Ahead::a_and_b) {
    for (std::int64_t k = 0; k < job.run; k += Bf16Tiles::kStep)
      for (int line = 0; line < 32; ++line)
        _mm_prefetch(job.b + (k / Bf16Tiles::kStep + 4) * 2 * kTileBytes + line * kLine,
                     _MM_HINT_T0);
  }
  tiles_microkernel<Bf16Tiles>(job);
}

// Rows, columns, K, and the depth of a piece.
template <Ahead kAhead>
void block(benchmark::State& state) {
  if (!amx_permitted()) return state.SkipWithError("no AMX here");
  const std::int64_t rows = state.range(0), cols = state.range(1), all = state.range(2),
                     depth = state.range(3);
  const auto panels = [all](std::int64_t count) {
    return std::vector<std::uint16_t>(static_cast<std::size_t>(count * all) + 65536, 0x3F80);
  };
  const std::vector<std::uint16_t> a = panels(rows), b = panels(cols);
  std::vector<float> sums(static_cast<std::size_t>(kSide * cols));
  enter_tiles();
  for (auto _ : state)
    for (std::int64_t row = 0; row < rows; row += kSide)
      for (std::int64_t k = 0; k < all; k += depth) {
        const auto* at = reinterpret_cast<const std::byte*>(a.data() + row * all + k * kSide);
        const std::int64_t share = depth * kSide * 2 * kSide / cols;
        for (std::int64_t col = 0; col < cols; col += kSide) {
          MicrokernelJob job{};
          job.a = at;
          job.b = reinterpret_cast<const std::byte*>(b.data() + col * all + k * kSide);
          job.run = depth;
          job.runs = 1;
          job.sums = sums.data() + col;
          job.pitch = cols;
          job.overwrites = k == 0;
          job.prefetch = at + depth * kSide * 2 + col / kSide * share;
          job.prefetch_bytes = share;
          piece<kAhead>(job);
        }
      }
  leave_tiles();
  if (sums[0] != static_cast<float>(all)) return state.SkipWithError("wrong sums");
  state.SetItemsProcessed(state.iterations() * rows * cols * all);
}

void shapes(benchmark::internal::Benchmark* of) {
  of->Args({32, 32, 256, 256});  // L1
  for (const std::int64_t depth : {256, 512, 1024, 2048}) of->Args({512, 320, 2048, depth});
  for (const std::int64_t depth : {256, 512, 1024}) of->Args({512, 512, 1024, depth});
}
BENCHMARK(block<Ahead::none>)->Apply(shapes);
BENCHMARK(block<Ahead::a>)->Apply(shapes);
BENCHMARK(block<Ahead::a_and_b>)->Apply(shapes);

}  // namespace
}  // namespace octavo::cpu
#endif
