// One panel of rows by columns of codes that are used once. Sixteen columns are decoded at a time,
// and between them the tiles multiply what was decoded before: an instruction takes 52 cycles until
// the next may add to its sums, which nothing but other work can hide, and the order of sums is
// fixed. Nothing decoded goes through L2.
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/pack_columns.h"
#include "octavo/backend/cpu/isa/amx/small_m_amx.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"

namespace octavo::cpu {
namespace {

// kScaled: the scales of tiles are multiplied into elements. kInRuns: others are applied to the
// sums of each run.
template <typename Columns, CodesIn kIn, bool kScaled, bool kInRuns, bool kUpperOnly>
void multiply(const Columns& given, const PackJob& codes, const MicrokernelJob& job) {
  constexpr std::int64_t kChunk = 16 * Columns::kCodes;  // elements of K that are decoded at a time
  constexpr std::int64_t kSteps = kChunk / Bf16Tiles::kStep, kStepBytes = 2 * kTileBytes;
  static_assert(kAmxMultiplyRun % kChunk == 0);
  const FpEnvGuard guard;
  const Columns columns = given;  // in registers: what is stored may not be it
  ScaleColumns scales[2] = {{codes, Columns::kLift}, {codes, Columns::kLift}};
  alignas(64) std::byte panels[2][kSteps * kStepBytes];
  kInRuns || job.overwrites ? zero_tiles<kUpperOnly>()
                            : load_tiles<kUpperOnly>(job.sums, job.pitch * 4);
  const std::byte* a = job.a;
  const auto multiply_steps = [&](const std::byte* b, std::int64_t steps)
      __attribute__((always_inline)) {
    for (std::int64_t step = 0; step < steps; ++step, a += kStepBytes)
      multiply_step<Bf16Tiles, kUpperOnly>(a, b + step * kStepBytes);
  };
  const auto end_run = [&](std::int64_t k) __attribute__((always_inline)) {
    if (!kInRuns || k == 0 || k % job.run != 0) return;
    const std::int64_t run = k / job.run - 1;
    TileSums<float> part;
    store_tiles<kUpperOnly>(&part, kSumsPitch);
    zero_tiles<kUpperOnly>();
    scale_rows<Bf16Tiles>(part, job, run, 0, kUpperOnly ? kHalf : kSide,
                          job.overwrites && run == 0);
  };
  std::int64_t k = 0, steps = 0;
  for (int turn = 0; k < codes.n; k += kChunk, turn ^= 1) {
    const std::byte* const before = panels[turn ^ 1];
    const std::int64_t last = k + kChunk < codes.n ? k + kChunk : codes.n;
    pack_columns<kScaled, kIn>(codes, 0, k, last, columns, scales[0], panels[turn]);
    multiply_steps(before, steps / 2);
    pack_columns<kScaled, kIn>(codes, kPanelHalf, k, last, columns, scales[1], panels[turn]);
    multiply_steps(before + steps / 2 * kStepBytes, steps - steps / 2);
    end_run(k);
    steps = (last - k) / Bf16Tiles::kStep;
  }
  multiply_steps(panels[(codes.n + kChunk - 1) / kChunk & 1 ? 0 : 1], steps);
  if constexpr (kInRuns)
    end_run(codes.n);
  else
    store_all<Bf16Tiles, kUpperOnly>(job);
}

template <typename Columns, CodesIn kIn, bool kUpperOnly>
void multiply_rows(const Columns& columns, const PackJob& codes, const MicrokernelJob& job) {
  if (codes.is_scaled())
    return multiply<Columns, kIn, true, false, kUpperOnly>(columns, codes, job);
  return job.scales_at_end ? multiply<Columns, kIn, false, false, kUpperOnly>(columns, codes, job)
                           : multiply<Columns, kIn, false, true, kUpperOnly>(columns, codes, job);
}

template <typename Columns, CodesIn kIn>
[[gnu::noinline]] void multiply_codes(const Columns& columns, const PackJob& codes,
                                      const MicrokernelJob& job) {
  if constexpr (kIn == CodesIn::panels) {
    if (job.rows != 0 && job.rows <= kDotRows) return multiply_small_m(columns, codes, job);
  }
  return job.rows != 0 && job.rows <= kHalf
             ? multiply_rows<Columns, kIn, true>(columns, codes, job)
             : multiply_rows<Columns, kIn, false>(columns, codes, job);
}

template <const Format& kFormat, typename Columns>
MultiplyCodes columns_of(const PackedCodes& codes) {
  if (codes.in_panels)
    return [](const PackJob& from, const MicrokernelJob& job) {
      multiply_codes<Columns, CodesIn::panels>(Columns::template of<kFormat>(), from, job);
    };
  return [](const PackJob& from, const MicrokernelJob& job) {
    multiply_codes<Columns, CodesIn::rows>(Columns::template of<kFormat>(), from, job);
  };
}

}  // namespace

MultiplyCodes amx_multiply_codes(const PackedCodes& codes) {
  const Format& format = codes.format;
  if (codes.nibbles) return format == e2m1fn ? columns_of<e2m1fn, NibbleColumns>(codes) : nullptr;
  if (format == e4m3fn) return columns_of<e4m3fn, ByteColumns<true>>(codes);
  if (format == e5m2) return columns_of<e5m2, ByteColumns<true>>(codes);
  if (format == e2m1fn) return columns_of<e2m1fn, ByteColumns<false>>(codes);
  if (format == e2m3fn) return columns_of<e2m3fn, ByteColumns<false>>(codes);
  if (format == e3m2fn) return columns_of<e3m2fn, ByteColumns<false>>(codes);
  return nullptr;
}

}  // namespace octavo::cpu
