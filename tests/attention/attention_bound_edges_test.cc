// Certified bounds where what a row does not see reaches it all the same (means of keys, scales of
// channels), where numbers are not finite, and where a term is absolute: against the oracle.
#include "tests/attention/attention_oracle_bounds.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kDepth = 64, kEarly = 256;  // keys that share norms
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();
constexpr std::array kRungs = {AttentionRung::f32,    AttentionRung::bf16,     AttentionRung::f16,
                               AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast};

float& at(const Tensor& tensor, std::int64_t row, std::int64_t col) {
  return tensor.span<float>()[static_cast<std::size_t>(row * tensor.shape()[3] + col)];
}

// All backends, and rungs of which they have a bound.
template <typename Q, typename K, typename V>
HeldRows held_everywhere(const Q& q, const K& k, const V& v, OracleCall call,
                         std::span<const AttentionRung> rungs = kRungs) {
  HeldRows all;
  AttentionOptions options = call.options;
  OracleCall of{.options = options, .sinks = call.sinks, .bias = call.bias};
  for (const BackendInfo& backend : backends_with_bounds())
    for (const AttentionRung rung : rungs) {
      options.rung = rung;
      options.backend = backend.kernels;
      try {
        const HeldRows held = held_rows(q, k, v, of);
        EXPECT_EQ(held.above, 0) << octavo::name_of(rung) << " on " << backend.name << ": "
                                 << held.first;
        EXPECT_EQ(held.outside, 0)
            << octavo::name_of(rung) << " on " << backend.name << ": " << held.first;
        all.add(held);
      } catch (const Error& error) {
        // Kernels that sum in f16 state none; those of f32 do.
        EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
        EXPECT_NE(rung, AttentionRung::f32) << backend.name;
        EXPECT_NE(rung, AttentionRung::automatic) << backend.name;
      }
    }
  return all;
}

constexpr std::array kAutomatic = {AttentionRung::automatic};

// Early keys are near zero, and the mean that smoothing subtracts from them is of late ones. Less
// that mean they lie on a tie of e4m3 in all channels but one, which sets the scale: each key is
// rounded by half a step up or down, and scores are off by what norms of early keys do not show.
TEST(AttentionBoundEdges, KeysThatNoRowSeesMoveTheMean) {
  const Made made = make_inputs({.queries = 2 * kEarly, .keys = 2 * kEarly, .depth = kDepth},
                                Kind::normal, 3, DType::f32);
  for (std::int64_t key = 0; key < kEarly; ++key)
    for (std::int64_t d = 0; d < kDepth; ++d) {
      at(made.k, key, d) *= d == 0 ? 0.0F : 1e-3F;
      at(made.k, key + kEarly, d) = d == 0 ? 100.0F : 100.0F * 432.0F / 448.0F;
    }
  const AttentionOptions options{
      .rtol = 0.0, .atol = 1.0, .mask = {.causal = true}, .out = DType::f32, .certified = true};
  held_everywhere(made.q, made.k, made.v, {.options = options}, kAutomatic);
}

// Early values are far below the scale of their channel, which is of late ones: all of an early
// value is rounded off.
TEST(AttentionBoundEdges, ValuesThatNoRowSeesSetTheScale) {
  const Made made = make_inputs({.queries = 2 * kEarly, .keys = 2 * kEarly, .depth = kDepth},
                                Kind::normal, 4, DType::f32);
  for (float& number : made.q.span<float>()) number *= 1e-3F;
  for (std::int64_t key = 0; key < kEarly; ++key)
    for (std::int64_t e = 0; e < kDepth; ++e) at(made.v, key, e) *= 1e-6F;
  const AttentionOptions options{
      .rtol = 0.0, .atol = 2e-6, .mask = {.causal = true}, .out = DType::f32, .certified = true};
  held_everywhere(made.q, made.k, made.v, {.options = options}, kAutomatic);
}

