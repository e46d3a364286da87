// Histograms of a row block: values by exponent, and codes, of the counted rows.
#include <algorithm>

#include "octavo/report/row_block_measuring_internal.h"

namespace octavo {

// At most 256 codes, as in all of the fast path.
void RowBlockMeasuring::count_values(std::int64_t row, std::int64_t col, std::int64_t at,
                                     std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = value(at + i);
    ++exponents_[static_cast<std::size_t>(i) % 2][exponent_field(x)];
    out_.zeros += x == 0.0F;
  }
  count_results(row, col, count, true);
}

void RowBlockMeasuring::count_results(std::int64_t row, std::int64_t col, std::int64_t count,
                                      bool and_codes) {
  // Runs that share a scale.
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = col + done, left = job_.tile_cols - at % job_.tile_cols,
                       size = std::min(left, count - done);
    count_stretch(row, col, done, size, and_codes);
    done += size;
  }
}

// From element `first` of those that begin at `col`, which is at the beginning of a byte.
void RowBlockMeasuring::count_stretch(std::int64_t row, std::int64_t col, std::int64_t first,
                                      std::int64_t count, bool and_codes) {
  const View& codes = job_.copy->codes.view();
  const std::byte* const from = code_address(row, col);
  const double scale = scale_at(row, col + first);
  std::int64_t zeros = 0;
  const auto count_one = [&](std::int64_t i, std::uint32_t code) {
    const auto table = static_cast<std::size_t>(i) % 2;
    if (and_codes) ++counted_[table][code];
    const auto y = static_cast<float>(job_.decoded[code] * scale);
    ++result_exponents_[table][exponent_field(y)];
    zeros += y == 0.0F;
  };
  const std::uint32_t mask = codes.format.code_mask();
  if (!codes.packed) {
    for (std::int64_t i = first; i < first + count; ++i)
      count_one(i, std::to_integer<std::uint32_t>(from[i]) & mask);
  } else {
    const int bits = codes.format.bits();
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t bit = i * bits;
      auto word = std::to_integer<std::uint32_t>(from[bit / 8]);
      if (bit % 8 + bits > 8) word |= std::to_integer<std::uint32_t>(from[bit / 8 + 1]) << 8;
      count_one(i, word >> bit % 8 & mask);
    }
  }
  out_.result_zeros += zeros;
}

void RowBlockMeasuring::take_results() {
  for (const auto& table : result_exponents_)
    for (std::size_t i = 0; i < out_.results.size(); ++i) out_.results[i] += table[i];
}

void RowBlockMeasuring::take_histograms() {
  for (const auto& table : exponents_)
    for (std::size_t i = 0; i < out_.values.size(); ++i) out_.values[i] += table[i];
  for (const auto& table : counted_)
    for (std::size_t i = 0; i < out_.codes.size(); ++i) out_.codes[i] += table[i];
  take_results();
}

}  // namespace octavo
