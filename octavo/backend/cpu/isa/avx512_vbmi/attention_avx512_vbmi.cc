// Decode attention with keys and values of e4m3, decoded in registers by byte planes (planes.h): 64
// codes are a load, two look-ups, a sign, two interleavings, four halves of words and four
// multiply-adds, 14 instructions for 64 bytes. Elements stay in the order of the interleaving.
#include <immintrin.h>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/avx512/attention_avx512.h"
#include "octavo/backend/cpu/isa/avx512/attention_decode_rows.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

struct E4m3Rows {
  static constexpr int kBlock = 64, kVectors = 4;
  static constexpr bool kHasNan = true;

  // Of every sixteen elements, a 128-bit lane: even ones of the first eight, odd ones, even ones of
  // the other eight, odd ones; each is four elements of a vector.
  static constexpr int element_of(int i) {
    const int vector = i / 16, lane = i % 16 / 4, place = i % 4;
    return 16 * lane + vector / 2 * 8 + place * 2 + vector % 2;
  }
  [[gnu::always_inline]] void load(const std::byte* row, std::int64_t at, std::int64_t size,
                                   __m512 (&to)[4]) const {
    const std::int64_t left = size - at;
    const __mmask64 there = left >= kBlock ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    __m512i words[2];
    planes_.in_lanes(_mm512_maskz_loadu_epi8(there, row + at), words);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      to[2 * h] = even_of(words[h]);
      to[2 * h + 1] = odd_of(words[h]);
    }
  }
  // Sixteen elements of a lane side by side, then lanes to vectors.
  [[gnu::always_inline]] static void put_in_order(__m512 (&sums)[4]) {
    __m512i four[4];  // elements 4 i to 4 i + 3 of every lane
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      four[2 * h] = _mm512_castps_si512(_mm512_unpacklo_ps(sums[2 * h], sums[2 * h + 1]));
      four[2 * h + 1] = _mm512_castps_si512(_mm512_unpackhi_ps(sums[2 * h], sums[2 * h + 1]));
    }
    const __m512i a = _mm512_shuffle_i32x4(four[0], four[1], 0x44),
                  b = _mm512_shuffle_i32x4(four[2], four[3], 0x44),
                  c = _mm512_shuffle_i32x4(four[0], four[1], 0xEE),
                  d = _mm512_shuffle_i32x4(four[2], four[3], 0xEE);
    sums[0] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, b, 0x88));
    sums[1] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, b, 0xDD));
    sums[2] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(c, d, 0x88));
    sums[3] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(c, d, 0xDD));
  }

 private:
  Planes<Bfloat, e4m3fn> planes_;
};

}  // namespace

const DecodeKernels* avx512_vbmi_decode_attention(const GemmOperand& operand) {
  if (!operand.is_quantized()) return avx512_decode_attention(operand);
  const Matrix& elements = operand.elements();
  return elements.format == e4m3fn && elements.col_stride == 1 && has_one_scale_per_row(operand)
             ? &kDecodeOver<E4m3Rows>
             : nullptr;
}

constinit const AttentionMethod kAvx512VbmiAttention = f32_attention(avx512_vbmi_decode_attention);

const AttentionMethod* avx512_vbmi_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kAvx512VbmiAttention : nullptr;
}

}  // namespace octavo::cpu
