// Codes to f32 panels over lanes, decoded and scaled in registers. Words of four bytes of as many
// rows as a vector has lanes are transposed before they are decoded, while they are a quarter of
// the size, of four bits an eighth: a vector then has one element of each row, side by side as in
// the panel.
#pragma once

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx2/panel_codes.h"

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

// Asks for the rows of the next panel, where they follow: a row after the other, because memory is
// faster at neighbouring lines than at those of one column of rows.
class RowsAhead {
 public:
  RowsAhead(const PackJob& job, std::int64_t row_bytes)
      : row_bytes_(row_bytes),
        pitch_(address(job.rows[job.count > 1 ? 1 : 0]) - address(job.rows[0])),
        row_(address(job.rows[0]) + pitch_ * static_cast<std::uintptr_t>(job.count)) {}

  // As many bytes more, whole lines of them.
  [[gnu::always_inline]] void ask(std::int64_t bytes) {
    constexpr std::int64_t kLine = 64;
    for (wanted_ += bytes; wanted_ >= kLine; wanted_ -= kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(row_ + static_cast<std::uintptr_t>(done_)),
                         0, 2);
      done_ += kLine;
      if (done_ < row_bytes_) continue;
      done_ = 0;
      row_ += pitch_;
    }
  }

 private:
  // As numbers: rows beyond the edge are elsewhere.
  static std::uintptr_t address(const std::uint8_t* row) {
    return reinterpret_cast<std::uintptr_t>(row);
  }
  std::int64_t row_bytes_, done_ = 0, wanted_ = 0;
  std::uintptr_t pitch_, row_;
};

// Elements of K from `begin` to `end` of some of the panel's rows: as many as a vector has lanes,
// from `first` on, or fewer (kWhole). `begin` is a multiple of what a vector of words holds of a
// row. `asked` bytes of what follows are asked for with each vector of words.
template <typename L, bool kWhole, typename Codes>
[[gnu::always_inline]] inline void pack_lanes(const Codes& codes, const PackJob& job, int first,
                                              std::int64_t begin, std::int64_t end, float* panel,
                                              RowsAhead& ahead, std::int64_t asked) {
  using Bits = typename L::Bits;
  constexpr int kBits = Codes::kBits, kCodes = 32 / kBits;  // of a code; codes in a word
  constexpr int kLanes = L::kLanes;
  const int there = kWhole ? kLanes : job.count - first;
  const std::int64_t pitch = job.count, run = job.run;
  const std::uint8_t* const* rows = job.rows + first;
  const std::int64_t bytes = end * kBits / 8;
  auto* to = panel + first;
  float* const last = to + (end - begin - 1) * pitch;
  const float* scales = job.scales != nullptr ? job.scales + begin / run * pitch + first : nullptr;
  std::int64_t run_left = run - begin % run;
  SeenNan<L> seen;
  // Lanes beyond the panel's rows are overwritten by what follows. That the panel has no more rows
  // than lanes then, or a multiple of them, is a condition of this kernel.
  const auto store = [&](Bits value) __attribute__((always_inline)) {
    if (kWhole || to != last) {
      L::store_words(value, to);
    } else {
      alignas(64) float staged[kLanes];
      L::store_words(value, staged);
      std::memcpy(to, staged, static_cast<std::size_t>(there) * sizeof(float));
    }
  };
  for (std::int64_t byte = begin * kBits / 8; byte < bytes; byte += 4 * kLanes) {
    Bits words[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      words[i] = load_row<L>(rows[i < there ? i : 0] + byte, bytes - byte);
    }
    ahead.ask(asked);
    L::transpose(words);
    const auto count = static_cast<int>(std::min<std::int64_t>(kLanes, (bytes - byte) / 4));
    for (int w = 0; w < count; ++w) {
      const Bits scale = scales != nullptr ? L::load_words(scales) : L::splat(0x3F800000u);
      if constexpr (Codes::kFindsNan) seen.look(words[w]);
#pragma GCC unroll 8
      for (int j = 0; j < kCodes; ++j, to += pitch) {
        const Bits value = codes(words[w], j);
        store(Codes::kScaled ? L::fmul(value, scale) : value);
      }
      run_left -= kCodes;
      if (run_left > 0 || scales == nullptr) continue;
      run_left = run;
      scales += pitch;
    }
  }
  if constexpr (Codes::kFindsNan) {
    alignas(64) float staged[kLanes] = {};
    std::memcpy(staged, last, static_cast<std::size_t>(there) * sizeof(float));
    to = last;
    store(L::bor(L::load_words(staged), seen.nan()));
  }
}

template <typename L, typename Codes>
void pack_some_rows(const Codes& codes, const PackJob& job, int first, std::int64_t begin,
                    std::int64_t end, float* panel, RowsAhead& ahead, std::int64_t asked) {
  if (job.count - first >= L::kLanes)
    return pack_lanes<L, true>(codes, job, first, begin, end, panel, ahead, asked);
  pack_lanes<L, false>(codes, job, first, begin, end, panel, ahead, asked);
}

template <typename L, typename Codes>
void pack_f32_codes(const Format& format, const PackJob& job) {
  const FpEnvGuard guard;
  const Codes codes(format);
  RowsAhead ahead(job, job.n * Codes::kBits / 8);
  for (int first = 0; first < job.count; first += L::kLanes)
    pack_some_rows<L>(codes, job, first, 0, job.n, reinterpret_cast<float*>(job.panel), ahead,
                      4 * L::kLanes * L::kLanes);
}

// Calls one.operator()<Codes>() with the decoder of a format; false where there is none.
template <typename L, typename One>
bool with_codes_of(const PackedCodes& codes, const One& one) {
  const Format& format = codes.format;
  if (codes.in_panels) return false;
  if (!codes.nibbles && format.is_byte_integer()) {
    one.template operator()<IntegerCodes<L>>();
  } else if (!lanes_decode(format) || (codes.nibbles && specials_of(format) != Specials::none)) {
    return false;
  } else if (codes.nibbles) {
    one.template operator()<NibbleCodes<L>>();
  } else if (!FiniteCodes<L, false>::decodes(format)) {
    one.template operator()<AnyCodes<L>>();
  } else if (format.nan == Nan::none) {
    one.template operator()<FiniteCodes<L, false>>();
  } else {
    one.template operator()<FiniteCodes<L, true>>();
  }
  return true;
}

template <typename L>
PackCodes choose_pack_codes(const PackedCodes& codes) {
  PackCodes chosen = nullptr;
  with_codes_of<L>(codes, [&]<typename Codes>() { chosen = pack_f32_codes<L, Codes>; });
  return chosen;
}

}  // namespace
}  // namespace octavo::cpu
