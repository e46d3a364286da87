// NVFP4 over f32 lanes: tiles of sixteen values in E2M1, packed, with e4m3 scales.
#pragma once

#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/quantize_row.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

// Copies: the linker would merge what is passed by reference with that of other folders.
constexpr Format kE2m1 = e2m1fn, kE4m3 = e4m3fn;

// NVFP4. The order of operations is tile_scale's: two quotients, an e4m3, a product, a reciprocal.
template <typename L>
struct Nvfp4Scales {
  typename L::Bits tensor, zero_code, poison_code;
  EncodeConstants<L> scale_code;
  DecodeConstants<L> scale_value;

  Nvfp4Scales(float tensor_scale, std::uint32_t zero, std::uint32_t poison)
      : tensor(L::splat(std::bit_cast<std::uint32_t>(tensor_scale))),
        zero_code(L::splat(zero)),
        poison_code(L::splat(poison)),
        scale_code(make_encoder(kE4m3, {}, DType::f32)),
        scale_value(kE4m3) {}

  [[gnu::always_inline]] TileScales<L> operator()(typename L::Bits amax) const {
    const auto six = L::splat(std::bit_cast<std::uint32_t>(6.0F));
    const auto wanted = L::fdiv(L::fdiv(amax, six), tensor);
    // Positive, and NaN only where the tile is poisoned.
    const auto biased = biased_field<L, Rounding::nearest_even>(
        scale_code, L::fmin(scale_code.limit[0], wanted), L::splat(0));
    const auto code = L::max(L::sub(biased, scale_code.bias), L::splat(1));
    const auto scale = L::fmul(decode_lanes<L>(scale_value, code), tensor);
    const auto one = L::splat(std::bit_cast<std::uint32_t>(1.0F));
    const auto largest = L::splat(std::bit_cast<std::uint32_t>(kMaxFloat));
    const auto bad = L::above(amax, L::splat(kF32Inf - 1));
    const auto stored =
        L::select(bad, poison_code, L::select(L::equal(amax, L::splat(0)), zero_code, code));
    return {.factor = L::min(L::fdiv(one, scale), largest),
            .code = stored,
            .poisoned = L::keep(bad, L::splat(0xFFFFFFFFu))};
  }
};

template <typename L, DType kSource>
void fp4_rows(const Fp4Tiles& job, const void* values, std::uint8_t* codes, std::uint8_t* scales,
              std::int64_t n) {
  const FpEnvGuard guard;
  const Fp4SpecialScales special = fp4_special_scales(job.tensor_scale);
  const Nvfp4Scales<L> scale(job.tensor_scale, special.zero, special.poison);
  Encoder encoder = make_encoder(kE2m1, {}, DType::f32);
  encoder.only_finite = true;
  const EncodeConstants<L> k(encoder);
  quantize_row<L, kSource, static_cast<int>(kFp4Tile), true>(k, L::splat(0), scale, values, codes,
                                                             scales, n);
}

template <typename L>
Fp4Rows choose_fp4(DType source) {
  if (source == DType::f32) return fp4_rows<L, DType::f32>;
  if (source == DType::bf16) return fp4_rows<L, DType::bf16>;
  return nullptr;
}

}  // namespace
}  // namespace octavo::cpu
