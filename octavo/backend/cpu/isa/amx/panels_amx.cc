// Panels of attention in bf16 from e4m3 codes and bf16 in place, and from f32. A line of 32
// elements is a row of a tile: keys are lines along their channels; values are lines along keys, so
// that V is transposed; queries are pairs.
//
// 64 codes are decoded by 9 operations (avx512_vbmi/planes.h). A square of V, 32 keys by 32
// channels, takes 32 loads, 32 unpackings and two transposes of 64 permutations: a tenth of an
// operation an element, once for all queries.
#include <immintrin.h>

#include "octavo/backend/cpu/attention/attention_codes.h"
#include "octavo/backend/cpu/attention/key_factors.h"
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

using Source = PanelKernels::Source;

// Rows of bf16 between source and panel, not a power of two apart.
constexpr std::int64_t kMaxPitch = kMaxHeadSize + 32;
struct alignas(64) Stage {
  std::uint16_t words[kSide * kMaxPitch];
};
constexpr std::int64_t pitch_of(std::int64_t padded) { return padded + 32; }

// Copies rows of either source as bf16, 32 elements a line, and keeps track of what they hold.
template <Source kSource>
class LineReader {
 public:
  // Writes lines [0, padded / 32) of a row, each `pitch` bytes after the one before.
  [[gnu::always_inline]] void operator()(const std::byte* row, std::int64_t n, std::int64_t padded,
                                         std::int64_t pitch, std::byte* to) {
    if constexpr (kSource == Source::e4m3) {
      for (std::int64_t k = 0; k < padded; k += 64, to += 2 * pitch) {
        const std::int64_t left = n - k;
        const __mmask64 there = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
        const __m512i codes = _mm512_maskz_loadu_epi8(there, row + k);
        const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi8(0x7F));
        wrong_ |= _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(0x7F));
        __m512i words[2];
        planes_(codes, words);
        _mm512_storeu_si512(to, words[0]);
        if (k + 32 < padded) _mm512_storeu_si512(to + pitch, words[1]);
      }
    } else {
      __mmask32 some = 0, enough = 0;
      for (std::int64_t k = 0; k < padded; k += 32, to += pitch) {
        const std::int64_t left = n - k;
        const __mmask32 there = left >= 32 ? ~__mmask32{0}
                                : left > 0 ? (__mmask32{1} << left) - 1
                                           : __mmask32{0};
        const __m512i words = _mm512_maskz_loadu_epi16(there, row + 2 * k);
        const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7FFF));
        some |= _mm512_cmpge_epi16_mask(magnitude, _mm512_set1_epi16(1));
        enough |= _mm512_cmpge_epi16_mask(magnitude, _mm512_set1_epi16(kLeast));
        wrong_ |= _mm512_cmpge_epi16_mask(magnitude, _mm512_set1_epi16(kMost));
        _mm512_storeu_si512(to, words);
      }
      if (some != 0 && enough == 0) wrong_ = 1;
    }
  }
  // Is all of it finite, and the largest of each row near enough to 1?
  [[nodiscard]] bool is_fine() const { return wrong_ == 0; }

 private:
  static constexpr short kLeast = (127 - kPlainRange) << 7, kMost = (127 + kPlainRange) << 7;
  Planes<Bfloat, e4m3fn> planes_;
  __mmask64 wrong_ = 0;
};

template <typename Work>
[[gnu::always_inline]] inline bool with_source(Source source, const Work& work) {
  return source == Source::e4m3 ? work.template operator()<Source::e4m3>()
                                : work.template operator()<Source::bf16>();
}

void clear_lines(std::int64_t padded, std::int64_t pitch, std::byte* to) {
  for (std::int64_t k = 0; k < padded; k += Bf16Tiles::kStep, to += pitch)
    _mm512_storeu_si512(to, _mm512_setzero_si512());
}

bool pack_keys(const PanelKernels::Rows& job) {
  return with_source(job.source, [&]<Source kSource>() {
    LineReader<kSource> read;
    for (int r = 0; r < job.count; ++r) {
      std::byte* const to = job.panel + r * kLine;
      if (job.rows[r] == nullptr) {
        clear_lines(job.padded, job.count * kLine, to);
      } else {
        read(job.rows[r], job.n, job.padded, job.count * kLine, to);
      }
    }
    return read.is_fine();
  });
}

