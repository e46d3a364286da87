// A K step of int8 for SMMLA: eight elements of each row.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {
namespace {

constexpr int kI8Step = 8;

[[gnu::always_inline]] inline int8x16_t load_i8(const std::byte* from) {
  return vld1q_s8(reinterpret_cast<const std::int8_t*>(from));
}

// Accumulates two rows by two columns, eight products for each.
constexpr auto plus_i8_pairs = [](int32x4_t sum, const std::byte* a, const std::byte* b) {
  return vmmlaq_s32(sum, load_i8(a), load_i8(b));
};
constexpr auto value_of_i8_sum = [](int32x4_t sum) { return vcvtq_f32_s32(sum); };

}  // namespace
}  // namespace octavo::cpu
