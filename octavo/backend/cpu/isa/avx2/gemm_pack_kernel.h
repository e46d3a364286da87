// Codes to f32 panels over lanes, decoded and scaled in registers. Words of four bytes of as many
// rows as a vector has lanes are transposed before they are decoded, while they are a quarter of
// the size, of four bits an eighth: a vector then has one element of each row, side by side as in
// the panel.
#pragma once

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"

namespace octavo::cpu {
namespace {

// As many bytes of a row as a vector has, those that are there; zeros beyond.
template <typename L>
[[gnu::always_inline]] inline typename L::Bits load_row(const std::uint8_t* from,
                                                        std::int64_t left) {
  constexpr std::int64_t kBytes = 4 * L::kLanes;
  if (left >= kBytes) return L::load_words(from);
  alignas(64) std::uint8_t staged[kBytes] = {};
  std::memcpy(staged, from, static_cast<std::size_t>(left));
  return L::load_words(staged);
}

// The lowest code of each word: four bits by a table, eight by arithmetic.
template <typename L>
struct NibbleCodes {
  static constexpr int kBits = 4;
  typename L::Bits table;

  explicit NibbleCodes(const Format& format) {
    alignas(64) float values[16];
    for (std::uint32_t code = 0; code < 16; ++code)
      values[code] = static_cast<float>(decode(format, code));
    table = L::nibble_table(values);
  }
  [[gnu::always_inline]] typename L::Bits operator()(typename L::Bits words) const {
    return L::nibble_value(table, words);
  }
};
template <typename L, Specials kSpecials>
struct ByteCodes {
  static constexpr int kBits = 8;
  DecodeConstants<L> constants;
  typename L::Bits mask;

  explicit ByteCodes(const Format& format)
      : constants(format), mask(L::splat(format.code_mask())) {}
  [[gnu::always_inline]] typename L::Bits operator()(typename L::Bits words) const {
    return decode_lanes<L, kSpecials>(constants, L::band(words, mask));
  }
};

// Some of the panel's rows: as many as a vector has lanes, from `first` on.
template <typename L, typename Codes>
[[gnu::always_inline]] inline void pack_some_rows(const Codes& codes, const PackJob& job,
                                                  int first) {
  using Bits = typename L::Bits;
  constexpr int kBits = Codes::kBits, kCodes = 32 / kBits;  // of a code; codes in a word
  constexpr int kLanes = L::kLanes;
  const int there = std::min(kLanes, job.count - first);
  const std::uint8_t* const* rows = job.rows + first;
  // Rows of the next panel, where they follow. As numbers: rows beyond the edge are elsewhere.
  const auto address = [](const std::uint8_t* row) {
    return reinterpret_cast<std::uintptr_t>(row);
  };
  const std::uintptr_t next = job.count > 1 ? (address(job.rows[1]) - address(job.rows[0])) *
                                                  static_cast<std::uintptr_t>(job.count)
                                            : 0;
  const std::int64_t bytes = job.n * kBits / 8;
  auto* to = reinterpret_cast<float*>(job.panel) + first;
  float* const last = to + (job.n - 1) * job.count;
  const float* scales = job.scales != nullptr ? job.scales + first : nullptr;
  std::int64_t run_left = job.run;
  for (std::int64_t byte = 0; byte < bytes; byte += 4 * kLanes) {
    Bits words[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      const std::uint8_t* const row = rows[i < there ? i : 0] + byte;
      words[i] = load_row<L>(row, bytes - byte);
      __builtin_prefetch(reinterpret_cast<const void*>(address(row) + next), 0, 2);
    }
    L::transpose(words);
    const auto count = static_cast<int>(std::min<std::int64_t>(kLanes, (bytes - byte) / 4));
    for (int w = 0; w < count; ++w) {
      const Bits scale = scales != nullptr ? L::load_words(scales) : L::splat(0x3F800000u);
#pragma GCC unroll 8
      for (int j = 0; j < kCodes; ++j, to += job.count) {
        const Bits value = L::fmul(codes(L::shift_right(words[w], kBits * j)), scale);
        // Lanes beyond the panel's rows are overwritten by what follows. That the panel has no more
        // rows than lanes then, or a multiple of them, is a condition of this kernel.
        if (there == kLanes || to != last) {
          L::store_words(value, to);
        } else {
          alignas(64) float staged[kLanes];
          L::store_words(value, staged);
          std::memcpy(to, staged, static_cast<std::size_t>(there) * sizeof(float));
        }
      }
      run_left -= kCodes;
      if (run_left > 0 || scales == nullptr) continue;
      run_left = job.run;
      scales += job.count;
    }
  }
}

template <typename L, typename Codes>
void pack_f32_codes(const Format& format, const PackJob& job) {
  const FpEnvGuard guard;
  const Codes codes(format);
  for (int first = 0; first < job.count; first += L::kLanes) pack_some_rows<L>(codes, job, first);
}

template <typename L>
PackCodes choose_pack_codes(const PackedCodes& codes) {
  if (codes.in_panels || !lanes_decode(codes.format)) return nullptr;
  const Specials specials = specials_of(codes.format);
  if (codes.nibbles)
    return specials == Specials::none ? pack_f32_codes<L, NibbleCodes<L>> : nullptr;
  switch (specials) {
    case Specials::none:
      return pack_f32_codes<L, ByteCodes<L, Specials::none>>;
    case Specials::nan_on_top:
      return pack_f32_codes<L, ByteCodes<L, Specials::nan_on_top>>;
    case Specials::any:
      break;
  }
  return pack_f32_codes<L, ByteCodes<L, Specials::any>>;
}

}  // namespace
}  // namespace octavo::cpu