bool pack_queries(const PanelKernels::Rows& job) {
  return with_source(job.source, [&]<Source kSource>() {
    Stage stage;
    LineReader<kSource> read;
    const std::byte* rows[kSide];
    for (int r = 0; r < job.count; ++r) {
      auto* const to = reinterpret_cast<std::byte*>(stage.words + r * pitch_of(job.padded));
      rows[r] = to;
      if (job.rows[r] == nullptr) {
        clear_lines(job.padded, kLine, to);
      } else {
        read(job.rows[r], job.n, job.padded, kLine, to);
      }
    }
    if (!read.is_fine()) return false;
    interleave_words(rows, job.count, job.padded / Bf16Tiles::kWord, job.panel);
    return true;
  });
}

// 32 staged rows, keys, to the lines of all channels: pairs of keys are words of 32 bits, which are
// transposed. Unpacking takes the lower halves of 128-bit lanes, then the upper ones: column j is
// channel 8 (j / 4) + j % 4, or four more.
void transpose_keys(const Stage& stage, std::int64_t padded, std::int64_t panel, std::byte* to) {
  const std::int64_t pitch = pitch_of(padded);
  for (std::int64_t e = 0; e < padded; e += kSide, to += panel)
    for (int upper = 0; upper < 2; ++upper) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const std::uint16_t* const at = stage.words + 2 * i * pitch + e;
        const __m512i even = _mm512_loadu_si512(at), odd = _mm512_loadu_si512(at + pitch);
        r[i] = upper == 0 ? _mm512_unpacklo_epi16(even, odd) : _mm512_unpackhi_epi16(even, odd);
      }
      transpose(r);
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j)
        _mm512_storeu_si512(to + (8 * (j / 4) + 4 * upper + j % 4) * kLine, r[j]);
    }
}

// Elements times a power of two: zeros stay. The least code is 2^-9, so none becomes subnormal.
constexpr int kLeastExponent = -110;
void add_exponent(int exponent, std::int64_t padded, std::uint16_t* words) {
  const __m512i added = _mm512_set1_epi16(static_cast<short>(exponent * 128));
  for (std::int64_t k = 0; k < padded; k += 32) {
    const __m512i all = _mm512_loadu_si512(words + k);
    const __mmask32 nonzero = _mm512_test_epi16_mask(all, _mm512_set1_epi16(0x7FFF));
    _mm512_storeu_si512(words + k, _mm512_mask_add_epi16(all, nonzero, all, added));
  }
}

bool pack_values(const PanelKernels::Values& job) {
  return with_source(job.source, [&]<Source kSource>() {
    Stage stage;
    LineReader<kSource> read;
    const std::int64_t pitch = pitch_of(job.padded);
    for (std::int64_t first = 0; first < job.tile_keys; first += kSide) {
      for (int i = 0; i < kSide; ++i) {
        const std::int64_t key = first + i;
        std::uint16_t* const to = stage.words + i * pitch;
        const int exponent = job.exponents != nullptr && key < job.keys ? job.exponents[key] : 0;
        if (key >= job.keys || exponent == KeyFactors::kZero) {
          clear_lines(job.padded, kLine, reinterpret_cast<std::byte*>(to));
          continue;
        }
        if (exponent < kLeastExponent) return false;
        read(job.rows + key * job.pitch, job.n, job.padded, kLine,
             reinterpret_cast<std::byte*>(to));
        if (exponent != 0) add_exponent(exponent, job.padded, to);
      }
      transpose_keys(stage, job.padded, job.panel, job.to + first / kSide * 2 * kTileBytes);
    }
    return read.is_fine();
  });
}

void narrow_values(const float* rows, std::int64_t pitch, std::int64_t keys, std::int64_t padded,
                   float inverse, std::int64_t panel, std::byte* to) {
  Stage stage;
  const __m512 factor = _mm512_set1_ps(inverse);
  for (std::int64_t first = 0; first < keys; first += kSide) {
    for (int i = 0; i < kSide; ++i)
      for (std::int64_t e = 0; e < padded; e += 16) {
        const __m512 all = _mm512_mul_ps(_mm512_loadu_ps(rows + (first + i) * pitch + e), factor);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(stage.words + i * pitch_of(padded) + e),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(all), 16)));
      }
    transpose_keys(stage, padded, panel, to + first / kSide * 2 * kTileBytes);
  }
}

}  // namespace

constinit const PanelKernels kAmxPanels{.keys = pack_keys,
                                        .queries = pack_queries,
                                        .values = pack_values,
                                        .narrow_values = narrow_values};

}  // namespace octavo::cpu
