// Values by exponent, and codes, of the rows that are counted.
#include <array>

#include "octavo/report/band_measuring_internal.h"

namespace octavo {
namespace {

// Neighbours often fall into the same place; in tables of their own they need not wait for each
// other.
constexpr std::size_t kTables = 4;
using Tables = std::array<std::array<std::uint32_t, 256>, kTables>;

template <typename Counts>
void add_tables(const Tables& tables, Counts& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i)
    for (const auto& table : tables) counts[i] += table[i];
}

}  // namespace

// At most 256 codes, as for all of the fast way.
void BandMeasuring::count_values(std::int64_t row, std::int64_t col, std::int64_t at,
                                 std::int64_t count) {
  Tables exponents{}, counted{};
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = value(at + i);
    ++exponents[static_cast<std::size_t>(i) % kTables][exponent_field(x)];
    out_.zeros += x == 0.0F;
  }
  const View& codes = job_.copy->codes.view();
  const std::byte* const from = code_address(row, col);
  const int bits = codes.format.bits();
  const std::uint32_t mask = codes.format.code_mask();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bit = codes.packed ? i * bits : i * 8;
    auto word = std::to_integer<std::uint32_t>(from[bit / 8]);
    if (bit % 8 + bits > 8) word |= std::to_integer<std::uint32_t>(from[bit / 8 + 1]) << 8;
    ++counted[static_cast<std::size_t>(i) % kTables][word >> bit % 8 & mask];
  }
  add_tables(exponents, out_.values);
  add_tables(counted, out_.codes);
}

}  // namespace octavo
