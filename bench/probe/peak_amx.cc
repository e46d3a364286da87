// Two tiles of A and two of B loaded from L1 for four products, as a microkernel does it.
#include "bench/probe/peak.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"

namespace octavo::probe {
namespace {

constexpr int kRounds = 16000;                     // about 0.5 ms
constexpr int kTiles = 4, kResident = 4 * kTiles;  // 16 KiB of operands

// Numbers of tiles are part of an instruction: its macro takes literals alone.
struct Tdpbf16ps {
  static constexpr double kOperations = 2.0 * 16 * 16 * 32;
  [[gnu::always_inline]] static void add_products() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};
struct Tdpbssd {
  static constexpr double kOperations = 2.0 * 16 * 16 * 64;
  [[gnu::always_inline]] static void add_products() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

template <typename Instruction>
[[gnu::noinline]] void multiply_tiles(const std::byte* operands) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int round = 0; round < kRounds; ++round) {
    const std::byte* at = operands + round % 4 * kTiles * cpu::kTileBytes;
    _tile_loadd(4, at, cpu::kLine);
    _tile_loadd(5, at + cpu::kTileBytes, cpu::kLine);
    _tile_loadd(6, at + 2 * cpu::kTileBytes, cpu::kLine);
    _tile_loadd(7, at + 3 * cpu::kTileBytes, cpu::kLine);
    Instruction::add_products();
  }
}

template <typename Instruction>
double peak_of_tiles(int iterations) {
  alignas(64) static std::byte operands[kResident * cpu::kTileBytes] = {};
  cpu::enter_tiles();
  const double best = best_rate(iterations, Instruction::kOperations * kTiles * kRounds,
                                [] { multiply_tiles<Instruction>(operands); });
  cpu::leave_tiles();
  return best;
}

}  // namespace

double peak_tdpbf16ps(int iterations) { return peak_of_tiles<Tdpbf16ps>(iterations); }
double peak_tdpbssd(int iterations) { return peak_of_tiles<Tdpbssd>(iterations); }

}  // namespace octavo::probe
