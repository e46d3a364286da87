// f32 to the value types of 16 bits: to nearest even, beyond the range Inf; NaN becomes quiet and
// keeps its sign.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

class Narrower {
 public:
  Narrower(const Isa& isa, DType to);
  // To f16 or bf16 as was said, contiguous.
  void operator()(const float* from, std::byte* to, std::int64_t n) const;

 private:
  Encoder encoder_{};
  EncodeSpan encode_ = nullptr;  // null: bf16
};

// And back: bf16 is the upper half of an f32.
void widen_bf16(const void* from, float* to, std::int64_t n);

}  // namespace octavo::cpu
