// Tests of kernels over f32 lanes, for each instruction set: what no list of landmarks has, such as
// NaN with any payload.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {

// Bits of f32: any; NaN; near the format's ties and its smallest numbers, a place off or not.
inline std::vector<float> any_bits(const Format& format, std::mt19937& random) {
  std::vector<float> values;
  for (int i = 0; i < 21000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    values.push_back(std::bit_cast<float>(i < 20000 ? bits : bits | 0x7F800000u));
  }
  for (std::uint32_t field = 0; field <= format.max_field(); ++field) {
    const double here = grid_value(format, field), next = grid_value(format, field + 1);
    for (const double at : {here, (here + next) / 2}) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(at));
      for (const std::uint32_t off : {0u, 1u, 0xFFFFFFFFu})
        for (const std::uint32_t sign : {0u, 0x80000000u})
          values.push_back(std::bit_cast<float>((bits + off) ^ sign));
    }
  }
  return values;
}

inline void expect_codes_of_any_bits(const Isa& isa) {
  std::mt19937 random(7);
  for (const Format& format : {e4m3fn, e5m2, e2m1fn, e2m3fn, e3m2fn}) {
    for (const Overflow overflow : {Overflow::saturate, Overflow::ieee}) {
      for (const NanCode nan : {NanCode::signed_ones, NanCode::positive_ones}) {
        const EncodePolicy policy{
            .overflow = overflow, .nan_input = NanInput::max, .nan_code = nan};
        const Encoder encoder = make_encoder(format, policy, DType::f32);
        const std::vector<float> values = any_bits(format, random);
        std::vector<std::uint8_t> codes(values.size());
        isa.encode(encoder)(encoder, values.data(), codes.data(),
                            static_cast<std::int64_t>(values.size()), 0);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto wanted = encode_value(format, static_cast<double>(values[i]), policy).code;
          ASSERT_EQ(codes[i], wanted) << std::hex << std::bit_cast<std::uint32_t>(values[i]);
        }
      }
    }
  }
}

inline void expect_amaxes(const Isa& isa) {
  std::mt19937 random(8);
  for (int n = 0; n < 600; n += n < 40 ? 1 : 37) {
    std::vector<std::uint32_t> f32;
    std::vector<std::uint16_t> bf16;
    std::uint32_t most = 0, most_bf16 = 0;
    for (int i = 0; i < n; ++i) {
      f32.push_back(static_cast<std::uint32_t>(random()));
      bf16.push_back(static_cast<std::uint16_t>(random()));
      most = std::max(most, f32.back() & 0x7FFFFFFFu);
      most_bf16 = std::max(most_bf16, (bf16.back() & 0x7FFFu) << 16);
    }
    ASSERT_EQ(isa.amax(DType::f32, f32.data(), n), most);
    ASSERT_EQ(isa.amax(DType::bf16, bf16.data(), n), most_bf16);
  }
}

// Tiles of every kind that a search may meet: normal, uniform, exact under some scale, with ties,
// with one large value, zeros, poisoned.
inline std::vector<float> tiles_to_search(std::int64_t tile, std::int64_t tiles, float size,
                                          std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  constexpr float kGrid[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::vector<float> values;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const float of_tile = size * std::exp2(static_cast<float>(random() % 160) / 10 - 6);
    const auto kind = random() % 8;
    for (std::int64_t i = 0; i < tile; ++i) {
      const float x = kind == 0   ? 0.0F
                      : kind == 1 ? uniform(random)
                      : kind == 2 ? kGrid[random() % 8]
                      : kind == 3 ? static_cast<float>(random() % 13) - 6.0F
                      : kind == 4 ? (random() % 16 == 0 ? 1.0F : 0.1F * uniform(random))
                                  : normal(random);
      values.push_back(of_tile * x);
    }
    if (t % 37 == 5) values.back() = std::bit_cast<float>(0x7FC00000u);
  }
  return values;
}

