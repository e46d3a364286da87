// Up to sixteen rows of A by codes of B, or five to sixteen by its values, over f32 lanes: a piece
// of B's panel is decoded once into memory that stays in L1, and multiplied there by all rows. A
// panel of A is as wide as the most rows, and only those that are there are multiplied: in groups
// of equal size that leave registers for two vectors of B, where the tile of large products would
// fill up with rows of zeros. Of the next panel a quarter is asked for while this one is decoded,
// the rest while it is multiplied, so that memory is never idle.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemm_pack_kernel.h"

namespace octavo::cpu {
namespace {

// The width of a panel of A, and elements of K of a piece.
inline constexpr int kSmallMRows = 16;
inline constexpr std::int64_t kSmallMPiece = 128;

// Rows of A by one panel of B.
struct SmallMJob {
  const float *a, *b;  // [depth][kSmallMRows], of which the first row here; [depth][2 vectors]
  std::int64_t depth;
  float* sums;
  std::int64_t pitch;
  bool overwrites;  // or the sums that are there go on
  // Bytes of what follows in memory that are asked for with each kStride elements of K.
  RowsAhead* ahead;
  std::int64_t asked;
};
inline constexpr std::int64_t kStride = 8;

// Of fewer than four rows, sums of alternate elements of K are apart: a multiply-add waits four
// cycles for the one before it.
template <typename L, int kRows>
void multiply_group(const SmallMJob& job) {
  constexpr int kVectors = 2, kCols = kVectors * L::kLanes;
  constexpr int kApart = kRows == 1 ? 4 : kRows < 4 ? 2 : 1;
  using Floats = typename L::Floats;
  Floats sum[kApart][kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      sum[0][i][j] =
          job.overwrites ? L::fsplat(0.0F) : L::fload(job.sums + i * job.pitch + j * L::kLanes);
#pragma GCC unroll 4
      for (int part = 1; part < kApart; ++part) sum[part][i][j] = L::fsplat(0.0F);
    }
  const float *a = job.a, *b = job.b;
  for (std::int64_t k = 0; k < job.depth; k += kStride) {
    if (job.ahead != nullptr) job.ahead->ask(job.asked);
    for (const float* const end = b + kStride * kCols; b < end;) {
#pragma GCC unroll 4
      for (int part = 0; part < kApart; ++part, a += kSmallMRows, b += kCols) {
        const Floats right[kVectors] = {L::fload(b), L::fload(b + L::kLanes)};
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const Floats left = L::fsplat(a[i]);
#pragma GCC unroll 2
          for (int j = 0; j < kVectors; ++j)
            sum[part][i][j] = L::fma(left, right[j], sum[part][i][j]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
#pragma GCC unroll 4
      for (int part = 1; part < kApart; ++part)
        sum[0][i][j] = L::fplus(sum[0][i][j], sum[part][i][j]);
      L::fstore(job.sums + i * job.pitch + j * L::kLanes, sum[0][i][j]);
    }
}

// Calls one.operator()<rows>() for 1 to kMost rows.
template <int kMost, typename One>
[[gnu::always_inline]] inline void with_group_rows(int rows, const One& one) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_group_rows<kMost - 1>(rows, one);
  }
  one.template operator()<kMost>();
}

// With 32 registers eight rows are 16 sums, with 16 registers six are 12.
template <typename L>
void multiply_small_m(SmallMJob job, int rows) {
  constexpr int kMost = L::kLanes == 16 ? 8 : 6;
  int groups = (rows + kMost - 1) / kMost;
  job.asked /= groups;
  for (; groups > 0; --groups) {
    const int some = (rows + groups - 1) / groups;
    with_group_rows<kMost>(some, [&]<int kRows>() { multiply_group<L, kRows>(job); });
    job.a += some;
    job.sums += some * job.pitch;
    rows -= some;
  }
}

// The microkernel: of panels that are packed already.
template <typename L>
void small_m_tile(const MicrokernelJob& job) {
  multiply_small_m<L>({.a = reinterpret_cast<const float*>(job.a),
                       .b = reinterpret_cast<const float*>(job.b),
                       .depth = job.run * job.runs,
                       .sums = job.sums,
                       .pitch = job.pitch,
                       .overwrites = job.overwrites,
                       .ahead = nullptr,
                       .asked = 0},
                      job.rows);
}

template <typename L, typename Codes>
void small_m_codes(const PackJob& codes, const MicrokernelJob& job) {
  constexpr int kCols = 2 * L::kLanes;
  const FpEnvGuard guard;
  const Codes decoder(*codes.format);
  alignas(64) float panel[kSmallMPiece * kCols];
  const auto* a = reinterpret_cast<const float*>(job.a);
  RowsAhead ahead(codes, codes.n * Codes::kBits / 8);
  for (std::int64_t k = 0; k < codes.n; k += kSmallMPiece, a += kSmallMPiece * kSmallMRows) {
    const std::int64_t end = std::min(codes.n, k + kSmallMPiece);
    for (int first = 0; first < kCols; first += L::kLanes)
      pack_some_rows<L>(decoder, codes, first, k, end, panel, ahead, L::kLanes * L::kLanes);
    multiply_small_m<L>({.a = a,
                         .b = panel,
                         .depth = end - k,
                         .sums = job.sums,
                         .pitch = job.pitch,
                         .overwrites = job.overwrites && k == 0,
                         .ahead = &ahead,
                         .asked = kCols * kStride * Codes::kBits / 8 * 3 / 4},
                        job.rows);
  }
}

template <typename L>
MultiplyCodes choose_small_m_codes(const PackedCodes& codes) {
  MultiplyCodes chosen = nullptr;
  with_codes_of<L>(codes, [&]<typename Codes>() { chosen = small_m_codes<L, Codes>; });
  return chosen;
}

template <typename L>
MultiplyCodes choose_small_m_values(DType dtype) {
  if (dtype == DType::f32) return small_m_codes<L, F32Values<L>>;
  return dtype == DType::bf16 ? small_m_codes<L, Bf16Values<L>> : nullptr;
}

// GemmMethod::interleave of panels of A, which are whole vectors wide.
template <typename L>
void interleave_rows(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) {
  const std::uint8_t* from[kSmallMRows];
  for (int i = 0; i < count; ++i) from[i] = reinterpret_cast<const std::uint8_t*>(rows[i]);
  PackJob job{};
  job.rows = from;
  job.count = count;
  job.n = job.run = words;
  RowsAhead none(job, words);
  for (int first = 0; first < count; first += L::kLanes)
    pack_some_rows<L>(F32Values<L>(e4m3fn), job, first, 0, words, reinterpret_cast<float*>(panel),
                      none, 0);
}

// GemmMethod::small_m.
template <typename L>
constexpr GemmMethod small_m_method() {
  return {.name = "f32 FMA, small M",
          .packed_type = PackedType::f32,
          .tile = {.rows = kSmallMRows, .cols = 2 * L::kLanes, .step = 1, .run = small_m_tile<L>},
          .dot = f32_dot<L>,
          .interleave = interleave_rows<L>,
          .kc = kMaxKc,
          .pack_codes = choose_pack_codes<L>,
          .multiply_codes = choose_small_m_codes<L>,
          .multiply_values = choose_small_m_values<L>,
          .multiply_rows = kSmallMRows};
}

}  // namespace
}  // namespace octavo::cpu
