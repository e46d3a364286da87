// Attention in its data-oblivious mode has the results of the mode that may look: the same rung,
// masks, biases, soft caps, sinks, dropout and lengths. That its instructions do not depend on data
// is what tests/oblivious shows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::array kRungs = {AttentionRung::f32,    AttentionRung::bf16,     AttentionRung::f16,
                               AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast};

// Backends with kernels of their own.
std::vector<BackendInfo> cpu_backends() {
  std::vector<BackendInfo> all = support::every_backend();
  std::erase_if(all, [](const BackendInfo& info) { return !info.name.starts_with("cpu/"); });
  return all;
}

struct Result {
  Tensor out, log_sum_exp;
};
Result result_of(const Operand& q, const Operand& k, const Operand& v, AttentionOptions options) {
  const Shape shape = attention_shape(q, k, v);
  Result result{.out = {},
                .log_sum_exp = Tensor::values({shape[0], shape[1], shape[2]}, DType::f32)};
  options.log_sum_exp = result.log_sum_exp.view();
  options.out = DType::f32;
  result.out = attention(q, k, v, options);
  return result;
}

// P is in f32 in both, or rounded to at most 2^-4 in one (fast) where the reference defines it:
// rows are compared with the reference's by what its P may be off, 2 d of the largest |v|.
double allowed(AttentionRung rung) {
  switch (rung) {
    case AttentionRung::f32:
      return 1e-5;
    case AttentionRung::fast:
      return 2.0 * 0x1p-4;
    case AttentionRung::strict:
      return 2.0 * 0x1p-7;
    default:
      return 2.0 * 0x1p-8;
  }
}

void expect_same(const Result& got, const Result& wanted, double most, const std::string& what) {
  const auto compare = [&](const Tensor& a, const Tensor& b, double limit, const char* name) {
    double worst = 0.0;
    std::int64_t odd = 0;
    for (std::size_t i = 0; i < a.span<float>().size(); ++i) {
      const float x = a.span<float>()[i], y = b.span<float>()[i];
      if (!std::isfinite(x) || !std::isfinite(y)) {
        odd += std::isnan(x) ? !std::isnan(y) : x != y;
      } else {
        worst = std::max(worst, std::abs(static_cast<double>(x) - static_cast<double>(y)));
      }
    }
    EXPECT_LE(worst, limit) << what << ", " << name;
    EXPECT_EQ(odd, 0) << what << ", " << name;
  };
  compare(got.out, wanted.out, most, "output");
  compare(got.log_sum_exp, wanted.log_sum_exp, most + 1e-5, "log-sum-exp");
}

void expect_as_reference(const Operand& q, const Operand& k, const Operand& v,
                         const AttentionOptions& given, double largest, const std::string& what) {
  AttentionOptions options = given;
  options.backend = &reference_backend();
  const Result wanted = result_of(q, k, v, options);
  options.oblivious = true;
  for (const BackendInfo& backend : cpu_backends()) {
    options.backend = backend.kernels;
    expect_same(result_of(q, k, v, options), wanted, allowed(given.rung) * largest,
                what + " on " + backend.name);
  }
}

constexpr double kLargest = 6.0;  // |v| of some ten thousand normal numbers

TEST(AttentionOblivious, EveryRungAndMask) {
  const Sizes sizes{.batches = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .queries = 21,
                    .keys = 140,
                    .depth = 48,
                    .width = 40};
  const std::int64_t query_lengths[] = {21, 9}, key_lengths[] = {100, 140};
  const AttentionMask masks[] = {{},
                                 {.causal = true},
                                 {.causal = true, .bottom_right = true},
                                 {.left = 5, .right = 2},
                                 {.query_lengths = query_lengths, .key_lengths = key_lengths}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Made made = make_inputs(sizes, Kind::normal, 3, dtype);
    for (const AttentionRung rung : kRungs)
      for (const AttentionMask& mask : masks)
        expect_as_reference(
            made.q, made.k, made.v, {.rung = rung, .mask = mask}, kLargest,
            std::string(octavo::name_of(rung)) + ", " + std::string(dtype_name(dtype)));
  }
}

