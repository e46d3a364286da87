// Scores for which sums in f16, or limbs of rows with several scales, are too coarse: whichever
// method takes a head, on the decode path too, the gate holds.
#include <string>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

Tensor times(const Tensor& values, float factor) {
  std::vector<float> numbers;
  const Shape& shape = values.shape();
  for (std::int64_t batch = 0; batch < shape[0]; ++batch)
    for (std::int64_t head = 0; head < shape[1]; ++head)
      for (const auto& row : rows_of(values.view(), batch, head))
        for (const double x : row) numbers.push_back(static_cast<float>(x) * factor);
  return tensor_of(shape, numbers, DType::bf16);
}

Errors errors_of(const Tensor& out, const Tensor& q, const QuantizedTensor& k,
                 const QuantizedTensor& v, const Sizes& sizes) {
  const Tensor exact_k = dequantize(k), exact_v = dequantize(v);
  Errors errors;
  compare(errors, out.view(), {.q = q.view(), .k = exact_k.view(), .v = exact_v.view()},
          spread_rows(sizes, sizes.queries));
  return errors;
}

// Decode attention with scores of a standard deviation of up to 20.
TEST(AttentionLargeScores, DecodePathStaysWithinTheGate) {
  const Scaling scaling = preset("fp8-channel");
  const AttentionOptions bf16{.rung = AttentionRung::bf16, .out = DType::f32},
      strict{.rung = AttentionRung::strict, .out = DType::f32};
  for (const std::int64_t rows : {1, 4, 16})
    for (const std::int64_t depth : {64, 128, 256})
      for (const float deviation : {1.0F, 3.0F, 10.0F, 20.0F})
        for (const Kind kind : {Kind::normal, Kind::outlier}) {
          const Sizes sizes{.queries = rows, .keys = 1024, .depth = depth};
          const Made made = make_inputs(sizes, kind, 5);
          const Tensor q = times(made.q, deviation);
          const QuantizedTensor k = quantize(made.k.view(), scaling),
                                v = quantize(made.v.view(), scaling),
                                coded = quantize(q.view(), scaling);
          const std::string what = std::to_string(rows) + " rows, D " + std::to_string(depth) +
                                   ", " + name_of(kind) + ", " + std::to_string(deviation);
          const Errors values = errors_of(attention(q, k, v, bf16), q, k, v, sizes);
          EXPECT_EQ(values.failures, 0) << "bf16, " << what << ": " << values;
          const Errors codes =
              errors_of(attention(coded, k, v, strict), dequantize(coded), k, v, sizes);
          EXPECT_EQ(codes.failures, 0) << "strict, " << what << ": " << codes;
        }
}

// Limbs leave products out, and round rows in which scales change.
TEST(AttentionLargeScores, CodesWithAnyScalesStayWithinTheGate) {
  for (const char* form : {"fp8-channel", "fp8-1x128", "fp8-block", "fp8", "mxfp8", "nvfp4"})
    for (const std::int64_t depth : {128, 256})
      for (const float deviation : {3.0F, 10.0F, 30.0F}) {
        const Sizes sizes{.queries = 96, .keys = 512, .depth = depth};
        const Made made = make_inputs(sizes, Kind::outlier, 3);
        const QuantizedTensor q = quantize(times(made.q, deviation).view(), preset(form)),
                              k = quantize(made.k.view(), preset(form)),
                              v = quantize(made.v.view(), preset("fp8-channel"));
        const Tensor out = attention(q, k, v, {.rung = AttentionRung::strict, .out = DType::f32});
        const Errors errors = errors_of(out, dequantize(q), k, v, sizes);
        EXPECT_EQ(errors.failures, 0)
            << form << ", D " << depth << ", " << deviation << ": " << errors;
      }
}

// The sum of squares of a row is beyond f32, the row is not: other rows are not affected.
TEST(AttentionLargeScores, ANumberBeyondTheRootOfF32StaysInItsRow) {
  const Sizes sizes{.queries = 96, .keys = 128, .depth = 64};
  Made made = make_inputs(sizes, Kind::normal, 4, DType::f32);
  for (const AttentionRung rung : {AttentionRung::balanced, AttentionRung::strict}) {
    const AttentionOptions options{.rung = rung, .out = DType::f32};
    const Tensor before = attention(made.q, made.k, made.v, options);
    Tensor& q = made.q;
    const float was = q.span<float>()[70 * 64 + 5];
    q.span<float>()[70 * 64 + 5] = 1e20F;
    const Tensor after = attention(q, made.k, made.v, options);
    q.span<float>()[70 * 64 + 5] = was;
    for (std::size_t i = 0; i < 96 * 64; ++i) {
      if (i / 64 != 70) {
        // Both are within the gate of the same row.
        ASSERT_NEAR(after.span<float>()[i], before.span<float>()[i],
                    2 * (5e-3 + 5e-3 * std::abs(before.span<float>()[i])))
            << octavo::name_of(rung) << ", row " << i / 64;
      } else {
        ASSERT_TRUE(std::isfinite(after.span<float>()[i])) << octavo::name_of(rung);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
