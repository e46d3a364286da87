// Up to sixteen rows of A by 64 rows of B that are used once: rows of B are the lines of tiles, A
// is what AMX calls B, and the sums are those of the transposed result. So nothing of B is
// transposed: decoding is all that there is to do (line_decoders.h), and of bf16 not even that. A
// product of two bf16 is the same either way, and so is the order of their sums.
//
// Four tiles of sums hide the 52 cycles of an instruction. Between two of their steps sixteen rows
// are decoded, of the piece of K after the one that is multiplied.
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/line_decoders.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"

namespace octavo::cpu {
namespace {

constexpr int kGroups = kLineCols / kHalf;
// Sixteen rows of a piece: a tile for each of its lines, in one half of some pages.
constexpr std::int64_t kGroupBytes = line_at(kPieceLines);
struct alignas(kLinePage) Pieces {
  std::byte at[kGroups * kGroupBytes];
};
struct alignas(64) LineSums {
  float at[kGroups][kHalf][kHalf];  // column, row of A
};

[[gnu::always_inline]] inline void zero_groups() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
[[gnu::always_inline]] inline void store_groups(LineSums& sums) {
  _tile_stored(0, sums.at[0], kLine);
  _tile_stored(1, sums.at[1], kLine);
  _tile_stored(2, sums.at[2], kLine);
  _tile_stored(3, sums.at[3], kLine);
}
// A quarter of 32 elements of K: the lines of group kGroup; A is loaded with the first.
template <int kGroup>
[[gnu::always_inline]] inline void multiply_group(const std::byte* a, const std::byte* lines) {
  lines += kGroup * kGroupBytes;
  if constexpr (kGroup == 0) {
    _tile_loadd(4, a, kLine);
    _tile_loadd(5, lines, kLine);
    _tile_dpbf16ps(0, 5, 4);
  } else if constexpr (kGroup == 1) {
    _tile_loadd(6, lines, kLine);
    _tile_dpbf16ps(1, 6, 4);
  } else if constexpr (kGroup == 2) {
    _tile_loadd(7, lines, kLine);
    _tile_dpbf16ps(2, 7, 4);
  } else {
    _tile_loadd(5, lines, kLine);
    _tile_dpbf16ps(3, 5, 4);
  }
}

// Adds the sums of a run, times its scales, and begins the next.
void end_run(const LinesJob& job, std::int64_t run, LineSums& total) {
  LineSums part;
  store_groups(part);
  zero_groups();
  const __m512 left = _mm512_loadu_ps(job.a_scale + run * kHalf);
  const float* right = job.b_scale + run * kLineCols;
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kHalf; ++i) {
      const __m512 before = run == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total.at[g][i]);
      const __m512 scaled =
          _mm512_mul_ps(_mm512_load_ps(part.at[g][i]), _mm512_set1_ps(right[g * kHalf + i]));
      _mm512_store_ps(total.at[g][i], _mm512_fmadd_ps(scaled, left, before));
    }
}

void store_sums(const LinesJob& job, const LineSums& total) {
  for (int g = 0; g < kGroups; ++g) {
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i) r[i] = _mm512_load_si512(total.at[g][i]);
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i)
      if (i < job.rows) _mm512_storeu_si512(job.sums + i * job.pitch + g * kHalf, r[i]);
  }
}

// The sums of all of K, with their scales, if any.
void finish(const LinesJob& job) {
  LineSums total;
  store_groups(total);
  if (job.a_scale != nullptr) {
    const __m512 left = _mm512_loadu_ps(job.a_scale);
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < kHalf; ++i) {
        const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(total.at[g][i]),
                                            _mm512_set1_ps(job.b_scale[g * kHalf + i]));
        _mm512_store_ps(total.at[g][i], _mm512_fmadd_ps(scaled, left, _mm512_setzero_ps()));
      }
  }
  store_sums(job, total);
}

