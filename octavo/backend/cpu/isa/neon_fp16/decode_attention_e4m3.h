// Few query rows against keys and values in e4m3: a code is turned into a number once for all rows.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_halves.h"

namespace octavo::cpu {

// As DecodeKernels has them.
bool decode_dots_e4m3(const DecodeRows& job, const std::byte* const* q, int count,
                      float* const* scores, float* most_row_squares);
void decode_row_squares_e4m3(const DecodeRows& job, float* row_squares);
bool decode_weigh_e4m3(const DecodeRows& job, const DecodeWeights* rows, int count);

namespace {

constexpr std::int64_t kAheadKeys = 64;  // that memory is asked for ahead

// Sixteen codes on their way. They are turned into numbers two units before they are multiplied:
// a product that is handed to a pipe before its factors are there waits in front of others.
struct Unit {
  float16x8_t low, high;
  uint8x16_t field;
  [[gnu::always_inline]] void decode(const std::byte* from) {
    const uint8x16_t codes = load_codes(from);
    const E4m3Halves half(codes);
    low = half.low;
    high = half.high;
    field = fields_of(codes);
    asm volatile("" : "+w"(low), "+w"(high));  // or compilers move it to where it is used
  }
};
constexpr int kUnits = 4, kUnitsAhead = 2;  // a turn of them, each in its registers

}  // namespace
}  // namespace octavo::cpu
