// Values by exponent, and codes, of the rows that are counted.
#include "octavo/report/band_measuring_internal.h"

namespace octavo {

// At most 256 codes, as for all of the fast way.
void BandMeasuring::count_values(std::int64_t row, std::int64_t col, std::int64_t at,
                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = value(at + i);
    ++exponents_[static_cast<std::size_t>(i) % 2][exponent_field(x)];
    out_.zeros += x == 0.0F;
  }
  count_results(row, col, count, true);
}

void BandMeasuring::count_results(std::int64_t row, std::int64_t col, std::int64_t count,
                                  bool and_codes) {
  const View& codes = job_.copy->codes.view();
  const std::byte* const from = code_address(row, col);
  const int bits = codes.format.bits();
  const std::uint32_t mask = codes.format.code_mask();
  double scale = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bit = codes.packed ? i * bits : i * 8;
    auto word = std::to_integer<std::uint32_t>(from[bit / 8]);
    if (bit % 8 + bits > 8) word |= std::to_integer<std::uint32_t>(from[bit / 8 + 1]) << 8;
    word = word >> bit % 8 & mask;
    if (and_codes) ++counted_[static_cast<std::size_t>(i) % 2][word];
    if (i == 0 || (col + i) % job_.tile_cols == 0) scale = scale_at(row, col + i);
    const auto y = static_cast<float>(job_.decoded[word] * scale);
    ++out_.results[exponent_field(y)];
    out_.result_zeros += y == 0.0F;
  }
}

void BandMeasuring::take_histograms() {
  for (const auto& table : exponents_)
    for (std::size_t i = 0; i < out_.values.size(); ++i) out_.values[i] += table[i];
  for (const auto& table : counted_)
    for (std::size_t i = 0; i < out_.codes.size(); ++i) out_.codes[i] += table[i];
}

}  // namespace octavo
