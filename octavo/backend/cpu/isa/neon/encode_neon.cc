#include "octavo/backend/cpu/isa/neon/choose_encode.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/portable/portable.h"

namespace octavo::cpu {

EncodeSpan neon_encode(const Encoder& encoder) {
  EncodeSpan chosen = neon_encode_e8m0(encoder);
  if (chosen == nullptr) chosen = neon_encode_e5m2(encoder);
  if (chosen != nullptr) return chosen;
  switch (encoder.source) {
    case DType::f32:
      chosen = choose_encode<F32Source<DType::f32>>(encoder);
      break;
    case DType::f64:
      chosen = choose_encode<F32Source<DType::f64>>(encoder);
      break;
    case DType::f16:
      chosen = choose_encode<F32Source<DType::f16>>(encoder);
      break;
    case DType::bf16:
      chosen = choose_encode<F32Source<DType::bf16>>(encoder);
      break;
    case DType::code:
      break;
  }
  return chosen != nullptr ? chosen : kPortableIsa.encode(encoder);
}

ScaledSpan neon_encode_scaled(const Encoder& encoder) {
  switch (encoder.source) {
    case DType::f32:
      return choose_scaled<F32Source<DType::f32>>(encoder);
    case DType::f16:
      return choose_scaled<F32Source<DType::f16>>(encoder);
    case DType::bf16:
      return choose_scaled<F32Source<DType::bf16>>(encoder);
    case DType::f64:
    case DType::code:
      break;
  }
  return nullptr;
}

}  // namespace octavo::cpu
