// Q, K and V in e4m3 on their way into panels of f16, without a stop in f32: the code is an f16,
// 2^-8 of its value, after a shift, and its scale is one product in f16. That rounds the scale
// itself to eleven bits, so all products of a row by at most 2^-12 of themselves, beside the
// rounding of lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_pack.h"

namespace octavo::cpu {

inline constexpr float kCodeFactor = 256.0F;  // a code's value over its f16

// Innermost loops. Sizes are multiples of 16.
struct CodeKernels {
  // The sum of squares of n codes as f16; negative where one is NaN.
  float (*row_squares)(const std::byte* codes, std::int64_t n);
  // `count` rows, a multiple of eight, as a panel [n][count] of f16, each times its factor. False
  // where one is NaN: then the panel is to be made another way.
  bool (*interleave)(const std::byte* const* rows, const float* factors, int count, std::int64_t n,
                     std::uint16_t* panel);
  // Rows of V: [n / 8][panel] of [key][8], times the factor of the row or of the channel, of which
  // one is given. False as above.
  struct Values {
    const std::byte* rows;
    std::int64_t pitch, keys, size;
    const float *row_factors, *channel_factors;
    std::int64_t panel;  // bytes
    std::byte* to;
  };
  bool (*spread)(const Values& values);
};

// An operand that these kernels can take.
class CodedRows {
 public:
  CodedRows(const Isa& isa, const AttentionMethod& method, const GemmOperand& operand);

  // One scale for a row, or one for a channel and all rows.
  [[nodiscard]] bool by_row() const { return kernels_ != nullptr && by_row_; }
  [[nodiscard]] bool by_channel() const { return kernels_ != nullptr && by_channel_; }

  // These return false where it must be done another way, because something is not finite. Rows
  // below 0 are zeros; `factor` is multiplied in, and *unit is what a lane of the panel stands for.
  bool panel(const std::int64_t* rows, int count, float factor, std::byte* to, float* unit) const;
  bool values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
              std::int64_t count, std::byte* memory) const;

  // The largest sum of squares of rows [first, last), those with a NaN left out.
  [[nodiscard]] double largest_row_squares(std::int64_t first, std::int64_t last) const;

 private:
  [[nodiscard]] const std::byte* codes(std::int64_t row) const;

  const GemmOperand& operand_;
  const CodeKernels* kernels_ = nullptr;
  bool by_row_ = false, by_channel_ = false;
  AttentionRows scales_;
};

}  // namespace octavo::cpu
