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
double peak_fma_avx2(int iterations);
double peak_fma_avx512(int iterations);
double peak_tdpbf16ps(int iterations);
double peak_tdpbssd(int iterations);

// Everything else has internal linkage: files are compiled for different CPUs, and the linker could
// pick a shared function that this CPU cannot run.
namespace {

// The best rate among `iterations` calls of a function that takes a millisecond or more.
template <typename Function>
double best_rate(int iterations, double operations, const Function& function) {
  double best = 0.0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const auto begin = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = operations / seconds.count() > best ? operations / seconds.count() : best;
  }
  return best / 1e9;
}

// Operands of all steps are 9 KiB, which stay in L1. 20 sums, 4 + 1 operands take 25 of 32
// registers; an instruction set that has 16 says its own kLeft and kRight.
constexpr std::size_t steps_of(std::size_t operand_bytes) { return 1024 / operand_bytes; }
struct ManyRegisters {
  static constexpr std::size_t kLeft = 5, kRight = 4;
};

template <typename Instruction>
[[gnu::noinline]] void multiply(const std::byte* operands, int rounds, std::byte* result) {
  constexpr std::size_t kLeft = Instruction::kLeft, kRight = Instruction::kRight,
                        kBytes = sizeof(typename Instruction::Operand);
  typename Instruction::Sum sums[kLeft][kRight];
  for (auto& row : sums)
    for (auto& sum : row) std::memcpy(&sum, operands, kBytes);
  for (int round = 0; round < rounds; ++round) {
    const std::byte* at = operands;
    for (std::size_t step = 0; step < steps_of(kBytes); ++step, at += (kLeft + kRight) * kBytes) {
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
  constexpr std::size_t kLeft = Instruction::kLeft, kRight = Instruction::kRight,
                        kBytes = sizeof(typename Instruction::Operand);
  constexpr std::size_t kAllSteps = steps_of(kBytes);
  constexpr int kRounds = 256000 / kAllSteps;  // about 2 ms
  // Nothing special in any type: about 0.01 as f32 and bf16, 1 as f16, 60 as int8.
  alignas(64) std::byte operands[(kLeft + kRight) * kAllSteps * kBytes];
  std::memset(operands, 0x3C, sizeof operands);
  std::vector<std::byte> result(kLeft * kRight * kBytes);
  return best_rate(iterations,
                   Instruction::kOperations * double{kLeft * kRight * kAllSteps} * kRounds,
                   [&] { multiply<Instruction>(operands, kRounds, result.data()); });
}

}  // namespace
}  // namespace octavo::probe