// Bits of a source that the values are rounded to.
inline std::vector<std::uint16_t> upper_halves(std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (float& x : values) {
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
    x = std::bit_cast<float>(static_cast<std::uint32_t>(halves.back()) << 16);
  }
  return halves;
}

// What the definition stores for a tile of E2M1 (scale/fit.h). Null weights: all are one.
inline TileScale searched_scale(const ScaleSpec& spec, AmaxPolicy policy, const float* x,
                                const float* weights, std::int64_t n, float tensor_scale) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!is_finite(x[i])) return poisoned_scale(spec.format);
    amax = std::max(amax, std::abs(x[i]));
  }
  TileScale best = tile_scale(spec, e2m1fn, amax, tensor_scale);
  double least = HUGE_VAL;
  for (int c = 0; is_searched(policy, spec, amax) && c < fit_candidates(policy, spec); ++c) {
    const TileScale tried = fit_candidate(policy, spec, e2m1fn, amax, tensor_scale, 0.0F, c);
    FitRun<float> run;
    for (std::int64_t i = 0; i < n; ++i) {
      const float u = x[i] * tried.factor;
      run.add(i, u - static_cast<float>(decode<e2m1fn>(encode<e2m1fn>(static_cast<double>(u)))),
              weights != nullptr ? weights[i] : 1.0F);
    }
    const double error = fit_error(policy, run.sum(), tried.scale);
    if (!(error < least)) continue;
    least = error;
    best = tried;
  }
  return best;
}

inline void expect_searched_tiles(const std::vector<float>& x, std::int64_t tile,
                                  const ScaleSpec& spec, float tensor_scale,
                                  const std::vector<std::uint8_t>& codes,
                                  const std::vector<std::uint8_t>& scales,
                                  AmaxPolicy policy = AmaxPolicy::mse,
                                  const float* weights = nullptr) {
  const auto count = static_cast<std::int64_t>(x.size());
  for (std::int64_t first = 0; first < count; first += tile) {
    const std::int64_t n = std::min(tile, count - first);
    const TileScale wanted =
        searched_scale(spec, policy, x.data() + first,
                       weights != nullptr ? weights + first : nullptr, n, tensor_scale);
    const auto t = static_cast<std::size_t>(first / tile);
    ASSERT_EQ(scales[t], wanted.bits)
        << "tile " << t << " of " << tensor_scale << ", policy " << static_cast<int>(policy);
    const bool poisoned = wanted.scale != wanted.scale;
    for (std::int64_t i = first; i < first + n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto code = codes[at / 2] >> (at % 2 * 4) & 15;
      const double u = static_cast<double>(x[at] * wanted.factor);
      ASSERT_EQ(code, poisoned ? 0 : static_cast<int>(encode<e2m1fn>(u)))
          << "element " << i << " of " << tensor_scale;
    }
  }
}

// Of columns: most of some size, a few of none.
inline std::vector<float> weights_to_search(std::int64_t n, std::mt19937& random) {
  std::vector<float> weights;
  for (std::int64_t i = 0; i < n; ++i)
    weights.push_back(random() % 9 == 0 ? 0.0F
                                        : std::exp2(static_cast<float>(random() % 160) / 10 - 8));
  return weights;
}

