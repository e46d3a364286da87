// Decode attention by AMX (TDPBF16PS), for keys and values of bf16 and of e4m3, which are decoded
// once for all query rows that share them, up to eight. Queries, keys and values are exact in bf16;
// weights are two terms of bf16, rows of the same tile, 2^-17 off at most (kTwoTerms), while the
// divisor is the sum of weights in f32: the bound of sums has the difference.
//
// Scores: A is sixteen keys by 32 elements of a head, bf16 as they are in memory; B is the queries
// in pairs of elements. Values: A is the weights of the queries, B is pairs of keys by sixteen
// channels, made by interleaving two rows. e4m3 is decoded by byte planes (avx512_vbmi/planes.h) in
// the order that interleaving leaves: queries are laid out so, and sums put in order at the end.
//
// The floor, for a key and a value of D = 128 in e4m3 and up to four queries: 24 operations of the
// shuffle port decode 256 codes, 2 interleave bytes; tiles multiply in 5 cycles and load in 4
// beside that; the softmax takes 4. At 2.7 GHz 256 bytes in 30 cycles are 23 GB/s, what memory
// gives a core. In f32, without tiles, products alone were 32 cycles, and transposing sums 16. bf16
// has nothing to decode: 5 cycles of interleaving.
#include <immintrin.h>

#include <cstring>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/decode_rows_amx.h"
#include "octavo/backend/cpu/isa/amx/decode_weights_amx.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {
namespace {

constexpr int kSixteen = kHalf;     // rows of a tile
constexpr int kBlockChannels = 64;  // four tiles of sums
constexpr std::int64_t kLineElements = Bf16Tiles::kStep, kPairElements = 2;
constexpr int kFew = 4, kMost = 8;  // queries: tiles are smaller up to kFew

// Rows are prefetched this number of keys ahead, those of the next call too: a call reads some
// kilobytes of K, the next as much of V, too little for the CPU's own prefetchers.
constexpr std::int64_t kKeysAhead = 32;
[[gnu::always_inline]] inline void prefetch_row(const std::byte* row, std::int64_t pitch,
                                                std::int64_t bytes) {
  const auto at =
      reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(kKeysAhead * pitch);
  for (std::int64_t i = 0; i < bytes; i += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(at + static_cast<std::uintptr_t>(i)), _MM_HINT_T0);
}

std::int64_t whole(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
int columns_of(int queries) { return queries <= kFew ? kFew : kSixteen; }

// Tiles are configured once for a thread (AttentionMethod::enter), all of them whole. Rows and
// columns beyond the queries are left out. Where a row of memory is narrower than one of a tile,
// rows overlap: they are loaded and stored in order, and what lies beyond a row belongs to the
// next.
constexpr std::int64_t kOverlap = kLine;  // bytes after the last row

[[gnu::always_inline]] inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
[[gnu::always_inline]] inline void store_sums(float* to, std::int64_t tile_bytes,
                                              std::int64_t pitch) {
  auto* bytes = reinterpret_cast<std::byte*>(to);
  _tile_stored(0, bytes, pitch);
  _tile_stored(1, bytes + tile_bytes, pitch);
  _tile_stored(2, bytes + 2 * tile_bytes, pitch);
  _tile_stored(3, bytes + 3 * tile_bytes, pitch);
}

[[gnu::always_inline]] inline bool all_finite(__m512 sums, __mmask16 there) {
  const __m512i magnitude =
      _mm512_and_si512(_mm512_castps_si512(sums), _mm512_set1_epi32(0x7FFFFFFF));
  return (_mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(0x7F800000)) & there) == 0;
}

// Rows of words of several queries to words of all queries: B of the scores. `words` is a multiple
// of sixteen.
void lay_queries(const std::byte* const* q, int count, std::int64_t words, std::byte* to) {
  const int columns = columns_of(count);
  for (std::int64_t w = 0; w < words; w += 16) {
    const auto load = [&](int r) __attribute__((always_inline)) {
      return r < count ? _mm512_loadu_si512(q[r] + 4 * w) : _mm512_setzero_si512();
    };
    std::byte* const at = to + w * columns * 4;
    if (columns == kFew) {
      __m512i r[4] = {load(0), load(1), load(2), load(3)};
      transpose_words(r);
      transpose_lanes(r);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) _mm512_store_si512(at + i * kLine, r[i]);
    } else {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = load(i);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_si512(at + i * kLine, r[i]);
    }
  }
}

