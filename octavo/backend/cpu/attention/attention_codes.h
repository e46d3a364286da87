// Packing of e4m3 Q, K and V into panels of f16 without a step through f32: a code, shifted, is an
// f16 of 2^-8 of its value, and its scale is one product in f16. That rounds the scale itself to
// eleven bits, so all products of a row by at most 2^-12 of themselves, beside the rounding of
// packed elements.
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

// Rows of an operand that these kernels can pack.
class CodedRows {
 public:
  CodedRows(const Isa& isa, const AttentionMethod& method, const GemmOperand& operand);

  // One scale for a row, or one for a channel and all rows.
  [[nodiscard]] bool by_row() const { return kernels_ != nullptr && by_row_; }
  [[nodiscard]] bool by_channel() const { return kernels_ != nullptr && by_channel_; }

  // These return false where the caller must pack through f32, because something is not finite.
  // Rows below 0 are zeros; elements are multiplied by `factor`, and *unit is the unit of the
  // panel's elements.
  bool panel(const std::int64_t* rows, int count, float factor, std::byte* to, float* unit) const;
  bool values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
              std::int64_t count, std::byte* memory) const;

  // The largest sum of squares of rows [first, last), without those that have a NaN.
  [[nodiscard]] double largest_row_squares(std::int64_t first, std::int64_t last) const;

 private:
  [[nodiscard]] const std::byte* codes(std::int64_t row) const;

  const GemmOperand& operand_;
  const CodeKernels* kernels_ = nullptr;
  bool by_row_ = false, by_channel_ = false;
  AttentionRows scales_;
};

}  // namespace octavo::cpu
