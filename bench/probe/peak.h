// The peak rate of one multiply-add instruction: enough independent accumulators to hide its
// latency, and operands that are loaded for each. A loop on registers that are never rewritten is
// no measure: on Neoverse-V1 such a loop runs at half the rate of one with loads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

namespace octavo::probe {

// Billions of operations (a product and a sum are two) a second; the best of so many iterations.
double peak_fmla_f32(int iterations);
double peak_fmla_f16(int iterations);
double peak_sdot(int iterations);
double peak_bfmmla(int iterations);
double peak_smmla(int iterations);

// Everything else has internal linkage: files are compiled for different CPUs, and the linker could
// pick a shared function that this CPU cannot run.
namespace {

// 20 sums, 4 + 1 operands: 25 of 32 registers. Operands of 64 steps are 9 KiB, which stay in L1.
constexpr std::size_t kLeft = 5, kRight = 4, kSteps = 64, kBytes = 16;

template <typename Instruction>
[[gnu::noinline]] void multiply(const std::byte* operands, int rounds, std::byte* result) {
  typename Instruction::Sum sums[kLeft][kRight];
  for (auto& row : sums)
    for (auto& sum : row) std::memcpy(&sum, operands, kBytes);
  for (int round = 0; round < rounds; ++round) {
    const std::byte* at = operands;
    for (std::size_t step = 0; step < kSteps; ++step, at += (kLeft + kRight) * kBytes) {
      typename Instruction::Operand right[kRight];
      for (std::size_t j = 0; j < kRight; ++j)
        std::memcpy(&right[j], at + (kLeft + j) * kBytes, kBytes);
      for (std::size_t i = 0; i < kLeft; ++i) {
        typename Instruction::Operand left;
        std::memcpy(&left, at + i * kBytes, kBytes);
        for (std::size_t j = 0; j < kRight; ++j)
          sums[i][j] = Instruction::add_product(sums[i][j], left, right[j]);
      }
    }
  }
  // Unrolled: an array indexed by a variable would live in memory instead of registers.
#pragma GCC unroll 32
  for (std::size_t i = 0; i < kLeft * kRight; ++i)
    std::memcpy(result + i * kBytes, &sums[i / kRight][i % kRight], kBytes);
}

template <typename Instruction>
double peak(int iterations) {
  constexpr int kRounds = 4000;  // about 2 ms
  // Nothing special in any type: about 0.01 as f32 and bf16, 1 as f16, 60 as int8.
  const std::vector<std::byte> operands((kLeft + kRight) * kSteps * kBytes, std::byte{0x3C});
  std::vector<std::byte> result(kLeft * kRight * kBytes);
  double best = 0.0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const auto begin = std::chrono::steady_clock::now();
    multiply<Instruction>(operands.data(), kRounds, result.data());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    constexpr double kOperations =
        Instruction::kOperations * double{kLeft * kRight * kSteps} * kRounds;
    best = kOperations / seconds.count() > best ? kOperations / seconds.count() : best;
  }
  return best / 1e9;
}

}  // namespace
}  // namespace octavo::probe
