// From the run-time choices of an encode call to one instance of the NEON encode kernel.
#pragma once

#include "octavo/backend/cpu/isa/neon/encode_kernel.h"

namespace octavo::cpu {
namespace {

template <typename Source, Rounding kRounding>
EncodeSpan choose_epilogue(const Encoder& encoder) {
  switch (epilogue_of(encoder)) {
    case Epilogue::eight_bits:
      return encode_neon<Source, kRounding, Epilogue::eight_bits>;
    case Epilogue::narrow:
      return encode_neon<Source, kRounding, Epilogue::narrow>;
    case Epilogue::general:
      return encode_neon<Source, kRounding, Epilogue::general>;
  }
  return nullptr;
}

// Null where lanes of this width cannot encode the format.
template <typename Source>
EncodeSpan choose_encode(const Encoder& encoder) {
  using Lanes = typename Source::Lanes;
  if (encoder.policy.via_f32 ||
      !lanes_fit(encoder, Lanes::kMantissa, Lanes::kBias, Source::kExactBits))
    return nullptr;
  switch (encoder.policy.rounding) {
    case Rounding::nearest_even:
      return choose_epilogue<Source, Rounding::nearest_even>(encoder);
    case Rounding::nearest_away:
      return choose_epilogue<Source, Rounding::nearest_away>(encoder);
    case Rounding::toward_zero:
      return choose_epilogue<Source, Rounding::toward_zero>(encoder);
    case Rounding::up:
      return choose_epilogue<Source, Rounding::up>(encoder);
    case Rounding::down:
      return choose_epilogue<Source, Rounding::down>(encoder);
    case Rounding::to_odd:
      return choose_epilogue<Source, Rounding::to_odd>(encoder);
    case Rounding::stochastic:
      // f16 lanes have no room for random bits.
      if constexpr (Lanes::kMantissa == 23)
        return choose_epilogue<Source, Rounding::stochastic>(encoder);
      break;
  }
  return nullptr;
}

template <typename Source>
ScaledSpan choose_scaled(const Encoder& encoder) {
  using Lanes = typename Source::Lanes;
  if (encoder.policy.rounding != Rounding::nearest_even ||
      !lanes_fit(encoder, Lanes::kMantissa, Lanes::kBias, Source::kExactBits))
    return nullptr;
  switch (epilogue_of(encoder)) {
    case Epilogue::eight_bits:
      return encoder.only_finite ? encode_scaled_neon<Source, Epilogue::eight_bits, true>
                                 : encode_scaled_neon<Source, Epilogue::eight_bits, false>;
    case Epilogue::narrow:
      return encoder.only_finite ? encode_scaled_neon<Source, Epilogue::narrow, true>
                                 : encode_scaled_neon<Source, Epilogue::narrow, false>;
    case Epilogue::general:
      return encode_scaled_neon<Source, Epilogue::general, false>;
  }
  return nullptr;
}

}  // namespace
}  // namespace octavo::cpu
