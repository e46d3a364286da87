// The inner loop of the bf16 microkernel, in assembly: 8 rows by 12 columns, 24 accumulators. A
// compiler has the same 32 registers, but hoists loads and spills (bench/ladder/gemm_bf16_tile.cc
// times both).
//
// Registers: v8 to v31 are the accumulators, [4 pairs of rows][6 pairs of columns]; v0 to v3 are A,
// v4 to v7 two of the three pairs of B vectors of a step, loaded while the other two are
// multiplied. An accumulator is used once in 24 instructions, which hides the latency of BFMMLA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {
namespace {

#define OCTAVO_MMLA(sum, a, b) "bfmmla v" #sum ".4s, v" #a ".8h, v" #b ".8h\n"
// Two vectors of B, v<b0> and v<b1>, times the four of A: the accumulators of two columns of pairs.
#define OCTAVO_MMLA_A0(s, t, b0, b1) OCTAVO_MMLA(s, 0, b0) OCTAVO_MMLA(t, 0, b1)
#define OCTAVO_MMLA_A1(s, t, b0, b1) OCTAVO_MMLA(s, 1, b0) OCTAVO_MMLA(t, 1, b1)
#define OCTAVO_MMLA_A2(s, t, b0, b1) OCTAVO_MMLA(s, 2, b0) OCTAVO_MMLA(t, 2, b1)
#define OCTAVO_MMLA_A3(s, t, b0, b1) OCTAVO_MMLA(s, 3, b0) OCTAVO_MMLA(t, 3, b1)
#define OCTAVO_MMLA_FIRST(b0, b1) \
  OCTAVO_MMLA_A0(8, 9, b0, b1)    \
  OCTAVO_MMLA_A1(14, 15, b0, b1) OCTAVO_MMLA_A2(20, 21, b0, b1) OCTAVO_MMLA_A3(26, 27, b0, b1)
#define OCTAVO_MMLA_SECOND(b0, b1) \
  OCTAVO_MMLA_A0(10, 11, b0, b1)   \
  OCTAVO_MMLA_A1(16, 17, b0, b1) OCTAVO_MMLA_A2(22, 23, b0, b1) OCTAVO_MMLA_A3(28, 29, b0, b1)
#define OCTAVO_MMLA_THIRD(b0, b1) \
  OCTAVO_MMLA_A0(12, 13, b0, b1)  \
  OCTAVO_MMLA_A1(18, 19, b0, b1) OCTAVO_MMLA_A2(24, 25, b0, b1) OCTAVO_MMLA_A3(30, 31, b0, b1)
#define OCTAVO_ZERO(n) "movi v" #n ".4s, #0\n"
#define OCTAVO_STORE(n, m, at) "stp q" #n ", q" #m ", [%[sums], #" #at "]\n"

// Sums the products of `steps` steps of K from zero: sums[4][6] accumulators of four floats.
[[gnu::always_inline]] inline void bfmmla_run(const std::byte* a, const std::byte* b,
                                              std::int64_t steps, float* sums) {
  std::int64_t twice = steps / 2;
  const std::int64_t odd = steps % 2;
  // clang-format off
  asm volatile(
      OCTAVO_ZERO(8) OCTAVO_ZERO(9) OCTAVO_ZERO(10) OCTAVO_ZERO(11) OCTAVO_ZERO(12) OCTAVO_ZERO(13)
      OCTAVO_ZERO(14) OCTAVO_ZERO(15) OCTAVO_ZERO(16) OCTAVO_ZERO(17) OCTAVO_ZERO(18)
      OCTAVO_ZERO(19) OCTAVO_ZERO(20) OCTAVO_ZERO(21) OCTAVO_ZERO(22) OCTAVO_ZERO(23)
      OCTAVO_ZERO(24) OCTAVO_ZERO(25) OCTAVO_ZERO(26) OCTAVO_ZERO(27) OCTAVO_ZERO(28)
      OCTAVO_ZERO(29) OCTAVO_ZERO(30) OCTAVO_ZERO(31)
      "cbz %[twice], 2f\n"
      ".p2align 5\n"
      "1:\n"  // two steps: the pairs of B vectors are then in the same registers again
      "ldp q0, q1, [%[a]]\n"
      "ldp q4, q5, [%[b]]\n"
      "ldp q2, q3, [%[a], #32]\n"
      "ldp q6, q7, [%[b], #32]\n"
      OCTAVO_MMLA_FIRST(4, 5)
      "ldp q4, q5, [%[b], #64]\n"
      OCTAVO_MMLA_SECOND(6, 7)
      "ldp q6, q7, [%[b], #96]\n"
      OCTAVO_MMLA_A0(12, 13, 4, 5) "ldr q0, [%[a], #64]\n"
      OCTAVO_MMLA_A1(18, 19, 4, 5) "ldr q1, [%[a], #80]\n"
      OCTAVO_MMLA_A2(24, 25, 4, 5) "ldr q2, [%[a], #96]\n"
      OCTAVO_MMLA_A3(30, 31, 4, 5) "ldr q3, [%[a], #112]\n"
      "ldp q4, q5, [%[b], #128]\n"
      OCTAVO_MMLA_FIRST(6, 7)
      "ldp q6, q7, [%[b], #160]\n"
      "add %[a], %[a], #128\n"
      OCTAVO_MMLA_SECOND(4, 5)
      "add %[b], %[b], #192\n"
      "subs %[twice], %[twice], #1\n"
      OCTAVO_MMLA_THIRD(6, 7)
      "b.ne 1b\n"
      "2:\n"
      "cbz %[odd], 3f\n"
      "ldp q0, q1, [%[a]]\n"
      "ldp q4, q5, [%[b]]\n"
      "ldp q2, q3, [%[a], #32]\n"
      "ldp q6, q7, [%[b], #32]\n"
      OCTAVO_MMLA_FIRST(4, 5)
      "ldp q4, q5, [%[b], #64]\n"
      OCTAVO_MMLA_SECOND(6, 7)
      OCTAVO_MMLA_THIRD(4, 5)
      "3:\n"
      OCTAVO_STORE(8, 9, 0) OCTAVO_STORE(10, 11, 32) OCTAVO_STORE(12, 13, 64)
      OCTAVO_STORE(14, 15, 96) OCTAVO_STORE(16, 17, 128) OCTAVO_STORE(18, 19, 160)
      OCTAVO_STORE(20, 21, 192) OCTAVO_STORE(22, 23, 224) OCTAVO_STORE(24, 25, 256)
      OCTAVO_STORE(26, 27, 288) OCTAVO_STORE(28, 29, 320) OCTAVO_STORE(30, 31, 352)
      : [a] "+r"(a), [b] "+r"(b), [twice] "+r"(twice)
      : [odd] "r"(odd), [sums] "r"(sums)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
        "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  // clang-format on
}

#undef OCTAVO_STORE
#undef OCTAVO_ZERO
#undef OCTAVO_MMLA_THIRD
#undef OCTAVO_MMLA_SECOND
#undef OCTAVO_MMLA_FIRST
#undef OCTAVO_MMLA_A3
#undef OCTAVO_MMLA_A2
#undef OCTAVO_MMLA_A1
#undef OCTAVO_MMLA_A0
#undef OCTAVO_MMLA

}  // namespace
}  // namespace octavo::cpu
