#include "octavo/nn/kv_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "octavo/base/error.h"
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

// Tokens [first, first + count) of [B, H, S, D].
View tokens_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  View view = tensor.view();
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[2];
  view.shape[2] = count;
  return view;
}

// Token by token or all at once, through growth: what is kept is what quantize makes of the whole,
// and attention is that of the whole.
TEST(KvCache, IsTheWholeSequence) {
  const std::int64_t tokens = 21;
  const Tensor k = drawn({2, 2, tokens, 64}, 1), v = drawn({2, 2, tokens, 32}, 2),
               q = drawn({2, 4, 3, 64}, 3);
  for (const char* name : {"fp8-channel", "mxfp8", "fp8-channel:e5m2"}) {
    KvCache cache(2, 2, 64, 32, {.k = preset(name), .v = preset(name), .capacity = 4});
    cache.append(tokens_of(k, 0, 13), tokens_of(v, 0, 13));
    for (std::int64_t at = 13; at < tokens; ++at)
      cache.append(tokens_of(k, at, 1), tokens_of(v, at, 1));
    EXPECT_EQ(cache.lengths()[0], tokens);
    EXPECT_EQ(cache.lengths()[1], tokens);
    const QuantizedTensor whole_k = quantize(k.view(), preset(name)),
                          whole_v = quantize(v.view(), preset(name));
    for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::strict}) {
      const Tensor want = attention(q, whole_k, whole_v,
                                    {.rung = rung, .mask = {.causal = true, .bottom_right = true}}),
                   got = cache.attend(q, {.rung = rung});
      EXPECT_EQ(got.shape(), (Shape{2, 4, 3, 32}));
      EXPECT_TRUE(std::ranges::equal(got.bytes(), want.bytes())) << name << " " << name_of(rung);
    }
  }
}

TEST(KvCache, BatchesOfDifferentLength) {
  const Tensor k = drawn({2, 1, 6, 16}, 1), v = drawn({2, 1, 6, 16}, 2),
               q = drawn({2, 1, 1, 16}, 3);
  KvCache cache(2, 1, 16, 16);
  const std::int64_t counts[] = {6, 2};
  cache.append(k.view(), v.view(), counts);
  const Tensor got = cache.attend(q);
  const QuantizedTensor all_k = quantize(k.view(), preset("fp8-channel")),
                        all_v = quantize(v.view(), preset("fp8-channel"));
  const Tensor want =
      attention(q, all_k, all_v, {.rung = AttentionRung::bf16, .mask = {.key_lengths = counts}});
  EXPECT_TRUE(std::ranges::equal(got.bytes(), want.bytes()));
  // Forgetting is as if it had not come.
  cache.truncate(0, 2);
  const std::int64_t two[] = {2, 2};
  const Tensor less =
      attention(q, all_k, all_v, {.rung = AttentionRung::bf16, .mask = {.key_lengths = two}});
  EXPECT_TRUE(std::ranges::equal(cache.attend(q).bytes(), less.bytes()));
}

