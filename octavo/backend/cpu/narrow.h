// Conversion of f32 to f16 and bf16: to nearest even, Inf beyond the range; NaN becomes quiet and
// keeps its sign.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

class Narrower {
 public:
  Narrower(const Isa& isa, DType to);
  // To the f16 or bf16 of the constructor, contiguous.
  void operator()(const float* from, std::byte* to, std::int64_t n) const;

 private:
  Encoder encoder_{};
  EncodeSpan encode_ = nullptr;  // null: bf16
  void (*narrow_bf16_)(const float*, std::uint16_t*, std::int64_t) = nullptr;
};

// bf16 to f32: bf16 is the upper half of an f32.
void widen_bf16(const Isa& isa, const void* from, float* to, std::int64_t n);

}  // namespace octavo::cpu
