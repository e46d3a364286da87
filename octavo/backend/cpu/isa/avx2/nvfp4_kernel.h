// NVFP4 over f32 lanes: tiles of sixteen values in E2M1, packed, with e4m3 scales.
#pragma once

#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/fp4_search_kernel.h"
#include "octavo/backend/cpu/isa/avx2/fp4_weighted_search.h"
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

  // The codes of tiles that are not zero.
  [[gnu::always_inline]] typename L::Bits code_of(typename L::Bits amax) const {
    const auto six = L::splat(std::bit_cast<std::uint32_t>(6.0F));
    const auto wanted = L::fdiv(L::fdiv(amax, six), tensor);
    // Positive, and NaN only where the tile is poisoned.
    const auto biased = biased_field<L, Rounding::nearest_even>(
        scale_code, L::fmin(scale_code.limit[0], wanted), L::splat(0));
    return L::max(L::sub(biased, scale_code.bias), L::splat(1));
  }
  [[gnu::always_inline]] typename L::Bits factor_of(typename L::Bits code) const {
    const auto scale = L::fmul(decode_lanes<L>(scale_value, code), tensor);
    const auto one = L::splat(std::bit_cast<std::uint32_t>(1.0F));
    const auto largest = L::splat(std::bit_cast<std::uint32_t>(kMaxFloat));
    return L::min(L::fdiv(one, scale), largest);
  }
  [[gnu::always_inline]] TileScales<L> of(typename L::Bits amax, typename L::Bits code,
                                          typename L::Bits factor) const {
    const auto bad = L::above(amax, L::splat(kF32Inf - 1));
    const auto stored =
        L::select(bad, poison_code, L::select(L::equal(amax, L::splat(0)), zero_code, code));
    return {.factor = factor, .code = stored, .poisoned = L::keep(bad, L::splat(0xFFFFFFFFu))};
  }
};

// amax_for_four() of each lane.
template <typename L>
[[gnu::always_inline]] inline typename L::Bits amax_of_four(typename L::Bits amax) {
  const auto splat = [](float x) { return L::splat(std::bit_cast<std::uint32_t>(x)); };
  return L::fmin(L::fmul(amax, splat(1.5F)), splat(kMaxFloat));
}

template <typename L, typename W, DType kSource>
void fp4_rows(const Fp4Tiles& job, const void* values, std::uint8_t* codes, std::uint8_t* scales,
              std::int64_t n) {
  using Bits = typename L::Bits;
  const FpEnvGuard guard;
  const Fp4SpecialScales special = fp4_special_scales(job.tensor_scale);
  const Nvfp4Scales<L> scale(job.tensor_scale, special.zero, special.poison);
  Encoder encoder = make_encoder(kE2m1, {}, DType::f32);
  encoder.only_finite = true;
  const EncodeConstants<L> k(encoder);
  const auto rows = [&](const auto& scales_of) __attribute__((always_inline)) {
    quantize_row<L, kSource, static_cast<int>(kFp4Tile), true>(k, L::splat(0), scales_of, values,
                                                               codes, scales, n);
  };
  if (job.searched != nullptr && job.policy == AmaxPolicy::wmse) {
    Fp4WeightedSearch<L> weighted(job, n);
    return rows([&](const std::byte* from, Bits amax) __attribute__((always_inline)) {
      Bits factor;
      const Bits code =
          weighted.template operator()<kSource>(from, amax, scale.code_of(amax), factor);
      return scale.of(amax, code, factor);
    });
  }
  const Fp4ScaleSearch<L, W> search(job);
  if (search.exists() && job.policy == AmaxPolicy::four_over_six) {
    return rows([&](const std::byte* from, Bits amax) __attribute__((always_inline)) {
      Bits factor;
      const Bits code = search.template of_two<kSource>(
          from, amax, scale.code_of(amax), scale.code_of(amax_of_four<L>(amax)), factor);
      return scale.of(amax, code, factor);
    });
  }
  if (search.exists()) {
    return rows([&](const std::byte* from, Bits amax) __attribute__((always_inline)) {
      Bits factor;
      const Bits code =
          search.template operator()<kSource>(from, amax, scale.code_of(amax), factor);
      return scale.of(amax, code, factor);
    });
  }
  rows([&](const std::byte*, Bits amax) __attribute__((always_inline)) {
    const Bits code = scale.code_of(amax);
    return scale.of(amax, code, scale.factor_of(code));
  });
}

template <typename L, typename W>
Fp4Rows choose_fp4(DType source) {
  if (source == DType::f32) return fp4_rows<L, W, DType::f32>;
  if (source == DType::bf16) return fp4_rows<L, W, DType::bf16>;
  return nullptr;
}

}  // namespace
}  // namespace octavo::cpu
