// Tests of kernels over f32 lanes, for each instruction set: what no list of landmarks has, such as
// NaN with any payload.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "octavo/backend/cpu/isa.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

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

}  // namespace octavo::cpu