TEST(AttentionOblivious, CapsSinksBiasesDropoutAndCodes) {
  const Sizes sizes{.heads = 3, .kv_heads = 3, .queries = 20, .keys = 90, .depth = 64};
  const Made made = make_inputs(sizes, Kind::normal, 5, DType::f32);
  const Tensor bias = Tensor::values({20, 90}, DType::f32);
  for (std::size_t i = 0; i < bias.span<float>().size(); ++i)
    bias.span<float>()[i] = i % 7 == 0 ? -kInfinity : i % 11 == 0 ? -3.4e38F : 0.5F;
  std::vector<float> sinks = {-kInfinity, 0.5F, 30.0F};
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("mxfp8"));
  for (const double cap : {0.0, 2.0})
    for (const bool has_bias : {false, true})
      for (const bool has_sinks : {false, true})
        for (const bool drops : {false, true}) {
          AttentionOptions options{.rung = AttentionRung::f32, .soft_cap = cap};
          if (has_bias) options.mask.bias = bias.view();
          if (has_sinks) options.sinks = view_of_sinks(sinks);
          if (drops) options.dropout = {.probability = 0.3, .seed = 7};
          expect_as_reference(made.q, made.k, made.v, options, 2.0 * kLargest, "values");
          expect_as_reference(made.q, k, v, options, 2.0 * kLargest, "codes");
        }
  for (const float sink : {kInfinity, std::nanf("")}) {
    sinks[1] = sink;
    expect_as_reference(made.q, made.k, made.v,
                        {.rung = AttentionRung::f32, .sinks = view_of_sinks(sinks)}, kLargest,
                        "poisoned sinks");
  }
}

// What is not finite poisons the rows that see it, and those alone; rows that see nothing are
// zeros.
TEST(AttentionOblivious, NonFiniteNumbersAndEmptyRows) {
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity})
    for (const int in : {0, 1, 2}) {
      Made made =
          make_inputs({.queries = 30, .keys = 30, .depth = 16}, Kind::normal, 3, DType::f32);
      const Tensor* const tensors[] = {&made.q, &made.k, &made.v};
      tensors[in]->span<float>()[17 * 16 + 3] = bad;
      expect_as_reference(made.q, made.k, made.v,
                          {.rung = AttentionRung::f32, .mask = {.causal = true}}, kLargest,
                          "operand " + std::to_string(in) + " with " + std::to_string(bad));
    }
  const Made made =
      make_inputs({.queries = 8, .keys = 3, .depth = 16}, Kind::normal, 3, DType::f32);
  const std::int64_t no_keys[] = {0};
  expect_as_reference(made.q, made.k, made.v,
                      {.rung = AttentionRung::f32, .mask = {.key_lengths = no_keys}}, kLargest,
                      "no keys");
}

TEST(AttentionOblivious, ThreadsChangeNothing) {
  const Made made = make_inputs({.heads = 3, .kv_heads = 1, .queries = 50, .keys = 70, .depth = 64},
                                Kind::normal, 3);
  AttentionOptions options{
      .rung = AttentionRung::bf16, .out = DType::f32, .oblivious = true, .threads = 1};
  const Tensor one = attention(made.q, made.k, made.v, options);
  for (const int threads : {2, 5}) {
    options.threads = threads;
    EXPECT_TRUE(
        std::ranges::equal(one.bytes(), attention(made.q, made.k, made.v, options).bytes()));
  }
}

TEST(AttentionOblivious, RefusesWhatHasToLook) {
  const Made made = make_inputs({.queries = 8, .keys = 8, .depth = 16}, Kind::normal, 3);
  const auto refused = [&](AttentionOptions options, const char* why) {
    options.oblivious = true;
    try {
      (void)attention(made.q, made.k, made.v, options);
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused({}, "looks at the numbers to choose");
  refused({.rung = AttentionRung::exact}, "branches");
  refused({.rung = AttentionRung::f32, .backend = &reference_backend()}, "branches on data");
  const Tensor bound = Tensor::values({1, 1, 8}, DType::f32);
  refused({.rung = AttentionRung::f32, .bound = bound.view()}, "bounds of the error");
}

}  // namespace
}  // namespace octavo::testing