// All values of a channel are NaN: it is no channel without rows.
TEST(AttentionBoundEdges, AChannelOfNaN) {
  const Made made =
      make_inputs({.queries = 5, .keys = 40, .depth = kDepth}, Kind::normal, 5, DType::f32);
  for (std::int64_t key = 0; key < 40; ++key) at(made.v, key, 7) = kNaN;
  const AttentionOptions options{.out = DType::f32};
  const HeldRows held = held_everywhere(made.q, made.k, made.v, {.options = options});
  EXPECT_EQ(held.unknown, held.rows);
}

// A value that no row sees is not finite: its channel's scale is NaN, and so are the outputs of
// rungs that have such a scale. Others are as they were.
TEST(AttentionBoundEdges, AScaleOfNaN) {
  const std::int64_t keys = 2 * kEarly;
  for (const float number : {kNaN, kInfinity}) {
    const Made made = make_inputs({.queries = kEarly, .keys = keys, .depth = kDepth}, Kind::normal,
                                  6, DType::f32);
    at(made.v, keys - 1, 9) = number;
    AttentionOptions options{.mask = {.causal = true}, .out = DType::f32};
    held_everywhere(made.q, made.k, made.v, {.options = options});
    options.certified = true;
    options.atol = 10.0;
    held_everywhere(made.q, made.k, made.v, {.options = options}, kAutomatic);
  }
}

// A bias of NaN or +inf makes NaN of the rows that see it, and of no others.
TEST(AttentionBoundEdges, BiasesThatAreNotFinite) {
  const Made made = make_inputs({.heads = 2, .kv_heads = 1, .queries = 6, .keys = 40}, Kind::normal,
                                7, DType::f32);
  for (const float number : {kNaN, kInfinity, -kInfinity, -3e38F, 3e38F}) {
    const Tensor bias = Tensor::values({1, 2, 6, 40}, DType::f32);
    std::ranges::fill(bias.span<float>(), 0.25F);
    at(bias, 3, 11) = number;      // head 0
    at(bias, 6 + 2, 39) = number;  // head 1
    for (std::int64_t key = 0; key < 40; ++key) at(bias, 6 + 4, key) = number;
    AttentionOptions options{.mask = {.bias = bias.view()}, .out = DType::f32};
    const HeldRows held = held_everywhere(made.q, made.k, made.v, {options, {}, &bias});
    const bool poisons = !(number < kInfinity);
    EXPECT_EQ(held.unknown, poisons ? held.rows / 4 : 0) << number;  // 3 of 12 rows
    options.certified = true;
    options.atol = 1e3;
    held_everywhere(made.q, made.k, made.v, {options, {}, &bias}, kAutomatic);
  }
}

// A sink of NaN or +inf makes NaN of all rows of its head, of those too that see no key.
TEST(AttentionBoundEdges, SinksThatAreNotFinite) {
  const Made made = make_inputs({.heads = 3, .kv_heads = 1, .queries = 6, .keys = 40}, Kind::normal,
                                8, DType::f32);
  for (const float number : {kNaN, kInfinity, -kInfinity, 3e38F, -3e38F}) {
    const std::vector<float> sinks{0.5F, number, -1.0F};
    AttentionOptions options{.mask = {.causal = true, .bottom_right = true},
                             .sinks = view_of_sinks(sinks),
                             .out = DType::f32};
    const std::int64_t few[] = {4};  // two rows see none of four keys
    options.mask.key_lengths = few;
    const HeldRows held = held_everywhere(made.q, made.k, made.v, {options, sinks});
    EXPECT_EQ(held.unknown, !(number < kInfinity) ? held.rows / 3 : 0) << number;
    options.certified = true;
    options.atol = 1e3;
    held_everywhere(made.q, made.k, made.v, {options, sinks}, kAutomatic);
  }
}

