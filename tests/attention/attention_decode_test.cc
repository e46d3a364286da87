// Decode attention: query rows that share a KV head are read together; the result of a row does not
// depend on the others.
#include <bit>
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

// Seven heads share keys (GQA): groups of four, two and one; rows of a sliding window do not see
// the same keys.
TEST(AttentionDecode, HeadsThatShareKeysHaveTheBitsOfOneAlone) {
  for (const std::int64_t queries : {1, 2})
    for (const std::int64_t depth : {16, 80, 128})
      for (const bool coded : {false, true})
        for (const int odd : {0, 1, 2, 3}) {  // 1: a NaN in a key, 2: in a value, 3: in a query
          const Sizes sizes{
              .heads = 7, .kv_heads = 1, .queries = queries, .keys = 303, .depth = depth};
          Made made = make_inputs(sizes, Kind::normal, 8);
          if (odd > 0) {
            Tensor& spoilt = odd == 1 ? made.k : odd == 2 ? made.v : made.q;
            const std::uint16_t nan = 0x7FC0;
            const std::int64_t row = odd == 3 ? 2 * queries : 200;
            std::memcpy(spoilt.bytes().data() + (row * depth + 3) * 2, &nan, sizeof nan);
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
TEST(AttentionDecode, WhatIsNotSeenPoisonsNothing) {
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

// Where one rung takes all rows of a call, `auto` is that rung, and takes the decode path too.
TEST(AttentionDecode, AutomaticHasTheBitsOfItsRung) {
  const Made made =
      make_inputs({.heads = 4, .queries = 1, .keys = 700, .depth = 64}, Kind::normal, 3);
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  AttentionReport report;
  const Tensor automatic = attention(made.q, k, v, {.out = DType::f32, .report = &report});
  ASSERT_EQ(report.choices.size(), 4U);
  for (const AttentionChoice& choice : report.choices)
    ASSERT_EQ(choice.rung, AttentionRung::bf16) << choice.explanation;
  const Tensor bf16 = attention(made.q, k, v, {.rung = AttentionRung::bf16, .out = DType::f32});
  EXPECT_EQ(std::memcmp(automatic.bytes().data(), bf16.bytes().data(), bf16.bytes().size()), 0);
}

// The decode path reads keys and values unconverted: a rung that would round them first is no
// cheaper than f32, however wide the tolerance.
TEST(AttentionDecode, AutomaticRoundsNothingOnTheDecodePath) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const double atol : {5e-3, 1.0}) {
      const Made made =
          make_inputs({.heads = 2, .queries = 3, .keys = 600, .depth = 64}, Kind::normal, 3, dtype);
      AttentionReport report;
      const Tensor out =
          attention(made.q, made.k, made.v, {.atol = atol, .out = DType::f32, .report = &report});
      ASSERT_EQ(report.choices.size(), 2U);
      for (const AttentionChoice& choice : report.choices) {
        EXPECT_EQ(choice.rung, dtype == DType::bf16 ? AttentionRung::bf16 : AttentionRung::f32)
            << choice.explanation;
        EXPECT_LE(choice.predicted, atol);
        EXPECT_EQ(choice.n_eff, 2.0);
      }
    }
}

// Of many keys `auto` samples one in some, and the report says so. A much larger value between the
// samples shows in the output of the row that attends to it: the row is recomputed in f32.
TEST(AttentionDecode, AutomaticSeesLargeValuesOutsideItsSampleRows) {
  constexpr std::int64_t kKeys = 4096, kDepth = 64, kOther = 1001, kLarge = 1003;
  const auto bf16 = [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  };
  for (const bool has_large : {false, true})
    for (const bool coded : {false, true}) {
      Made made = make_inputs({.queries = 1, .keys = kKeys, .depth = kDepth}, Kind::normal, 11);
      auto* k = reinterpret_cast<std::uint16_t*>(made.k.bytes().data());
      auto* v = reinterpret_cast<std::uint16_t*>(made.v.bytes().data());
      const auto* q = reinterpret_cast<const std::uint16_t*>(made.q.bytes().data());
      // Both keys are aligned with the query, and share its weight unevenly.
      for (std::int64_t d = 0; d < kDepth; ++d) {
        const float along = std::bit_cast<float>(std::uint32_t{q[d]} << 16);
        k[kOther * kDepth + d] = bf16(3.0F * along);
        k[kLarge * kDepth + d] = bf16(3.0625F * along);
        if (has_large) v[kLarge * kDepth + d] = bf16(64.0F);
      }
      AttentionReport report;
      const AttentionOptions options{.out = DType::f32, .report = &report};
      const QuantizedTensor k_codes = quantize(made.k.view(), preset("fp8-channel")),
                            v_codes = quantize(made.v.view(), preset("fp8-channel"));
      const Tensor out = coded ? attention(made.q, k_codes, v_codes, options)
                               : attention(made.q, made.k, made.v, options);
      ASSERT_EQ(report.choices.size(), 1U);
      EXPECT_NE(report.choices[0].explanation.find("one row in 8"), std::string::npos)
          << report.choices[0].explanation;
      EXPECT_EQ(report.redone, has_large ? 1 : 0) << (coded ? "e4m3" : "bf16");
      const Tensor exact = coded ? attention(made.q, k_codes, v_codes,
                                             {.rung = AttentionRung::exact, .out = DType::f32})
                                 : attention(made.q, made.k, made.v,
                                             {.rung = AttentionRung::exact, .out = DType::f32});
      const auto* got = reinterpret_cast<const float*>(out.bytes().data());
      const auto* wanted = reinterpret_cast<const float*>(exact.bytes().data());
      for (std::int64_t e = 0; e < kDepth; ++e)
        ASSERT_NEAR(got[e], wanted[e], 5e-3 + 5e-3 * std::abs(wanted[e]));
    }
}

}  // namespace
}  // namespace octavo::testing
