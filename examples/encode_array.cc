// Single precision values to E4M3 and back, and the error.
#include <octavo/octavo.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> values{1.0f, 2.0f, 3.0f, 0.1f, 255.0f, 1000.0f, 1e-6f};
  std::vector<std::uint8_t> codes(values.size());
  std::vector<float> back(values.size());

  // Nothing is hidden: the policy says which neighbour a value goes to and what happens beyond the
  // range; the counts say how often that happened.
  octavo::Counts counts;
  octavo::encode(
      values, codes, octavo::e4m3fn,
      {.rounding = octavo::Rounding::nearest_even, .overflow = octavo::Overflow::saturate},
      {.counts = &counts});
  octavo::decode(codes, octavo::e4m3fn, back);

  for (std::size_t i = 0; i < values.size(); ++i) {
    std::printf("%10g -> 0x%02X -> %g\n", values[i], codes[i], back[i]);
  }
  std::printf("saturated %lld, flushed to zero %lld\n", static_cast<long long>(counts.saturated),
              static_cast<long long>(counts.flushed));
  return counts.saturated == 1 && counts.flushed == 1 ? 0 : 1;
}
