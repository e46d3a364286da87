#include "octavo/backend/cpu/narrow.h"

#include <bit>

#include "octavo/backend/cpu/masks.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

Narrower::Narrower(const Isa& isa, DType to) : narrow_bf16_(isa.narrow_bf16) {
  if (to != DType::f16) return;
  // f16 as a format of its own.
  const EncodePolicy policy{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  encoder_ = make_encoder(f16_format, policy, DType::f32);
  encode_ = isa.encode(encoder_);
}

void Narrower::operator()(const float* from, std::byte* to, std::int64_t n) const {
  if (encode_ != nullptr) return encode_(encoder_, from, to, n, 0);
  // Integer rounding, which compilers vectorise.
  auto* out = reinterpret_cast<std::uint16_t*>(to);
  if (narrow_bf16_ != nullptr) return narrow_bf16_(from, out, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16 & 0x8000u) | 0x7FC0u;
    const std::uint32_t is_nan = mask_of((bits & 0x7FFFFFFFu) > 0x7F800000u);
    out[i] = static_cast<std::uint16_t>(select(is_nan, quiet, rounded));
  }
}

void widen_bf16(const Isa& isa, const void* from, float* to, std::int64_t n) {
  if (isa.widen_bf16 != nullptr) return isa.widen_bf16(from, to, n);
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
}

}  // namespace octavo::cpu
