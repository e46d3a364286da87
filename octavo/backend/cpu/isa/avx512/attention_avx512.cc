// Decode attention with keys and values of bf16: 32 of them are five operations, a load, a shift, a
// mask and two multiply-adds, so that memory is what bounds it.
#include <immintrin.h>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/avx512/attention_avx512.h"
#include "octavo/backend/cpu/isa/avx512/attention_decode_rows.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"

namespace octavo::cpu {
namespace {

struct Bf16Rows {
  static constexpr int kBlock = 32, kVectors = 2;
  static constexpr bool kHasNan = false;  // what comes of it is the result

  // Even elements, then odd ones.
  static constexpr int element_of(int i) { return i % 16 * 2 + i / 16; }
  [[gnu::always_inline]] void load(const std::byte* row, std::int64_t at, std::int64_t size,
                                   __m512 (&to)[2]) const {
    const __mmask32 there = size - at >= kBlock ? ~__mmask32{0} : __mmask32{0xFFFF};
    const __m512i words = _mm512_maskz_loadu_epi16(there, row + 2 * at);
    to[0] = even_of(words);
    to[1] = odd_of(words);
  }
  [[gnu::always_inline]] static void put_in_order(__m512 (&sums)[2]) {
    const __m512i low = _mm512_castps_si512(_mm512_unpacklo_ps(sums[0], sums[1])),
                  high = _mm512_castps_si512(_mm512_unpackhi_ps(sums[0], sums[1]));
    // Lane l of both are elements 8 l to 8 l + 7.
    const __m512i a = _mm512_shuffle_i32x4(low, high, 0x44),
                  b = _mm512_shuffle_i32x4(low, high, 0xEE);
    sums[0] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, a, 0xD8));
    sums[1] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(b, b, 0xD8));
  }
};

constexpr AttentionMethod kAttention = f32_attention(avx512_decode_attention);

}  // namespace

const DecodeKernels* avx512_decode_attention(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  return !operand.is_quantized() && elements.dtype == DType::bf16 && elements.col_stride == 2
             ? &kDecodeOver<Bf16Rows>
             : nullptr;
}

const AttentionMethod* avx512_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kAttention : nullptr;
}

}  // namespace octavo::cpu