// NVFP4: also of tensors whose scales are subnormal, where sums are not found by integers.
inline void expect_searched_nvfp4(const Isa& isa) {
  ASSERT_TRUE(isa.fp4_searches && isa.fp4_searches_more);
  const ScaleSpec spec{.format = ScaleFormat::e4m3_f32};
  std::mt19937 random(11);
  for (const DType source : {DType::f32, DType::bf16})
    for (const float tensor_scale : {1.0F, 0.0123456F, 0x1p-99F, 0x1p-120F})
      for (const std::int64_t n : {16 * 4096, 16 * 17, 16 * 5 + 7, 3}) {
        std::vector<float> x = tiles_to_search(16, (n + 15) / 16, tensor_scale, random);
        x.resize(static_cast<std::size_t>(n));
        const std::vector<std::uint16_t> halves =
            source == DType::bf16 ? upper_halves(x) : std::vector<std::uint16_t>();
        const void* from = source == DType::bf16 ? static_cast<const void*>(halves.data())
                                                 : static_cast<const void*>(x.data());
        const auto of_code = two_level_scales(spec, tensor_scale);
        const std::vector<float> weights = weights_to_search(n, random);
        for (const AmaxPolicy policy :
             {AmaxPolicy::mse, AmaxPolicy::four_over_six, AmaxPolicy::wmse}) {
          const float* const of_columns = policy == AmaxPolicy::wmse ? weights.data() : nullptr;
          std::vector<std::uint8_t> codes((x.size() + 1) / 2), scales((x.size() + 15) / 16);
          isa.fp4(source)({.tensor_scale = tensor_scale,
                           .searched = of_code.data(),
                           .policy = policy,
                           .weights = of_columns},
                          from, codes.data(), scales.data(), n);
          expect_searched_tiles(x, 16, spec, tensor_scale, codes, scales, policy, of_columns);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
}

// MXFP4: also where both powers are the least that there is.
inline void expect_searched_mxfp4(const Isa& isa) {
  ASSERT_TRUE(isa.mx_searches);
  const ScaleSpec spec{.format = ScaleFormat::e8m0, .rule = ScaleRule::rceil};
  std::mt19937 random(12);
  for (const DType source : {DType::f32, DType::bf16})
    for (const float size : {1.0F, 0x1p-126F, 0x1p+118F})
      for (const std::int64_t n : {32 * 4096, 32 * 17, 32 * 5 + 7, 3}) {
        std::vector<float> x = tiles_to_search(32, (n + 31) / 32, size, random);
        x.resize(static_cast<std::size_t>(n));
        const std::vector<std::uint16_t> halves =
            source == DType::bf16 ? upper_halves(x) : std::vector<std::uint16_t>();
        const void* from = source == DType::bf16 ? static_cast<const void*>(halves.data())
                                                 : static_cast<const void*>(x.data());
        const MxBlocks blocks{.format = e2m1fn, .source = source, .searches = true};
        std::vector<std::uint8_t> codes((x.size() + 1) / 2), scales((x.size() + 31) / 32);
        isa.mx(blocks).packed_rows(blocks, from, codes.data(), scales.data(), n);
        expect_searched_tiles(x, 32, spec, 1.0F, codes, scales);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

// Stores past the caches want aligned lines: from any address on, of any length.
template <typename Value>
void expect_streams_of(const Isa& isa, const Format& format, DType target) {
  constexpr int kMost = 300, kOffsets = 70;
  std::vector<std::uint8_t> codes(kMost);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 37 & format.code_mask());
  const Decoder plain{.format = format, .target = target},
      streams{.format = format, .target = target, .streams = true};
  alignas(64) Value wanted[kMost], got[kMost + kOffsets];
  isa.decode(plain)(plain, codes.data(), wanted, kMost);
  for (int offset = 0; offset < kOffsets; offset += offset < 20 ? 1 : 7)
    for (int n = 0; n <= kMost; n += n < 140 ? 1 : 23) {
      std::fill(std::begin(got), std::end(got), Value{1});
      isa.decode(streams)(streams, codes.data(), got + offset, n);
      ASSERT_EQ(std::memcmp(got + offset, wanted, static_cast<std::size_t>(n) * sizeof(Value)), 0)
          << n << " from " << offset;
      ASSERT_EQ(got[offset + n], Value{1}) << n << " from " << offset;
    }
}
inline void expect_streams(const Isa& isa) {
  for (const Format& format : {e4m3fn, e2m1fn, e4m3fnuz}) {
    expect_streams_of<std::uint32_t>(isa, format, DType::f32);
    expect_streams_of<std::uint16_t>(isa, format, DType::bf16);
  }
}

}  // namespace octavo::cpu
