// Decode attention dispatch on the number of query rows: four, two or one at a time.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/attention/attention_decode.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kAhead = 1024;  // prefetch distance in bytes

// Keys or vectors interleaved, such that the sums of all rows fill half of the registers.
constexpr int keys_for(int rows) { return rows == 4 ? 2 : 4; }
constexpr int vectors_for(int rows) { return 8 / rows; }

// One to four rows: three are split into two and one.
template <typename One, typename Two, typename Four>
bool for_rows(int count, One&& one, Two&& two, Four&& four) {
  bool good = true;
  int row = 0;
  for (; row + 4 <= count; row += 4) good &= four(row);
  for (; row + 2 <= count; row += 2) good &= two(row);
  if (row < count) good &= one(row);
  return good;
}

}  // namespace
}  // namespace octavo::cpu
