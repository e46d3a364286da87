// One panel of rows by columns of codes that are used once. Sixteen columns are decoded at a time,
// and between them the tiles multiply what was decoded before: an instruction takes 52 cycles until
// the next may add to its sums, which nothing but other work can hide, and the order of sums is
// fixed. Nothing decoded goes through L2.
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/pack_columns.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"

namespace octavo::cpu {
namespace {

template <typename Columns, bool kScaled, bool kUpperOnly>
void multiply(const PackJob& codes, const MicrokernelJob& job) {
  constexpr std::int64_t kChunk = 16 * Columns::kCodes;  // elements of K that are decoded at a time
  constexpr std::int64_t kSteps = kChunk / Bf16Tiles::kStep, kStepBytes = 2 * kTileBytes;
  const FpEnvGuard guard;
  const Columns columns;
  ScaleColumns scales[2] = {ScaleColumns(codes), ScaleColumns(codes)};
  alignas(64) std::byte panels[2][kSteps * kStepBytes];
  job.overwrites ? zero_tiles<kUpperOnly>() : load_tiles<kUpperOnly>(job.sums, job.pitch * 4);
  const std::byte* a = job.a;
  const auto multiply_steps = [&](const std::byte* b, std::int64_t steps)
      __attribute__((always_inline)) {
    for (std::int64_t step = 0; step < steps; ++step, a += kStepBytes)
      multiply_step<Bf16Tiles, kUpperOnly>(a, b + step * kStepBytes);
  };
  std::int64_t k = 0, steps = 0;
  for (int turn = 0; k < codes.n; k += kChunk, turn ^= 1) {
    const std::byte* const before = panels[turn ^ 1];
    const std::int64_t last = k + kChunk < codes.n ? k + kChunk : codes.n;
    pack_columns<kScaled>(codes, 0, k, last, columns, scales[0], panels[turn]);
    multiply_steps(before, steps / 2);
    pack_columns<kScaled>(codes, kPanelHalf, k, last, columns, scales[1], panels[turn]);
    multiply_steps(before + steps / 2 * kStepBytes, steps - steps / 2);
    steps = (last - k) / Bf16Tiles::kStep;
  }
  multiply_steps(panels[(codes.n + kChunk - 1) / kChunk & 1 ? 0 : 1], steps);
  store_all<Bf16Tiles, kUpperOnly>(job);
}

template <typename Columns>
void multiply_codes(const PackJob& codes, const MicrokernelJob& job) {
  const bool upper_only = job.rows != 0 && job.rows <= kHalf;
  if (codes.scales != nullptr)
    return upper_only ? multiply<Columns, true, true>(codes, job)
                      : multiply<Columns, true, false>(codes, job);
  return upper_only ? multiply<Columns, false, true>(codes, job)
                    : multiply<Columns, false, false>(codes, job);
}

}  // namespace

MultiplyCodes amx_multiply_codes(const PackedCodes& codes) {
  const auto [format, side, nibbles] = codes;
  if (nibbles) return format == e2m1fn ? multiply_codes<NibbleColumns<e2m1fn>> : nullptr;
  if (format == e4m3fn) return multiply_codes<ByteColumns<e4m3fn>>;
  if (format == e5m2) return multiply_codes<ByteColumns<e5m2>>;
  if (format == e2m1fn) return multiply_codes<ByteColumns<e2m1fn>>;
  if (format == e2m3fn) return multiply_codes<ByteColumns<e2m3fn>>;
  if (format == e3m2fn) return multiply_codes<ByteColumns<e3m2fn>>;
  return nullptr;
}

}  // namespace octavo::cpu
