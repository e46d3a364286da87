// A KV cache in pages is the cache without them; and what it knows of its values for `auto`.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

Tensor drawn(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor tensor = Tensor::values(shape, DType::f32);
  for (float& number : tensor.span<float>()) number = normal(random);
  return tensor;
}

// The kernels' order of sums may follow the memory; reference's does not.
Tensor attended(const KvCache& cache, const Tensor& q, AttentionRung rung) {
  return cache.attend(q, {.rung = rung, .backend = &reference_backend()});
}

TEST(KvCachePages, AreTheCacheWithoutThem) {
  for (const char* name : {"fp8-channel", "mxfp8"})
    for (const std::int64_t page : {1, 4, 16}) {
      KvCache flat(3, 2, 32, 64, {.k = preset(name), .v = preset(name), .capacity = 4});
      KvCache paged(3, 2, 32, 64,
                    {.k = preset(name), .v = preset(name), .capacity = 2, .page_tokens = page});
      for (unsigned step = 0; step < 6; ++step) {
        const Tensor k = drawn({3, 2, 7, 32}, 2 * step), v = drawn({3, 2, 7, 64}, 2 * step + 1);
        const std::int64_t counts[] = {7, step % 2, 3};
        flat.append(k.view(), v.view(), counts);
        paged.append(k.view(), v.view(), counts);
        if (step == 3) {
          flat.truncate(0, 5);
          paged.truncate(0, 5);
        }
      }
      ASSERT_TRUE(std::ranges::equal(flat.lengths(), paged.lengths()));
      const Tensor q = drawn({3, 4, 2, 32}, 99);
      for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::strict})
        EXPECT_TRUE(
            std::ranges::equal(attended(flat, q, rung).bytes(), attended(paged, q, rung).bytes()))
            << name << ", pages of " << page << ", " << name_of(rung);
      EXPECT_TRUE(std::ranges::equal(flat.key_tokens().rowwise.codes.bytes(),
                                     paged.key_tokens().rowwise.codes.bytes()));
      EXPECT_TRUE(std::ranges::equal(flat.value_tokens().rowwise.scales.bytes(),
                                     paged.value_tokens().rowwise.scales.bytes()));
      const KvCache copy = paged;
      paged.clear();
      EXPECT_TRUE(std::ranges::equal(attended(flat, q, AttentionRung::bf16).bytes(),
                                     attended(copy, q, AttentionRung::bf16).bytes()));
    }
}

TEST(KvCachePages, GoBackToThePool) {
  KvCache cache(2, 1, 16, 16, {.capacity = 8, .page_tokens = 4});
  const std::int64_t before = cache.capacity();
  EXPECT_EQ(before, 16);
  const Tensor k = drawn({2, 1, 12, 16}, 1);
  const std::int64_t first[] = {12, 4}, second[] = {4, 12};
  cache.append(k.view(), k.view(), first);
  EXPECT_EQ(cache.capacity(), before);  // one batch has what the other does not need
  cache.truncate(0, 0);
  cache.truncate(1, 0);
  cache.append(k.view(), k.view(), second);
  EXPECT_EQ(cache.capacity(), before);
  cache.append(k.view(), k.view(), first);
  EXPECT_GT(cache.capacity(), before);
}

// A captured graph counts on them.
TEST(KvCachePages, ReservedOnesStay) {
  KvCache cache(2, 1, 16, 16, {.capacity = 8, .page_tokens = 4});
  cache.reserve(8);  // all four pages, two for each batch
  const Tensor k = drawn({2, 1, 12, 16}, 1);
  const std::int64_t first[] = {5, 1}, second[] = {0, 12};
  cache.append(k.view(), k.view(), first);
  cache.truncate(0, 0);
  cache.truncate(1, 0);
  EXPECT_EQ(cache.capacity(), 16);
  cache.append(k.view(), k.view(), second);
  EXPECT_GT(cache.capacity(), 16) << "the page came from the other batch";
  cache.clear();
  EXPECT_EQ(cache.lengths()[1], 0);
}