// Sums of sixteen keys by queries to the scores of those keys. Returns whether all are finite.
bool scatter_scores(const float* sums, int count, std::int64_t at, __mmask16 there,
                    float* const* scores) {
  bool good = true;
  const auto store = [&](int r, __m512i score) __attribute__((always_inline)) {
    _mm512_mask_storeu_epi32(scores[r] + at, there, score);
    good &= all_finite(_mm512_castsi512_ps(score), there);
  };
  if (count <= kFew) {
    __m512i r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = _mm512_load_si512(sums + 16 * i);
    transpose_lanes(r);
    transpose_words(r);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      if (i < count) store(i, r[i]);
    return good;
  }
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(sums + 16 * i);
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < count) store(i, r[i]);
  return good;
}

// Sums of sixteen keys in a tile; the number of a tile is a literal.
struct EvenSums {
  [[gnu::always_inline]] static void zero() { _tile_zero(0); }
  [[gnu::always_inline]] static void add_first() { _tile_dpbf16ps(0, 2, 4); }
  [[gnu::always_inline]] static void add_second() { _tile_dpbf16ps(0, 3, 5); }
  [[gnu::always_inline]] static void add_third() { _tile_dpbf16ps(0, 2, 6); }
  [[gnu::always_inline]] static void add_fourth() { _tile_dpbf16ps(0, 3, 7); }
  [[gnu::always_inline]] static void store(float* to, std::int64_t pitch) {
    _tile_stored(0, to, pitch);
  }
};
struct OddSums {
  [[gnu::always_inline]] static void zero() { _tile_zero(1); }
  [[gnu::always_inline]] static void add_first() { _tile_dpbf16ps(1, 2, 4); }
  [[gnu::always_inline]] static void add_second() { _tile_dpbf16ps(1, 3, 5); }
  [[gnu::always_inline]] static void add_third() { _tile_dpbf16ps(1, 2, 6); }
  [[gnu::always_inline]] static void add_fourth() { _tile_dpbf16ps(1, 3, 7); }
  [[gnu::always_inline]] static void store(float* to, std::int64_t pitch) {
    _tile_stored(1, to, pitch);
  }
};

template <typename Source>
struct DecodeByTiles {
  static constexpr std::int64_t kMaxPadded = kMaxHeadSize;  // a multiple of 64

  // Lines of sixteen keys: where they are, or in `staged`.
  struct Lines {
    const std::byte* first;
    std::int64_t pitch;
  };
  static Lines lines_of(const Source& source, const DecodeRows& job, std::int64_t at,
                        std::int64_t padded, std::byte* staged) {
    const std::int64_t count = job.keys - at < kSixteen ? job.keys - at : kSixteen;
    const std::byte* const rows = job.rows + at * job.pitch;
    const std::int64_t row_bytes = job.size * Source::kBytes;
    if (Source::kInPlace && count == kSixteen && padded == job.size) {
      for (std::int64_t i = 0; i < count; ++i)
        prefetch_row(rows + i * job.pitch, job.pitch, row_bytes);
      return {rows, job.pitch};
    }
    const std::int64_t pitch = 2 * padded;
    for (std::int64_t i = 0; i < count; ++i) {
      prefetch_row(rows + i * job.pitch, job.pitch, row_bytes);
      for (std::int64_t d = 0; d < padded; d += Source::kStep)
        source.line(rows + i * job.pitch, d, job.size, staged + i * pitch + 2 * d);
    }
    // The last rows of a tile are read, and left out.
    std::memset(staged + count * pitch, 0, static_cast<std::size_t>((kSixteen - count) * pitch));
    return {staged, pitch};
  }

  // Up to four tiles of queries, which stay where heads have no more.
  struct Queries {
    const std::byte* words;
    std::int64_t row_bytes, steps;  // steps of 32 elements

    [[gnu::always_inline]] void load(std::int64_t from) const {
      const std::byte* const at = words + from * kSixteen * row_bytes;
      const std::int64_t tile = kSixteen * row_bytes;
      _tile_loadd(4, at, row_bytes);
      if (from + 1 < steps) _tile_loadd(5, at + tile, row_bytes);
      if (from + 2 < steps) _tile_loadd(6, at + 2 * tile, row_bytes);
      if (from + 3 < steps) _tile_loadd(7, at + 3 * tile, row_bytes);
    }
    [[nodiscard]] bool stay() const { return steps <= 4; }
  };

