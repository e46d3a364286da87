// A K step of bf16 for BFMMLA: four elements of each row.
#pragma once

#include <arm_neon.h>

#include <cstddef>

namespace octavo::cpu {
namespace {

constexpr int kBf16Step = 4, kBf16StepBytes = 2 * kBf16Step;

[[gnu::always_inline]] inline bfloat16x8_t load_bf16(const std::byte* from) {
  return vld1q_bf16(reinterpret_cast<const bfloat16_t*>(from));
}

// Accumulates two rows by two columns, four products for each.
constexpr auto plus_bf16_pairs = [](float32x4_t sum, const std::byte* a, const std::byte* b) {
  return vbfmmlaq_f32(sum, load_bf16(a), load_bf16(b));
};

}  // namespace
}  // namespace octavo::cpu
