// The soft cap of scores (attention_soft_cap.h) over lanes: 14 operations and a quotient for a
// vector.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/attention/attention_soft_cap.h"

namespace octavo::cpu {
namespace {

// NaN stays: a minimum or maximum is its second operand where the two cannot be compared.
template <typename L>
[[gnu::always_inline]] inline typename L::Floats soft_capped(typename L::Floats score,
                                                             typename L::Floats cap,
                                                             typename L::Floats inverse) {
  using Floats = typename L::Floats;
  const auto floats = [](auto bits) { return L::as_floats(bits); };
  Floats z = L::ftimes(score, inverse);
  z = floats(L::fmin(L::as_bits(L::fsplat(kMostTanh)), L::as_bits(z)));
  z = L::fmax(L::fsplat(-kMostTanh), z);
  const Floats t = L::ftimes(z, z);
  Floats over = L::fsplat(kTanhOver[4]), under = L::fsplat(kTanhUnder[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) {
    over = L::fma(over, t, L::fsplat(kTanhOver[i]));
    under = L::fma(under, t, L::fsplat(kTanhUnder[i]));
  }
  const Floats ratio = floats(L::fdiv(L::as_bits(over), L::as_bits(under)));
  return L::fma(L::ftimes(ratio, z), cap, L::fminus(score, score));
}

// AttentionMethod::soft_cap; n is a multiple of two vectors.
template <typename L>
void soft_cap_lanes(const SoftCap& by, float* scores, std::int64_t n) {
  const typename L::Floats cap = L::fsplat(by.cap), inverse = L::fsplat(by.inverse);
  for (std::int64_t i = 0; i < n; i += 2 * L::kLanes) {
    const auto a = soft_capped<L>(L::fload(scores + i), cap, inverse),
               b = soft_capped<L>(L::fload(scores + i + L::kLanes), cap, inverse);
    L::fstore(scores + i, a);
    L::fstore(scores + i + L::kLanes, b);
  }
}

}  // namespace
}  // namespace octavo::cpu
