// Packing of e4m3 Q, K and V into panels of f16 without a step through f32: a code, shifted, is an
// f16 of 2^-8 of its value, and its scale is one product in f16. That rounds the scale itself to
// eleven bits, so all products of a row by at most 2^-12 of themselves, beside the rounding of
// packed elements. And of e4m3 and bf16 into panels of bf16, in which they are exact.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_pack.h"

namespace octavo::cpu {

inline constexpr float kCodeFactor = 256.0F;  // a code's value over its f16

// Packing kernels of an instruction set. Sizes are multiples of 16.
struct CodeKernels {
  // The sum of squares of n codes as f16; negative where one is NaN.
  float (*row_squares)(const std::byte* codes, std::int64_t n);
  // `count` rows, a multiple of eight, as a panel [n][count] of f16, each times its factor. Returns
  // false where one is NaN: then the caller packs through f32.
  bool (*interleave)(const std::byte* const* rows, const float* factors, int count, std::int64_t n,
                     std::uint16_t* panel);
  // Rows of V: [n / 8][panel] of [key][8], times the factor of the row or of the channel, one of
  // which is given. Returns false as above.
  struct Values {
    const std::byte* rows;
    std::int64_t pitch, keys, size;
    const float *row_factors, *channel_factors;
    std::int64_t panel;  // bytes
    std::byte* to;
  };
  bool (*spread)(const Values& values);
};

// Packing kernels of an instruction set for bf16 panels, in shapes of its own microkernels. The
// first three read e4m3 codes or bf16 in place, and take them as they are, in a unit of 1: they
// return false, and the caller packs through f32, where one is not finite or the largest is too far
// from 1 (kPlainRange).
struct PanelKernels {
  enum class Source : std::uint8_t { e4m3, bf16 };
  struct Rows {
    Source source;
    const std::byte* const* rows;  // null: zeros
    int count;
    std::int64_t n, padded;  // zeros from n on
    std::byte* panel;
  };
  bool (*keys)(const Rows&);
  bool (*queries)(const Rows&);
  // Rows of V as panels of channels; zeros for keys and channels beyond.
  struct Values {
    Source source;
    const std::byte* rows;
    std::int64_t pitch, keys, tile_keys, n, padded;
    const std::int16_t* exponents;  // [keys]: powers of two of its elements; null: all 0
    std::int64_t panel;             // bytes
    std::byte* to;
  };
  bool (*values)(const Values&);
  // The same from [keys][pitch] of f32 that are exact in bf16, times `inverse`, a power of two.
  void (*narrow_values)(const float* rows, std::int64_t pitch, std::int64_t keys,
                        std::int64_t padded, float inverse, std::int64_t panel, std::byte* to);
};
// Powers of two that bf16 in place lies within, or it is zero: then neither are products of two
// beyond f32, nor is what TDPBF16PS and BFMMLA flush to zero above 2^-96 of the largest.
inline constexpr int kPlainRange = 30;

// Rows of an operand that these kernels can pack.
class CodedRows {
 public:
  enum class RowsOf : std::uint8_t { keys, queries };

  CodedRows(const Isa& isa, const AttentionMethod& method, const GemmOperand& operand);

  // One scale for a row, or one for a channel and all rows.
  [[nodiscard]] bool by_row() const { return by_row_; }
  [[nodiscard]] bool by_channel() const { return by_channel_; }

  // These return false where the caller must pack through f32, because something is not finite.
  // Rows below 0 are zeros; elements are multiplied by `factor`, and *unit is the unit of the
  // panel's elements; bf16 panels have one for each row.
  bool panel(RowsOf of, const std::int64_t* rows, int count, float factor, std::byte* to,
             float* unit) const;
  bool values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
              std::int64_t count, std::byte* memory) const;

  // The largest sum of squares of rows [first, last), without those that have a NaN.
  [[nodiscard]] double largest_row_squares(std::int64_t first, std::int64_t last) const;

 private:
  [[nodiscard]] const std::byte* codes(std::int64_t row) const;
  bool plain_panel(RowsOf of, const std::int64_t* rows, int count, float factor, std::byte* to,
                   float* units) const;
  bool plain_values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
                    std::int64_t count, std::byte* memory) const;

  const GemmOperand& operand_;
  const CodeKernels* kernels_ = nullptr;
  const PanelKernels* panels_ = nullptr;
  PanelKernels::Source source_ = PanelKernels::Source::e4m3;
  bool takes_key_factors_ = false;
  std::int64_t step_ = 1;  // panels are padded to a multiple of this
  bool by_row_ = false, by_channel_ = false;
  AttentionRows scales_;
};

}  // namespace octavo::cpu
