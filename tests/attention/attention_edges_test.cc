// Non-finite and extreme inputs, and which outputs they must not affect.
#include <limits>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr std::array kRungs = {
    AttentionRung::exact,  AttentionRung::f32,  AttentionRung::bf16,     AttentionRung::f16,
    AttentionRung::strict, AttentionRung::fast, AttentionRung::balanced, AttentionRung::automatic};

bool is_nan_row(const Tensor& out, std::int64_t row) {
  const std::int64_t width = out.shape()[3];
  int nans = 0;
  for (std::int64_t e = 0; e < width; ++e)
    nans += std::isnan(out.span<float>()[static_cast<std::size_t>(row * width + e)]);
  EXPECT_TRUE(nans == 0 || nans == width) << "row " << row << " has " << nans << " NaN";
  return nans > 0;
}

// Causal rows before the key do not see it; rows after it are poisoned.
TEST(AttentionEdges, NanInAKeyPoisonsRowsThatSeeIt) {
  const Sizes sizes{.queries = 200, .keys = 200, .depth = 32};
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs)
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Made made = make_inputs(sizes, Kind::normal, 3, DType::f32);
        // Inf times a negative query is -Inf, a weight of zero: those rows need not be poisoned.
        made.k.span<float>()[150 * 32 + 7] = bad;
        const Tensor out =
            attention(made.q, made.k, made.v,
                      {.rung = rung, .mask = {.causal = true}, .backend = backend.kernels});
        for (std::int64_t row = 0; row < 150; ++row)
          ASSERT_FALSE(is_nan_row(out, row))
              << octavo::name_of(rung) << " on " << backend.name << ", row " << row;
        for (std::int64_t row = 150; row < 200 && std::isnan(bad); ++row) {
          ASSERT_TRUE(is_nan_row(out, row))
              << octavo::name_of(rung) << " on " << backend.name << ", row " << row;
        }
      }
}

// Keys and rows beyond a length may hold anything.
TEST(AttentionEdges, PaddingIsNotRead) {
  const Sizes sizes{.batches = 2, .queries = 70, .keys = 90, .depth = 32};
  const std::int64_t query_lengths[] = {70, 21}, key_lengths[] = {33, 90};
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs) {
      const Made clean = make_inputs(sizes, Kind::normal, 3, DType::f32),
                 dirty = make_inputs(sizes, Kind::normal, 3, DType::f32);
      const auto spoil = [](const Tensor& tensor, std::int64_t batch, std::int64_t from) {
        const std::int64_t rows = tensor.shape()[2], size = tensor.shape()[3];
        for (std::int64_t i = from * size; i < rows * size; ++i)
          tensor.span<float>()[static_cast<std::size_t>(batch * rows * size + i)] =
              i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 3e38F;
      };
      spoil(dirty.q, 1, 21);
      spoil(dirty.k, 0, 33);
      spoil(dirty.v, 0, 33);
      const AttentionOptions options{
          .rung = rung,
          .mask = {.query_lengths = query_lengths, .key_lengths = key_lengths},
          .backend = backend.kernels};
      const Tensor want = attention(clean.q, clean.k, clean.v, options),
                   got = attention(dirty.q, dirty.k, dirty.v, options);
      EXPECT_TRUE(std::ranges::equal(got.bytes(), want.bytes()))
          << octavo::name_of(rung) << " on " << backend.name;
      for (std::size_t i = (70 + 21) * 32; i < 2 * 70 * 32; ++i)
        ASSERT_EQ(got.span<float>()[i], 0.0F) << octavo::name_of(rung) << " on " << backend.name;
    }
}

TEST(AttentionEdges, RowsThatSeeNothingAreZeros) {
  const Sizes sizes{.queries = 40, .keys = 10, .depth = 16};
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs) {
      const Made made = make_inputs(sizes, Kind::normal, 3, DType::f32);
      const Tensor lse = Tensor::values({1, 1, 40}, DType::f32);
      const Tensor out = attention(made.q, made.k, made.v,
                                   {.rung = rung,
                                    .mask = {.causal = true, .bottom_right = true},
                                    .log_sum_exp = lse.view(),
                                    .backend = backend.kernels});
      for (std::size_t i = 0; i < 30; ++i) {
        for (std::size_t e = 0; e < 16; ++e)
          ASSERT_EQ(out.span<float>()[i * 16 + e], 0.0F) << octavo::name_of(rung);
        ASSERT_EQ(lse.span<float>()[i], -HUGE_VALF) << octavo::name_of(rung) << backend.name;
      }
      for (std::size_t i = 30; i < 40; ++i) ASSERT_TRUE(std::isfinite(lse.span<float>()[i]));
    }
}

TEST(AttentionEdges, NoKeysAtAllIsZeros) {
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs) {
      const Tensor q = make_inputs({.queries = 3, .keys = 1, .depth = 16}, Kind::normal, 1).q;
      const Tensor none = Tensor::values({1, 1, 0, 16}, DType::bf16);
      const Tensor out =
          attention(q, none, none, {.rung = rung, .out = DType::f32, .backend = backend.kernels});
      for (const float number : out.span<float>()) EXPECT_EQ(number, 0.0F) << octavo::name_of(rung);
      const Tensor no_rows = attention(none, q, q, {.rung = rung, .backend = backend.kernels});
      EXPECT_EQ(no_rows.shape(), (Shape{1, 1, 0, 16}));
    }
}

