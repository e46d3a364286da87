// Few query rows share the reading of keys: what a row becomes does not depend on who shares.
#include <cmath>
#include <cstring>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

// The rows of one query head.
Tensor head_of(const Tensor& rows, std::int64_t head) {
  const Shape shape = rows.shape();
  Tensor one = Tensor::values({1, 1, shape[2], shape[3]}, rows.view().dtype);
  std::memcpy(one.bytes().data(),
              rows.bytes().data() + static_cast<std::size_t>(head) * one.bytes().size(),
              one.bytes().size());
  return one;
}

// Seven heads share keys: four together, two, and one; rows of a window do not see the same keys.
TEST(AttentionFew, HeadsThatShareKeysHaveTheBitsOfOneAlone) {
  for (const std::int64_t queries : {1, 2})
    for (const std::int64_t depth : {16, 80, 128})
      for (const bool coded : {false, true})
        for (const int odd : {0, 1, 2}) {  // 1: a NaN in a key, 2: in a value
          const Sizes sizes{
              .heads = 7, .kv_heads = 1, .queries = queries, .keys = 303, .depth = depth};
          Made made = make_inputs(sizes, Kind::normal, 8);
          if (odd > 0) {
            Tensor& spoilt = odd == 1 ? made.k : made.v;
            const std::uint16_t nan = 0x7FC0;
            std::memcpy(spoilt.bytes().data() + (200 * depth + 3) * 2, &nan, sizeof nan);
          }
          const Scaling scaling = preset("fp8-channel");
          const QuantizedTensor k = quantize(made.k.view(), scaling),
                                v = quantize(made.v.view(), scaling);
          const AttentionOptions options{
              .rung = AttentionRung::bf16,
              .mask = {.causal = true, .bottom_right = true, .left = 150},
              .out = DType::f32};
          const auto attended = [&](const Tensor& q) {
            return coded ? attention(q, k, v, options) : attention(q, made.k, made.v, options);
          };
          const Tensor all = attended(made.q);
          for (std::int64_t head = 0; head < sizes.heads; ++head) {
            const Tensor alone = attended(head_of(made.q, head));
            ASSERT_EQ(std::memcmp(alone.bytes().data(), head_of(all, head).bytes().data(),
                                  alone.bytes().size()),
                      0)
                << "head " << head << ", " << queries << " queries, size " << depth
                << (coded ? ", e4m3" : ", bf16") << ", odd " << odd;
          }
        }
}

// The last value is NaN, and so is its scale: the first of two queries does not see it.
TEST(AttentionFew, WhatIsNotSeenPoisonsNothing) {
  for (const bool in_keys : {false, true}) {
    Made made = make_inputs({.queries = 2, .keys = 130, .depth = 64}, Kind::normal, 5);
    Tensor& spoilt = in_keys ? made.k : made.v;
    const std::uint16_t nan = 0x7FC0;
    std::memcpy(spoilt.bytes().data() + (129 * 64 + 7) * 2, &nan, sizeof nan);
    const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                          v = quantize(made.v.view(), preset("fp8-channel"));
    const Tensor out = attention(made.q, k, v,
                                 {.rung = AttentionRung::bf16,
                                  .mask = {.causal = true, .bottom_right = true},
                                  .out = DType::f32});
    const auto* values = reinterpret_cast<const float*>(out.bytes().data());
    for (int e = 0; e < 64; ++e) {
      ASSERT_FALSE(std::isnan(values[e])) << (in_keys ? "key, " : "value, ") << e;
      ASSERT_TRUE(std::isnan(values[64 + e])) << (in_keys ? "key, " : "value, ") << e;
    }
  }
}

// Where one rung takes all rows of a call, automatic is that rung, and takes kernels for few rows
// too.
TEST(AttentionFew, AutomaticHasTheBitsOfItsRung) {
  const Made made =
      make_inputs({.heads = 4, .queries = 1, .keys = 700, .depth = 64}, Kind::normal, 3);
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  AttentionReport report;
  const Tensor automatic = attention(made.q, k, v, {.out = DType::f32, .report = &report});
  ASSERT_EQ(report.choices.size(), 4U);
  for (const AttentionChoice& choice : report.choices)
    ASSERT_EQ(choice.rung, AttentionRung::bf16) << choice.reason;
  const Tensor bf16 = attention(made.q, k, v, {.rung = AttentionRung::bf16, .out = DType::f32});
  EXPECT_EQ(std::memcmp(automatic.bytes().data(), bf16.bytes().data(), bf16.bytes().size()), 0);
}

}  // namespace
}  // namespace octavo::testing
