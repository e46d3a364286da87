// Wrong decodes found in peers' x86 kernels. Each is the peer's formula, written from its
// description, so that what is wrong about it stays counted; octavo's kernels must not share it.
//   SGLang, vLLM (CVT_FP8_TO_BF16_EXT, weights of FP8 products): the seven bits below the sign are
//     shifted to bf16's exponent and mantissa, 128 is added to the exponent by an OR with 0x4000,
//     and 2^-8 goes into the scale. The hidden bit is there for exponent 0 too: zero is 2^-7.
//   vLLM (FP8 KV cache on AMX): the same shift without the OR, 2^120 (2^112 for e5m2) goes into the
//     scale. Subnormal codes are subnormal bf16, and TDPBF16PS takes those for zero.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "octavo/convert/convert.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "tests/oracle/oracle.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

constexpr std::uint16_t kBf16Exponent = 0x7F80, kBf16Magnitude = 0x7FFF;

// Sign to bit 15, the other bits to where bf16's exponent ends and its mantissa begins.
std::uint16_t placed(const Format& format, std::uint32_t code) {
  const std::uint32_t sign = (code & format.sign_mask()) << (16 - format.bits());
  return static_cast<std::uint16_t>(sign | (code & format.magnitude_mask())
                                               << (7 - format.mantissa_bits));
}

double hidden_bit_always(std::uint32_t code) {
  return oracle::value_of_bf16(placed(e4m3fn, code) | 0x4000U) * 0x1p-8;
}

double flushed_when_subnormal(const Format& format, std::uint32_t code) {
  const std::uint16_t bits = placed(format, code);
  if ((bits & kBf16Exponent) == 0) return std::copysign(0.0, (bits & 0x8000U) != 0 ? -1.0 : 1.0);
  return std::ldexp(oracle::value_of_bf16(bits), 127 - format.bias);
}

// How many of the codes that are numbers a decoder gets wrong.
template <typename Decode>
int wrong_codes(const Format& format, const Decode& peer) {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 256; ++code)
    wrong += !is_nan(format, code) && !is_inf(format, code) && peer(code) != decode(format, code);
  return wrong;
}

TEST(DecodeWitness, AHiddenBitForExponentZeroIsWrongForSixteenCodes) {
  EXPECT_EQ(wrong_codes(e4m3fn, hidden_bit_always), 16);
  EXPECT_EQ(hidden_bit_always(0x00), 0x1p-7);  // a zero weight adds to every sum
  EXPECT_EQ(hidden_bit_always(0x01), 0x1.2p-7);
  EXPECT_EQ(hidden_bit_always(0x08), decode(e4m3fn, 0x08));  // from the normal numbers on right
}

TEST(DecodeWitness, SubnormalBf16LosesSevenMagnitudesOfE4m3AndThreeOfE5m2) {
  const auto wrong_of = [](const Format& format) {
    return wrong_codes(format,
                       [&](std::uint32_t code) { return flushed_when_subnormal(format, code); });
  };
  EXPECT_EQ(wrong_of(e4m3fn), 2 * 7);
  EXPECT_EQ(wrong_of(e5m2), 2 * 3);
}

// Every code of ours has its value in f32 and bf16, and none is one that a product would flush.
TEST(DecodeWitness, OursAreRightAndNormalOnEveryBackend) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  for (const BackendInfo& backend : support::every_backend()) {
    for (const Format& format : {e4m3fn, e5m2}) {
      const View from = as_read_only(code_view(codes.data(), format, {256}));
      const Tensor wide = decode(from, DType::f32, {.backend = backend.kernels});
      const Tensor narrow = decode(from, DType::bf16, {.backend = backend.kernels});
      for (std::uint32_t code = 0; code < 256; ++code) {
        const double want = decode(format, code);
        const std::uint16_t bits = narrow.span<std::uint16_t>()[code];
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(wide.span<float>()[code])) << backend.name << " " << code;
          EXPECT_TRUE(std::isnan(oracle::value_of_bf16(bits))) << backend.name << " " << code;
          continue;
        }
        EXPECT_EQ(double{wide.span<float>()[code]}, want) << backend.name << " " << code;
        EXPECT_EQ(oracle::value_of_bf16(bits), want) << backend.name << " " << code;
        EXPECT_EQ((bits & kBf16Exponent) != 0, (bits & kBf16Magnitude) != 0)
            << backend.name << ": code " << code << " is subnormal in bf16";
      }
    }
  }
}

}  // namespace
}  // namespace octavo
