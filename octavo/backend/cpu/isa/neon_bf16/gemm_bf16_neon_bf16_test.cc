// The microkernel in assembly is the compiler's, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

constexpr int kRows = 8, kCols = 12, kStep = 4;

// Any bits but NaN: subnormals, infinities and values whose products overflow included.
std::vector<std::uint16_t> panel_of(std::int64_t count, bool tame, std::mt19937& random) {
  std::vector<std::uint16_t> panel;
  for (std::int64_t i = 0; i < count; ++i) {
    auto bits = static_cast<std::uint16_t>(random());
    if (tame) bits = static_cast<std::uint16_t>((bits & 0x81FFu) | 0x3E00u);
    if ((bits & 0x7F80) == 0x7F80) bits &= 0xFF80;
    panel.push_back(bits);
  }
  return panel;
}

std::vector<float> numbers(std::int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> any(-2.0F, 2.0F);
  std::vector<float> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(any(random));
  return made;
}

TEST(GemmBf16Neon, TheTileInAssemblyIsTheCompiledOne) {
  if (!cpu_features().bf16) GTEST_SKIP() << "this CPU has no bf16 matrix products";
  std::mt19937 random(11);
  constexpr std::int64_t kPitch = 20;
  for (const std::int64_t run : {4, 8, 12, 16, 36, 128, 1024})
    for (const std::int64_t runs : {1, 3})
      for (const bool tame : {false, true})
        for (const bool scaled : {false, true})
          for (const bool overwrites : {false, true}) {
            const auto a = panel_of(run * runs * kRows, tame, random),
                       b = panel_of(run * runs * kCols, tame, random);
            const auto a_scale = numbers(runs * kRows, random),
                       b_scale = numbers(runs * kCols, random);
            std::vector<float> sums = numbers(kRows * kPitch, random), expected = sums;
            if (overwrites)
              for (int r = 0; r < kRows; ++r)
                for (int c = 0; c < kCols; ++c)
                  expected[static_cast<std::size_t>(r * kPitch + c)] = 0.0F;
            MicrokernelJob job{.a = reinterpret_cast<const std::byte*>(a.data()),
                               .b = reinterpret_cast<const std::byte*>(b.data()),
                               .run = run,
                               .runs = runs,
                               .a_scale = scaled ? a_scale.data() : nullptr,
                               .b_scale = scaled ? b_scale.data() : nullptr,
                               .sums = sums.data(),
                               .pitch = kPitch,
                               .overwrites = overwrites};
            neon_bf16_tile(job);
            job.sums = expected.data();
            neon_bf16_tile_compiled(job);
            for (std::size_t i = 0; i < sums.size(); ++i)
              // A sum of -0 replaces sums and is added to +0: the one difference that there may be.
              ASSERT_TRUE(std::bit_cast<std::uint32_t>(sums[i]) ==
                              std::bit_cast<std::uint32_t>(expected[i]) ||
                          (overwrites && sums[i] == 0.0F && expected[i] == 0.0F))
                  << "run " << run << " runs " << runs << " at " << i << ": " << sums[i] << " and "
                  << expected[i];
          }
}

}  // namespace
}  // namespace octavo::cpu