// Scores of tens of thousands and more: weights are those of one key, or of all alike.
TEST(AttentionEdges, LargeAndEqualScores) {
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs) {
      const Sizes sizes{.queries = 33, .keys = 65, .depth = 16};
      Made made = make_inputs(sizes, Kind::normal, 3, DType::f32);
      for (float& number : made.q.span<float>()) number *= 1e4F;
      const Tensor out =
          attention(made.q, made.k, made.v, {.rung = rung, .backend = backend.kernels});
      for (const float number : out.span<float>())
        ASSERT_TRUE(std::isfinite(number)) << octavo::name_of(rung) << " on " << backend.name;
      for (float& number : made.q.span<float>()) number = 0.0F;
      const Tensor mean =
          attention(made.q, made.k, made.v, {.rung = rung, .backend = backend.kernels});
      for (std::size_t e = 0; e < 16; ++e) {
        double sum = 0.0;
        for (std::size_t j = 0; j < 65; ++j)
          sum += static_cast<double>(made.v.span<float>()[j * 16 + e]) / 65.0;
        // All weights are the same number, so only V is rounded: at most 2^-4 of the largest, 3.2.
        ASSERT_NEAR(static_cast<double>(mean.span<float>()[e]), sum, 0.03)
            << octavo::name_of(rung) << " on " << backend.name;
      }
    }
}

// Scores of millions, whose fractions f32 cannot hold any more: the largest one's value is taken.
// K is one number per key, far apart, and V is the key's index, so that any other weight shows.
TEST(AttentionEdges, ScoresOfMillionsTakeTheLargest) {
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kRungs)
      for (const float scale : {1e5F, 1e6F, 1e7F, 1e12F, -1e7F}) {
        Made made =
            make_inputs({.queries = 30, .keys = 70, .depth = 16}, Kind::ones, 3, DType::f32);
        for (float& number : made.q.span<float>()) number = 1.0F;
        for (std::size_t i = 0; i < 70 * 16; ++i) {
          made.k.span<float>()[i] =
              static_cast<float>(i / 16 == 40 ? 3 : 0) - static_cast<float>(i / 16 == 41 ? 3 : 0);
          made.v.span<float>()[i] = i / 16 == 40 ? 2.0F : i / 16 == 41 ? 4.0F : 1.0F;
        }
        const Tensor out =
            attention(made.q, made.k, made.v,
                      {.rung = rung, .softmax_scale = scale, .backend = backend.kernels});
        for (const float number : out.span<float>())
          ASSERT_EQ(number, scale > 0 ? 2.0F : 4.0F)
              << octavo::name_of(rung) << " on " << backend.name << ", scale " << scale;
      }
}

// A bias of every allowed shape, against the definition; and -inf, which masks a key, NaN included.
TEST(AttentionEdges, BiasIsAddedAndHides) {
  const Sizes sizes{
      .batches = 2, .heads = 4, .kv_heads = 2, .queries = 30, .keys = 70, .depth = 16};
  const std::int64_t key_lengths[] = {70, 41};
  for (const Shape& shape : {Shape{2, 4, 30, 70}, Shape{2, 1, 1, 70}, Shape{30, 70}, Shape{70},
                             Shape{4, 30, 1}, Shape{1}}) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const Tensor bias = Tensor::values(shape, DType::f32);
    for (float& number : bias.span<float>()) number = 3.0F * normal(random);
    const bool hides = shape[shape.rank() - 1] == 70;
    if (hides)
      for (std::size_t i = 0; i < bias.span<float>().size(); i += 70)
        bias.span<float>()[i + 9] = -HUGE_VALF;
    Made made = make_inputs(sizes, Kind::normal, 3, DType::f32);
    for (std::size_t stack = 0; stack < 4 && hides; ++stack) {
      made.k.span<float>()[(stack * 70 + 9) * 16] = std::numeric_limits<float>::quiet_NaN();
      made.v.span<float>()[(stack * 70 + 9) * 16] = std::numeric_limits<float>::infinity();
    }
    AttentionOptions options{.rung = AttentionRung::f32,
                             .mask = {.causal = true,
                                      .bottom_right = true,
                                      .key_lengths = key_lengths,
                                      .bias = bias.view()},
                             .backend = &reference_backend()};
    const Tensor want = attention(made.q, made.k, made.v, options);
    options.mask.bias = {};
    const Tensor without = attention(made.q, made.k, made.v, options);
    EXPECT_FALSE(std::ranges::equal(want.bytes(), without.bytes())) << to_string(shape);
    options.mask.bias = bias.view();
    for (const BackendInfo& backend : support::every_backend()) {
      options.backend = backend.kernels;
      const Tensor got = attention(made.q, made.k, made.v, options);
      for (std::size_t i = 0; i < got.span<float>().size(); ++i)
        ASSERT_NEAR(got.span<float>()[i], want.span<float>()[i], 2e-5)
            << backend.name << ", " << to_string(shape) << ", " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