TEST(KvCache, QueriesAreOfTokensThatAreThere) {
  const Tensor k = drawn({2, 1, 3, 16}, 1), q = drawn({2, 1, 3, 16}, 3),
               four = drawn({2, 1, 4, 16}, 4);
  KvCache cache(2, 1, 16, 16);
  const auto message_of = [&](const Tensor& queries) -> std::string {
    try {
      (void)cache.attend(queries);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string why =
      " tokens: queries are its last ones; append the keys and values of theirs first";
  EXPECT_EQ(message_of(q), "[KvCache] got 3 queries, and the longest sequence has 0" + why);
  const std::int64_t counts[] = {3, 1};
  cache.append(k.view(), k.view(), counts);
  EXPECT_EQ(message_of(four), "[KvCache] got 4 queries, and the longest sequence has 3" + why);
  // Rows before the first token of a shorter sequence are zeros, the last one is its token's.
  const Tensor got = cache.attend(q);
  for (std::size_t i = 48; i < 80; ++i) EXPECT_EQ(got.span<float>()[i], 0.0F);
  EXPECT_NE(got.span<float>()[80], 0.0F);
  cache.clear();
  EXPECT_NE(message_of(q), "");
}

// The statistics of `auto` are of the stored tokens, whatever the capacity.
TEST(KvCache, MemoryThatIsNotUsedChangesNoChoice) {
  const Tensor k = drawn({1, 2, 100, 64}, 1), v = drawn({1, 2, 100, 64}, 2),
               q = drawn({1, 2, 1, 64}, 3);
  const auto choices_with = [&](std::int64_t capacity) {
    KvCache cache(1, 2, 64, 64, {.capacity = capacity});
    cache.append(k.view(), v.view());
    AttentionReport report;
    const Tensor out =
        cache.attend(q, {.rung = AttentionRung::automatic, .out = DType::f32, .report = &report});
    return report.choices;
  };
  const std::vector<AttentionChoice> tight = choices_with(100), wide = choices_with(16384);
  ASSERT_EQ(tight.size(), wide.size());
  for (std::size_t i = 0; i < tight.size(); ++i) {
    EXPECT_EQ(tight[i].rung, wide[i].rung);
    EXPECT_EQ(tight[i].predicted, wide[i].predicted);
    EXPECT_EQ(tight[i].explanation, wide[i].explanation);
  }
}

TEST(KvCache, CopiesAreTheirOwn) {
  const Tensor k = drawn({2, 1, 5, 16}, 1), v = drawn({2, 1, 5, 16}, 2),
               q = drawn({2, 1, 1, 16}, 3);
  KvCache cache(2, 1, 16, 16, {.capacity = 8});
  const std::int64_t counts[] = {5, 2};
  cache.append(k.view(), v.view(), counts);
  const Tensor before = cache.attend(q);
  KvCache copy = cache, other(2, 1, 16, 16);
  other = cache;
  copy.append(tokens_of(k, 0, 2), tokens_of(v, 3, 2));
  copy.truncate(0, 1);
  EXPECT_TRUE(std::ranges::equal(cache.attend(q).bytes(), before.bytes()));
  EXPECT_TRUE(std::ranges::equal(other.attend(q).bytes(), before.bytes()));
  EXPECT_EQ(copy.lengths()[1], 4);
  EXPECT_EQ(other.capacity(), 8);
}

// What is read out is what was quantized, zeros beyond a length, and goes into another cache.
TEST(KvCache, TokensComeOutAndGoIn) {
  const Tensor k = drawn({2, 1, 5, 16}, 1), v = drawn({2, 1, 5, 32}, 2),
               q = drawn({2, 1, 1, 16}, 3);
  for (const char* name : {"fp8-channel", "mxfp8"}) {
    KvCache cache(2, 1, 16, 32, {.k = preset(name), .v = preset(name)});
    EXPECT_EQ(cache.key_tokens().shape, (Shape{2, 1, 0, 16}));
    const std::int64_t counts[] = {5, 2};
    cache.append(k.view(), v.view());
    cache.truncate(1, 2);
    const QuantizedTensor keys = cache.key_tokens(), values = cache.value_tokens();
    EXPECT_EQ(keys.shape, (Shape{2, 1, 5, 16}));
    EXPECT_EQ(values.shape, (Shape{2, 1, 5, 32}));
    const Tensor want = dequantize(quantize(v.view(), preset(name))), got = dequantize(values);
    for (std::size_t i = 0; i < 320; ++i)
      EXPECT_EQ(got.span<float>()[i], i < 160 + 64 ? want.span<float>()[i] : 0.0F) << i;
    KvCache other(2, 1, 16, 32, {.k = preset(name), .v = preset(name), .capacity = 1});
    other.append(keys, values, counts);
    EXPECT_TRUE(std::ranges::equal(other.attend(q).bytes(), cache.attend(q).bytes()));
    KvCache another(2, 1, 16, 32, {.k = preset("fp8-channel:e5m2")});
    EXPECT_THROW(another.append(keys, values), Error);
    EXPECT_THROW(other.append(values, values), Error);
    EXPECT_EQ(other.lengths()[0], 5);
  }
}

TEST(KvCache, HalfTheBytesOfBf16) {
  const KvCache cache(1, 8, 128, 128, {.capacity = 1024});
  const std::int64_t bf16 = 2 * 8 * 1024 * (128 + 128);
  EXPECT_LT(cache.nbytes(), bf16 * 52 / 100);  // one f32 scale for 128 codes: 132 / 256
}

TEST(KvCache, WhatDoesNotFitIsNamed) {
  const auto message_of = [](const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  KvCache cache(1, 2, 16, 16);
  const Tensor good = drawn({1, 2, 3, 16}, 1), narrow = drawn({1, 2, 3, 8}, 1),
               few = drawn({1, 2, 2, 16}, 1);
  EXPECT_EQ(
      message_of([&] { cache.append(good.view(), narrow.view()); }),
      "[KvCache] V has shape [1, 2, 3, 8]; expected [1, 2, tokens, 16], with as many tokens in "
      "K as in V");
  EXPECT_NE(message_of([&] { cache.append(good.view(), few.view()); }), "");
  // Not what memory there is for tokens.
  EXPECT_EQ(
      message_of([&] { (void)cache.attend(narrow); }),
      "[KvCache] Q has shape [1, 2, 3, 8]; expected [1, a multiple of 2, queries, 16], as the "
      "keys of this cache have it");
  const std::int64_t more[] = {4};
  EXPECT_NE(message_of([&] { cache.append(good.view(), good.view(), more); }).find("count of 4"),
            std::string::npos);
  EXPECT_EQ(cache.lengths()[0], 0);
  EXPECT_NE(message_of([] {
              KvCache(1, 1, 16, 16, {.k = preset("fp8-block")});
            }).find("hold more than one token"),
            std::string::npos);
  EXPECT_NE(message_of([] { KvCache(1, 1, 16, 16, {.v = preset("nvfp4")}); }).find("two levels"),
            std::string::npos);
  EXPECT_NE(message_of([] { KvCache(1, 0, 16, 16); }).find("at least 1"), std::string::npos);
  EXPECT_NE(message_of([&] { cache.truncate(0, 1); }).find("which has 0 tokens"),
            std::string::npos);
  EXPECT_NE(message_of([&] { cache.truncate(1, 0); }).find("got batch 1"), std::string::npos);
}

}  // namespace
}  // namespace octavo
