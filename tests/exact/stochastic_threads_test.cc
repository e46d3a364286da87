// The number of threads changes nothing: not the codes, not the counts, not the draws of stochastic
// rounding.
#include <random>

#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

std::vector<float> wide_values(std::int64_t count) {
  std::mt19937 random(3);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())),
                       static_cast<int>(random() % 40) - 50);
  return values;
}

TEST(ThreadCount, DoesNotChangeABit) {
  // Large enough that every backend uses all the threads it is given, with ends that fit nothing.
  constexpr std::int64_t kRows = 5, kCols = 100003;
  std::vector<float> values = wide_values(kRows * kCols);
  const View source = as_read_only(value_view(values.data(), DType::f32, {kRows, kCols}));
  for (const BackendInfo& backend : every_backend()) {
    if (backend.kernels == &reference_backend() || is_staged(backend)) continue;  // single-threaded
    for (const char* name : {"e4m3fn", "e3m2fn", "e8m0fnu"}) {
      const Format format = parse_format(name);
      const bool packed = format.bits() < 8;
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
        const EncodePolicy policy = policy_of(rounding, Overflow::saturate);
        std::vector<std::byte> first, first_decoded;
        Counts first_counts;
        for (const int threads : {1, 2, 3, 7}) {
          Counts counts;
          const Tensor codes =
              encode(source, format, policy,
                     {.threads = threads, .counts = &counts, .backend = backend.kernels}, packed);
          const std::vector<std::byte> bytes(codes.bytes().begin(), codes.bytes().end());
          if (threads == 1) {
            first = bytes;
            first_counts = counts;
          }
          ASSERT_TRUE(bytes == first) << backend.name << " " << name << " " << name_of(rounding)
                                      << " with " << threads << " threads";
          ASSERT_EQ(counts, first_counts)
              << backend.name << " " << name << " with " << threads << " threads";
          const Tensor back =
              decode(codes.view(), DType::bf16, {.threads = threads, .backend = backend.kernels});
          const std::vector<std::byte> decoded(back.bytes().begin(), back.bytes().end());
          if (threads == 1) first_decoded = decoded;
          ASSERT_TRUE(decoded == first_decoded)
              << backend.name << " " << name << " with " << threads << " threads";
        }
      }
    }
  }
}

// And all backends draw the same bits as the first.
TEST(ThreadCount, BackendsAgreeOnStochasticBits) {
  constexpr std::int64_t kCount = 300001;
  std::vector<float> values = wide_values(kCount);
  for (const int bits : {1, 5, 8, 9, 16}) {
    EncodePolicy policy = policy_of(Rounding::stochastic, Overflow::ieee);
    policy.stochastic_bits = bits;
    std::vector<std::uint8_t> first;
    for (const BackendInfo& backend : every_backend()) {
      std::vector<std::uint8_t> codes(kCount);
      encode(std::span<const float>(values), std::span(codes), e5m2, policy,
             {.threads = 2, .backend = backend.kernels});
      if (first.empty()) first = codes;
      ASSERT_TRUE(codes == first) << backend.name << " " << bits;
    }
  }
}

}  // namespace
}  // namespace exact