// Runs are multiples of kLinePiece, or all of K.
template <typename Lines>
void multiply_lines(const LinesJob& job) {
  // What is read this many bytes later goes to L2: rows may share their sets of L1.
  constexpr std::int64_t kAhead = 512, kPieceBytes = kLinePiece * Lines::kBits / 8;
  const FpEnvGuard guard;
  const Lines decode;
  Pieces pieces;
  LineSums total;
  const bool in_runs = job.run < job.depth;
  const std::int64_t row_bytes = job.depth * Lines::kBits / 8;
  const std::byte* a = job.a;
  zero_groups();
  int before = 0;  // lines of the piece that is to be multiplied
  for (std::int64_t k = 0, turn = 0; k < job.depth + kLinePiece; k += kLinePiece, turn ^= 1) {
    const std::int64_t left = job.depth - k;
    const int lines = left >= kLinePiece ? kPieceLines
                      : left > 0         ? static_cast<int>(left / kLineWords)
                                         : 0;
    std::byte* const to = pieces.at + turn * (kLinePage / 2);
    const std::byte* const from = pieces.at + (turn ^ 1) * (kLinePage / 2);
    const std::int64_t codes_at = k * Lines::kBits / 8;
    const std::int64_t scales_at = Lines::kHasScales ? k / job.tile : 0;
    // Beyond the end of a row: the beginning of one of the next columns.
    const std::int64_t ahead =
        codes_at + kAhead < row_bytes ? kAhead : kAhead + kLineCols * job.row_pitch - row_bytes;
    const bool asks_scales = k % 1024 == 0;
    const std::int64_t scales_ahead = kLineCols * job.scale_pitch;
    for (int g = 0; g < kGroups; ++g) {
      const auto quarter = [&]<int kQuarter>() __attribute__((always_inline)) {
        if (g < before) multiply_group<kQuarter>(a + g * kTileBytes, from + line_at(g));
        for (int i = 4 * kQuarter; i < 4 * kQuarter + 4; ++i) {
          const int row = g * kHalf + i;
          _mm_prefetch(a + (g + 1) * kTileBytes + i * kLine, _MM_HINT_T0);
          const std::byte* const at = job.columns[row] + codes_at;
          const std::uint8_t* const scales =
              Lines::kHasScales ? job.scale_codes[row] + scales_at : nullptr;
          for (std::int64_t b = 0; b < kPieceBytes; b += kLine)
            _mm_prefetch(at + ahead + b, _MM_HINT_T1);
          if (Lines::kHasScales && asks_scales) _mm_prefetch(scales + scales_ahead, _MM_HINT_T1);
          std::byte* const line = to + g * kGroupBytes + i * kLine;
          if (lines == kPieceLines)
            decode(at, scales, kPieceLines, line);
          else if (lines > 0)
            decode(at, scales, lines, line);
        }
      };
      quarter.template operator()<0>();
      quarter.template operator()<1>();
      quarter.template operator()<2>();
      quarter.template operator()<3>();
    }
    a += before * kTileBytes;
    before = lines;
    if (in_runs && k > 0 && (k % job.run == 0 || lines == 0))
      end_run(job, (k - 1) / job.run, total);
  }
  in_runs ? store_sums(job, total) : finish(job);
}

// bf16 in rows that are all there: nothing but tiles, loaded from where it is.
void multiply_values(const LinesJob& job) {
  if (job.columns_there < kLineCols) return multiply_lines<ValueLines>(job);
  constexpr std::int64_t kAhead = 512;
  const FpEnvGuard guard;
  const std::byte *a = job.a, *b = job.columns[0];
  const std::int64_t group = kHalf * job.row_pitch, bytes = job.depth * 2;
  zero_groups();
  for (std::int64_t at = 0; at < bytes; at += kLine, a += kTileBytes) {
    const std::byte* const ahead =
        b + at + (at + kAhead < bytes ? kAhead : kAhead + kLineCols * job.row_pitch - bytes);
    _tile_loadd(4, a, kLine);
    const auto prefetch = [&](int g) __attribute__((always_inline)) {
      for (int i = 0; i < kHalf; ++i)
        _mm_prefetch(ahead + (g * kHalf + i) * job.row_pitch, _MM_HINT_T1);
    };
    _tile_loadd(5, b + at, job.row_pitch);
    _tile_dpbf16ps(0, 5, 4);
    prefetch(0);
    _tile_loadd(6, b + at + group, job.row_pitch);
    _tile_dpbf16ps(1, 6, 4);
    prefetch(1);
    _tile_loadd(7, b + at + 2 * group, job.row_pitch);
    _tile_dpbf16ps(2, 7, 4);
    prefetch(2);
    _tile_loadd(5, b + at + 3 * group, job.row_pitch);
    _tile_dpbf16ps(3, 5, 4);
    prefetch(3);
  }
  finish(job);
}

}  // namespace

MultiplyLines amx_multiply_lines(const Matrix& elements, const Matrix* scales, std::int64_t tile) {
  if (elements.dtype == DType::bf16) return scales == nullptr ? multiply_values : nullptr;
  const Format& format = elements.format;
  const bool powers = scales != nullptr && scales->format == e8m0fnu && tile == 32,
             e4m3s = scales != nullptr && scales->format == e4m3fn && tile == 16;
  if (elements.packed) {
    if (format != e2m1fn) return nullptr;
    if (scales == nullptr) return multiply_lines<NibbleLines<NibbleScale::none>>;
    if (powers) return multiply_lines<NibbleLines<NibbleScale::power_of_32>>;
    return e4m3s ? multiply_lines<NibbleLines<NibbleScale::e4m3_of_16>> : nullptr;
  }
  if (scales != nullptr && !powers) return nullptr;
  if (format == e4m3fn)
    return powers ? multiply_lines<ByteLines<e4m3fn, true>>
                  : multiply_lines<ByteLines<e4m3fn, false>>;
  if (format == e5m2)
    return powers ? multiply_lines<ByteLines<e5m2, true>> : multiply_lines<ByteLines<e5m2, false>>;
  return nullptr;
}

}  // namespace octavo::cpu
