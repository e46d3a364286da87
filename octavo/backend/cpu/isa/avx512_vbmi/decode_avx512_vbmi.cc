// Decoding by byte planes: the high and the low bytes of 64 16-bit results are looked up separately
// in tables of 128 bytes, two registers each (VPERMI2B), and interleaved. bf16 is such a result,
// f16 another, and f32 is a bf16 with two zero bytes below. NaN, Inf and subnormals are entries
// like all others. Tables are in registers: no address depends on data.
#include <immintrin.h>

#include <cstring>

#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

template <bool kStream>
[[gnu::always_inline]] inline void store(void* to, __m512i words) {
  if constexpr (kStream)
    _mm512_stream_si512(static_cast<__m512i*>(to), words);
  else
    _mm512_storeu_si512(to, words);
}

template <bool kStream>
[[gnu::always_inline]] inline void store64(const __m512i (&words)[2], std::uint16_t* to) {
  store<kStream>(to, words[0]);
  store<kStream>(to + 32, words[1]);
}

template <bool kStream>
[[gnu::always_inline]] inline void store64(const __m512i (&words)[2], float* to) {
  for (int i = 0; i < 2; ++i) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words[i]));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words[i], 1));
    store<kStream>(to + 32 * i, _mm512_slli_epi32(low, 16));
    store<kStream>(to + 32 * i + 16, _mm512_slli_epi32(high, 16));
  }
}

template <typename Target, const Format& kFormat, typename Value>
void decode_planes(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const Planes<Target, kFormat> planes;
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<Value*>(values);
  const auto some = [&](std::int64_t at, std::int64_t count) {  // at most 64
    alignas(64) std::uint8_t staged[64] = {};
    alignas(64) Value out[64];
    std::memcpy(staged, from + at, static_cast<std::size_t>(count));
    __m512i words[2];
    planes(_mm512_load_si512(staged), words);
    store64<false>(words, out);
    std::memcpy(to + at, out, static_cast<std::size_t>(count) * sizeof(Value));
  };
  std::int64_t done = 0;
  const auto run = [&]<bool kStream>() __attribute__((always_inline)) {
    for (; done + 64 <= n; done += 64) {
      prefetch_ahead<64>(from + done);
      __m512i words[2];
      planes(_mm512_loadu_si512(from + done), words);
      store64<kStream>(words, to + done);
    }
  };
  const std::int64_t head = decoder.streams ? elements_to_line(to, sizeof(Value)) : -1;
  if (head >= 0 && head < n) {
    if (head > 0) some(0, head);
    done = head;
    run.template operator()<true>();
    _mm_sfence();
  } else {
    run.template operator()<false>();
  }
  if (done < n) some(done, n - done);
}

template <const Format& kFormat>
DecodeSpan for_target(DType target) {
  switch (target) {
    case DType::f32:
      return decode_planes<Bfloat, kFormat, float>;
    case DType::bf16:
      return decode_planes<Bfloat, kFormat, std::uint16_t>;
    case DType::f16:
      return decode_planes<Half, kFormat, std::uint16_t>;
    default:
      return nullptr;
  }
}

// The formats that have tables: making one takes longer than decoding a row.
DecodeSpan by_table(const Decoder& decoder) {
  const Format& format = decoder.format;
  if (format == e4m3fn) return for_target<e4m3fn>(decoder.target);
  if (format == e5m2) return for_target<e5m2>(decoder.target);
  if (format == e2m1fn) return for_target<e2m1fn>(decoder.target);
  if (format == e2m3fn) return for_target<e2m3fn>(decoder.target);
  if (format == e3m2fn) return for_target<e3m2fn>(decoder.target);
  return nullptr;
}

DecodeSpan choose(const Decoder& decoder) {
  const DecodeSpan chosen = by_table(decoder);
  return chosen != nullptr ? chosen : avx512_decode(decoder);
}

}  // namespace

const Isa kAvx512VbmiIsa{.encode = avx512_encode,
                         .decode = choose,
                         .count = avx512_count,
                         .encode_scaled = avx512_encode_scaled,
                         .mx = avx512_mx,
                         .amax16 = avx512_amax16,
                         .amax = avx512_amax,
                         .fp4 = avx512_fp4,
                         .fp4_searches = true,
                         .fp4_searches_more = true,
                         .decode_scaled = avx512_decode_scaled,
                         .narrow_bf16 = avx512_narrow_bf16,
                         .rank = avx512_rank,
                         .fp4_squares = avx512_fp4_squares,
                         .row_error = avx512_row_error,
                         .products = &kAvx512Products,
                         .norms = &kAvx512Norms,
                         .widen_bf16 = avx512_widen_bf16,
                         .activate = avx512_activate,
                         .mx_searches = true,
                         .mx_ranks = true,
                         .subtract_f64 = avx512_subtract_f64};

const Kernels kAvx512VbmiKernels = make_kernels<kAvx512VbmiIsa, avx512_gemm, avx512_vbmi_attention>(
    "cpu/avx512_vbmi", "AVX-512 with VBMI");

}  // namespace octavo::cpu
