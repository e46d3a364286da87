#include "oblivious_control.h"

#include <array>

namespace octavo::oblivious {
namespace {

// A compiler may turn a branch into a conditional move, but not around this.
inline void fence() { asm volatile("" ::: "memory"); }

constexpr std::array<std::uint8_t, 256> make_table() {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::uint8_t>(i * 7);
  return table;
}
constexpr std::array<std::uint8_t, 256> kTable = make_table();

}  // namespace

void branch_on_value(std::span<const std::uint32_t> input, std::uint8_t* output) {
  for (const std::uint32_t value : input) {
    if (value > 0x7F800000u) {
      fence();
      *output++ = 1;
    } else {
      fence();
      *output++ = static_cast<std::uint8_t>(value >> 24);
    }
  }
}

void look_up_value(std::span<const std::uint32_t> input, std::uint8_t* output) {
  for (const std::uint32_t value : input) *output++ = kTable[value & 255];
}

void stop_at_value(std::span<const std::uint32_t> input, std::uint8_t* output) {
  for (const std::uint32_t value : input) {
    std::uint8_t steps = 0;
    for (std::uint32_t rest = value; rest != 0; rest >>= 1) {
      fence();
      ++steps;
    }
    *output++ = steps;
  }
}

void select_by_mask(std::span<const std::uint32_t> input, std::uint8_t* output) {
  for (const std::uint32_t value : input) {
    const std::uint32_t is_large = 0u - (value >> 31);
    *output++ = static_cast<std::uint8_t>((is_large & 1u) | (~is_large & (value >> 24)));
  }
}

}  // namespace octavo::oblivious
