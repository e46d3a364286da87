// Decode attention kernels for keys and values in e4m3: a code is decoded once for all query rows.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_halves.h"

namespace octavo::cpu {

// Entries of DecodeKernels.
bool decode_dots_e4m3(const DecodeRows& job, const std::byte* const* q, int count,
                      float* const* scores, float* most_row_squares);
void decode_row_squares_e4m3(const DecodeRows& job, float* row_squares);
bool decode_weigh_e4m3(const DecodeRows& job, const DecodeWeights* rows, int count);

namespace {

constexpr std::int64_t kAheadKeys = 64;  // prefetch distance in keys

// Sixteen codes in flight. They are decoded two units before they are multiplied: a product that is
// issued before its factors are ready blocks others behind it in the pipe.
struct Unit {
  float16x8_t low, high;
  uint8x16_t field;
  [[gnu::always_inline]] void decode(const std::byte* from) {
    const uint8x16_t codes = load_codes(from);
    const E4m3Halves half(codes);
    low = half.low;
    high = half.high;
    field = fields_of(codes);
    asm volatile(""
                 : "+w"(low), "+w"(high));  // keeps the compiler from moving the decode to its use
  }
};
constexpr int kUnits = 4, kUnitsAhead = 2;  // units of a pipeline step, each in its own registers

}  // namespace
}  // namespace octavo::cpu