// Decode attention multiplies weights of two terms of bf16 on AMX and divides by the sum of those
// in f32. Where V is one all of that shows, and nothing else.
TEST(AttentionBoundEdges, WeightsThatAreMultipliedAreNotThoseThatAreSummed) {
  for (const std::int64_t keys : {1, 2, 3, 17, 200})
    for (const unsigned seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
      const Made made =
          make_inputs({.queries = 1, .keys = keys, .depth = kDepth}, Kind::ones, seed, DType::bf16);
      const AttentionOptions options{.out = DType::f32};
      constexpr std::array kBoth = {AttentionRung::bf16, AttentionRung::fast};
      held_everywhere(made.q, made.k, made.v, {.options = options}, kBoth);
      const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                            v = quantize(made.v.view(), preset("fp8-channel"));
      held_everywhere(made.q, k, v, {.options = options}, kBoth);
    }
}

// Outputs whose squares f32 does not have, and those below the smallest normal number of their
// type.
TEST(AttentionBoundEdges, SmallOutputsOfNarrowTypes) {
  for (const DType out : {DType::bf16, DType::f16})
    for (const double size : {1.0, 1e-4, 1e-6, 3e-8, 1e-20, 1e-24, 1e-28, 1e-38, 3e-40}) {
      const Made made =
          make_inputs({.queries = 4, .keys = 30, .depth = kDepth}, Kind::normal, 9, DType::f32);
      for (float& number : made.v.span<float>())
        number = static_cast<float>(static_cast<double>(number) * size);
      AttentionOptions options{.out = out};
      held_everywhere(made.q, made.k, made.v, {.options = options});
      // What rounding takes is absolute below the smallest normal number, and no share of rtol.
      options.certified = true;
      options.atol = 1e-2 * size;
      held_everywhere(made.q, made.k, made.v, {.options = options}, kAutomatic);
    }
}

// Numbers that f32 has, and a factor of their scores that it does not have, or that makes products
// beyond it, or below.
TEST(AttentionBoundEdges, FactorsThatF32DoesNotHave) {
  struct Sized {
    double q, k, scale;
  };
  for (const Sized& sized :
       {Sized{1e-30, 1e15, 1e14}, Sized{1e25, 1e25, 1e-50}, Sized{1e25, 1e25, 1e-48},
        Sized{1e22, 1e22, 1e-45}, Sized{1e-4, 1e18, 1e-15}, Sized{1e15, 1e-38, 1e22},
        Sized{1e-25, 1e-25, 1e49}, Sized{1e20, 1e-38, 1e17}}) {
    Made made =
        make_inputs({.queries = 3, .keys = 30, .depth = kDepth}, Kind::normal, 10, DType::f64);
    for (double& number : made.q.span<double>()) number *= sized.q;
    for (double& number : made.k.span<double>()) number *= sized.k;
    const AttentionOptions options{.softmax_scale = sized.scale, .out = DType::f32};
    held_everywhere(made.q, made.k, made.v, {.options = options});
  }
}

// A token of zeros may have any scale: beside a large one the scales of others are lost where they
// are kept relative to the largest.
TEST(AttentionBoundEdges, AZeroOfALargeScale) {
  for (const std::int64_t queries : {1, 20})
    for (const float scale : {0x1p+60F, 0x1p+100F, 0x1p+120F}) {
      const Made made = make_inputs({.queries = queries, .keys = 30, .depth = kDepth}, Kind::normal,
                                    12, DType::bf16);
      const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                            v = quantize(made.v.view(), preset("fp8-channel"));
      std::ranges::fill(v.rowwise.codes.bytes().first(kDepth), std::byte{0});
      for (float& number : v.rowwise.scales.span<float>()) number *= 0x1p-40F;
      v.rowwise.scales.span<float>()[0] = scale;
      const AttentionOptions options{.out = DType::f32};
      constexpr std::array kThree = {AttentionRung::f32, AttentionRung::bf16, AttentionRung::fast};
      held_everywhere(made.q, k, v, {.options = options}, kThree);
    }
}

}  // namespace
}  // namespace octavo::testing
