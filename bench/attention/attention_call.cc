// One attention call on one thread: bench_attention_call RUNG HEADS QUERIES KEYS SIZE. Heads share
// one head of keys. Inputs are views of one array, which costs the same whatever their shape.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "octavo/octavo.h"

namespace {

constexpr std::int64_t kNumbers = 1 << 18, kApart = 4096;  // from Q to K to V

// bf16 between -2 and 2.
std::vector<std::uint16_t> drawn() {
  std::vector<std::uint16_t> numbers(kNumbers + 2 * kApart);
  std::uint32_t state = 1;
  for (std::uint16_t& number : numbers) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30F;
    number = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  return numbers;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: %s RUNG HEADS QUERIES KEYS SIZE\n", arguments[0]);
    return 2;
  }
  try {
    const auto number = [&](int at) { return std::strtoll(arguments[at], nullptr, 10); };
    const std::int64_t heads = number(2), queries = number(3), keys = number(4), size = number(5);
    const octavo::Shape rows{1, heads, queries, size}, shared{1, 1, keys, size};
    if (heads < 1 || queries < 1 || keys < 1 || size < 1 || heads * queries * size > kNumbers ||
        keys * size > kNumbers) {
      std::fprintf(stderr, "sizes must be positive, and tensors at most 2^18 numbers\n");
      return 2;
    }
    std::vector<std::uint16_t> numbers = drawn();
    const auto view = [&](std::int64_t from, const octavo::Shape& shape) {
      return octavo::value_view(numbers.data() + from, octavo::DType::bf16, shape);
    };
    const octavo::Tensor out =
        octavo::attention(view(0, rows), view(kApart, shared), view(2 * kApart, shared),
                          {.rung = octavo::parse_attention_rung(arguments[1]), .threads = 1});
    return out.bytes().empty() ? 1 : 0;
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