TEST(KvCachePages, MoreThanThereCanBeAreRefused) {
  KvCache cache(2, 1, 16, 16, {.capacity = 8, .page_tokens = 4});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(cache.reserve(kMost), Error);
  EXPECT_EQ(cache.capacity(), 16);
  EXPECT_THROW(KvCache(8, 1, 16, 16, {.capacity = kMost, .page_tokens = 1}), Error);
}

// What the cache adds up token by token is what statistics of all of V are.
TEST(KvStatistics, AreThoseOfTheTokens) {
  const Tensor k = drawn({2, 2, 50, 16}, 1);
  Tensor v = drawn({2, 2, 50, 32}, 2);
  KvCache cache(2, 2, 16, 32);
  const std::int64_t counts[] = {50, 20};
  cache.append(k.view(), v.view(), counts);
  cache.truncate(0, 37);
  const std::int64_t lengths[] = {37, 20};
  const Tensor kept = dequantize(quantize(v.view(), preset("fp8-channel")));
  std::vector<AttentionStatistics> want(4);
  const View& view = kept.view();
  const Matrix rows{.data = view.data,
                    .dtype = DType::f32,
                    .rows = 50,
                    .cols = 32,
                    .row_pitch = view.strides[2],
                    .col_stride = view.strides[3]};
  AttentionStatisticsJob job{.batches = 2,
                             .heads = 2,
                             .of = {.batch_pitch = view.strides[0], .head_pitch = view.strides[1]},
                             .lengths = lengths,
                             .rows_per_range = 50,
                             .result = want.data()};
  job.of.first.values = rows;
  reference_backend().attention_statistics({}, job);
  const std::vector<AttentionStatistics> got = cache.value_statistics();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Sums in another order, and after truncate less what was added.
    EXPECT_NEAR(got[i].mean_squares, want[i].mean_squares, 1e-12 * want[i].mean_squares);
    EXPECT_NEAR(got[i].channel_squares, want[i].channel_squares, 1e-12 * want[i].channel_squares);
    EXPECT_GE(got[i].amax, want[i].amax);
    EXPECT_GE(got[i].row_squares, want[i].row_squares * (1.0 - 1e-12));
  }
  EXPECT_EQ(got[2].amax, want[2].amax);
}

// Sums that lost all digits to huge tokens are found again when those are gone.
TEST(KvStatistics, HugeTokensThatAreDroppedLeaveNothing) {
  Tensor v = drawn({1, 1, 20, 16}, 2);
  for (std::size_t i = 15 * 16; i < 20 * 16; ++i) v.span<float>()[i] *= 1e12F;
  KvCache cache(1, 1, 16, 16, {.values = DType::f32}), wanted(1, 1, 16, 16, {.values = DType::f32});
  cache.append(v.view(), v.view());
  cache.truncate(0, 15);
  const std::int64_t counts[] = {15};
  wanted.append(v.view(), v.view(), counts);
  const AttentionStatistics got = cache.value_statistics()[0], want = wanted.value_statistics()[0];
  EXPECT_EQ(got.mean_squares, want.mean_squares);
  EXPECT_EQ(got.channel_squares, want.channel_squares);
  EXPECT_EQ(got.amax, want.amax);
}

TEST(KvStatistics, NaNStaysUntilTheCacheIsCleared) {
  Tensor v = drawn({1, 1, 2, 16}, 2);
  v.span<float>()[20] = NAN;
  KvCache cache(1, 1, 16, 16, {.values = DType::f32});
  cache.append(v.view(), v.view());
  cache.truncate(0, 1);
  EXPECT_TRUE(std::isnan(cache.value_statistics()[0].amax));
  EXPECT_TRUE(std::isnan(cache.value_statistics()[0].mean_squares));
  cache.clear();
  EXPECT_EQ(cache.value_statistics()[0].amax, 0.0);
}

}  // namespace
}  // namespace octavo
