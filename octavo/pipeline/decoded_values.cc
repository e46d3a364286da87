// Inf in decoded weights, found by bits.
#include <span>

#include "octavo/base/error.h"
#include "octavo/pipeline/decoded_values_internal.h"

namespace octavo {
namespace {

// `inf` without its sign; what is one less is the largest finite value.
template <typename Word>
void settle(std::span<Word> words, Word inf, Word sign, std::int64_t cols, std::string_view type,
            std::string_view weight, std::int64_t first_row, bool clamp) {
  bool any = false;
  for (const Word word : words) any |= static_cast<Word>(word & ~sign) == inf;
  if (!any) return;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (static_cast<Word>(words[i] & ~sign) != inf) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (!clamp)
      fail(ErrorCode::invalid_argument, "dequantize", "tensor '", shown(weight, 160),
           "' has a value in row ", first_row + at / cols, ", column ", at % cols,
           " that is larger than ", type,
           " can hold; take a wider type (--dtype bf16), or its largest value (--nonfinite clamp)");
    words[i] = static_cast<Word>(static_cast<Word>(words[i] & sign) | static_cast<Word>(inf - 1));
  }
}

}  // namespace

void settle_overflow(const Tensor& values, std::string_view weight, std::int64_t first_row,
                     bool clamp) {
  const Shape& shape = values.shape();
  const std::int64_t cols = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
  const std::string_view type = dtype_name(values.view().dtype);
  switch (values.view().dtype) {
    case DType::f16:
      return settle<std::uint16_t>(values.span<std::uint16_t>(), 0x7C00, 0x8000, cols, type, weight,
                                   first_row, clamp);
    case DType::bf16:
      return settle<std::uint16_t>(values.span<std::uint16_t>(), 0x7F80, 0x8000, cols, type, weight,
                                   first_row, clamp);
    case DType::f32:
      return settle<std::uint32_t>(values.span<std::uint32_t>(), 0x7F800000, 0x80000000, cols, type,
                                   weight, first_row, clamp);
    default:
      return;
  }
}

}  // namespace octavo