  // Sixteen keys by all queries, to tile 0 or 1.
  template <typename Sums>
  [[gnu::always_inline]] static void multiply_keys(const Lines& lines, const Queries& queries) {
    Sums::zero();
    for (std::int64_t step = 0; step < queries.steps; step += 4) {
      if (!queries.stay()) queries.load(step);
      const std::byte* const key = lines.first + step * kLine;
      _tile_loadd(2, key, lines.pitch);
      Sums::add_first();
      if (step + 1 < queries.steps) {
        _tile_loadd(3, key + kLine, lines.pitch);
        Sums::add_second();
      }
      if (step + 2 < queries.steps) {
        _tile_loadd(2, key + 2 * kLine, lines.pitch);
        Sums::add_third();
      }
      if (step + 3 < queries.steps) {
        _tile_loadd(3, key + 3 * kLine, lines.pitch);
        Sums::add_fourth();
      }
    }
  }

  static bool dots(const DecodeRows& job, const std::byte* const* q, int count,
                   float* const* scores, float* /*most_row_squares*/) {
    const Source source;
    const std::int64_t padded = whole(job.size, Source::kStep), row_bytes = 4 * columns_of(count),
                       words = padded / kPairElements;
    alignas(64) std::byte laid[kMaxPadded / kPairElements * 4 * kSixteen + kOverlap],
        staged[2][kSixteen * kMaxPadded * 2];
    alignas(64) float sums[kSixteen * kSixteen + kOverlap / 4];
    lay_queries(q, count, words, laid);
    std::memset(laid + words * row_bytes, 0, kOverlap);
    const Queries queries{laid, row_bytes, padded / kLineElements};
    if (queries.stay()) queries.load(0);
    // Three sixteens are under way: one is decoded, tiles multiply the one before, whose stores
    // have reached the cache, and the sums of the one before that are complete.
    const std::int64_t groups = (job.keys + kSixteen - 1) / kSixteen;
    bool good = true;
    Lines before{};
    for (std::int64_t group = 0; group < groups + 2; ++group) {
      Lines now{};
      if (group < groups) now = lines_of(source, job, group * kSixteen, padded, staged[group % 2]);
      if (group >= 2) {
        const std::int64_t at = (group - 2) * kSixteen, left = job.keys - at;
        if (group % 2 == 0) {
          EvenSums::store(sums, row_bytes);
        } else {
          OddSums::store(sums, row_bytes);
        }
        const auto there = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1U << left) - 1);
        good &= scatter_scores(sums, count, at, there, scores);
      }
      if (group >= 1 && group <= groups) {
        if (group % 2 == 1) {
          multiply_keys<EvenSums>(before, queries);
        } else {
          multiply_keys<OddSums>(before, queries);
        }
      }
      before = now;
    }
    return good;
  }

  // 32 keys of 64 channels in pairs, as four tiles.
  static void pair_keys(const Source& source, const DecodeRows& job, std::int64_t at,
                        std::int64_t col, std::byte* to) {
    const std::int64_t left = job.keys - at < kLineElements ? job.keys - at : kLineElements;
    const std::byte* row = job.rows + at * job.pitch + col * Source::kBytes;
    const std::int64_t size = job.size - col;
    std::int64_t i = 0;
    constexpr std::int64_t kBytes = kBlockChannels * Source::kBytes;
    for (; i + 1 < left; i += 2, row += 2 * job.pitch, to += kLine) {
      prefetch_row(row, job.pitch, kBytes);
      prefetch_row(row + job.pitch, job.pitch, kBytes);
      source.template pair<true>(row, row + job.pitch, size, to);
    }
    if (i < left) {
      source.template pair<false>(row, nullptr, size, to);
      i += 2;
      to += kLine;
    }
    for (; i < kLineElements; i += 2, to += kLine)
      for (int tile = 0; tile < 4; ++tile)
        _mm512_store_si512(to + tile * kTileBytes, _mm512_setzero_si512());
  }

  static void add_values(const std::byte* weights, const std::byte* pairs) {
    _tile_loadd(6, weights, kDecodeKeys * 2);
    _tile_loadd(4, pairs, kLine);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(5, pairs + kTileBytes, kLine);
    _tile_dpbf16ps(1, 6, 5);
    _tile_loadd(4, pairs + 2 * kTileBytes, kLine);
    _tile_dpbf16ps(2, 6, 4);
    _tile_loadd(5, pairs + 3 * kTileBytes, kLine);
    _tile_dpbf16ps(3, 6, 5);
  }

  static bool weigh(const DecodeRows& job, const DecodeWeights* rows, int count) {
    const Source source;
    const int half = count <= kFew ? kFew : kMost;
    // Weights of keys beyond the last are zero, and so are the values they multiply.
    alignas(64) std::byte weights[2 * kMost][kDecodeKeys * 2];
    float units[kMost];
    std::memset(weights, 0, sizeof weights);
    for (int r = 0; r < count; ++r)
      units[r] = split_weights(reinterpret_cast<const float*>(rows[r].packed), job.keys, weights[r],
                               weights[half + r]);
    alignas(64) std::byte pairs[2][4 * kTileBytes];
    alignas(64) float sums[4][kSixteen][kSixteen];
    bool good = true;
    for (std::int64_t col = 0; col < job.size; col += kBlockChannels) {
      zero_sums();
      // Tiles multiply what was paired a step before: those stores have reached the cache.
      int now = 0;
      pair_keys(source, job, 0, col, pairs[now]);
      for (std::int64_t at = 0; at < job.keys; at += kLineElements, now ^= 1) {
        if (at + kLineElements < job.keys)
          pair_keys(source, job, at + kLineElements, col, pairs[now ^ 1]);
        add_values(weights[0] + 2 * at, pairs[now]);
      }
      store_sums(sums[0][0], sizeof sums[0], kLine);
      for (int r = 0; r < count; ++r) {
        __m512i sum[4];
#pragma GCC unroll 4
        for (int t = 0; t < 4; ++t)
          sum[t] = _mm512_castps_si512(
              _mm512_add_ps(_mm512_load_ps(sums[t][r]), _mm512_load_ps(sums[t][half + r])));
        Source::put_in_order(sum);
#pragma GCC unroll 4
        for (int t = 0; t < 4; ++t) {
          if (col + t * 16 >= job.size) break;  // sizes are multiples of sixteen
          float* const to = rows[r].sums + col + t * 16;
          const __m512 all =
              _mm512_fmadd_ps(_mm512_castsi512_ps(sum[t]),
                              _mm512_set1_ps(units[r] * rows[r].factor), _mm512_loadu_ps(to));
          _mm512_storeu_ps(to, all);
          good &= all_finite(all, 0xFFFF);
        }
      }
    }
    return good;
  }

  // Exact in bf16: the upper half is the value.
  static void pack_query(const float* q, std::int64_t size, std::byte* laid) {
    for (std::int64_t d = 0; d < whole(size, Source::kStep); d += Source::kStep)
      for (int i = 0; i < Source::kStep; ++i) {
        const std::int64_t from = d + Source::element_of(i);
        const float value = from < size ? q[from] : 0.0F;
        std::memcpy(laid + 2 * (d + i), reinterpret_cast<const std::byte*>(&value) + 2, 2);
      }
  }
};
template <typename Source>
constexpr DecodeKernels kDecodeByTiles{.dots = DecodeByTiles<Source>::dots,
                                       .weigh = DecodeByTiles<Source>::weigh,
                                       .pack_query = DecodeByTiles<Source>::pack_query,
                                       .packed_type = PackedType::f32,
                                       .queries = kMost,
                                       .weights_off = kTwoTerms,
                                       // 2^-126 of twice the largest weight, in both terms, times
                                       // codes below 2^9, over a sum of weights of at least 1/2.
                                       .flushed = 0x1p-114};

}  // namespace

const DecodeKernels* amx_decode_attention(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kDecodeByTiles<Bf16Rows>
                                                                     : nullptr;
  return elements.format == e4m3fn && elements.col_stride == 1 && has_one_scale_per_row(operand)
             ? &kDecodeByTiles<E4m3Rows>
             : nullptr;
}

}  // namespace octavo::cpu
