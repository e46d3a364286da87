// Attention by matrix instructions (BFMMLA, SMMLA, TDPBF16PS) against exact attention of a rung's
// own inputs: every rung that has them, every mask, shapes that are no multiple of a tile.
//
// There Q, K and V are exact and sums are f32, so that only weights are rounded: to bf16, 2^-8 of
// themselves. Before that they are off by the polynomial, 7.5e-5, and by what their score is off
// by, s <= (D + 12) 2^-24 sum |q k|: BFMMLA's roundings (docs/numerics/gemm.md), those of units and
// those of the inputs as f32, which the oracle is given. A row whose weights w_j are off by d_j
// each is off by sum_j w_j d_j (v_j - out) over 1 + sum_j w_j d_j, because it is divided by the sum
// of what was multiplied; and the f32 sums of n products over and below the line by (n + 8) 2^-24
// of sum_j w_j |v_j| each.
#include <algorithm>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

std::vector<BackendInfo> matrix_backends() {
  std::vector<BackendInfo> all = support::every_backend();
  std::erase_if(all, [](const BackendInfo& info) {
    return info.name != "cpu/neon_bf16" && info.name != "cpu/neon_i8mm" && info.name != "cpu/amx";
  });
  return all;
}

constexpr std::array kRungs = {AttentionRung::bf16, AttentionRung::strict, AttentionRung::balanced,
                               AttentionRung::fast};

struct Masked {
  const char* name;
  AttentionMask mask{};
};

// One head; `sees` is the mask as the oracle has it.
void expect_exact_but_for_weights(const oracle::Rows& q, const oracle::Rows& k,
                                  const oracle::Rows& v, const oracle::Rows& got,
                                  const oracle::Sees& sees, const std::string& what) {
  const auto depth = static_cast<double>(q[0].size());
  const double scale = 1.0 / std::sqrt(depth);
  for (std::size_t i = 0; i < q.size(); ++i) {
    const oracle::AttendedRow exact =
        oracle::attended(q[i], k, v, scale, sees, static_cast<std::int64_t>(i));
    double products = 0.0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      double sum = 0.0;
      for (std::size_t d = 0; d < q[i].size(); ++d) sum += std::abs(q[i][d] * k[j][d]);
      if (exact.weights[j] > 0.0) products = std::max(products, sum * scale);
    }
    const double off = 0x1p-8 + 7.5e-5 + (depth + 12.0) * 0x1p-24 * products;
    for (std::size_t e = 0; e < got[i].size(); ++e) {
      double spread = 0.0, mass = 0.0;
      for (std::size_t j = 0; j < k.size(); ++j) {
        spread += exact.weights[j] * std::abs(v[j][e] - exact.out[e]);
        mass += exact.weights[j] * std::abs(v[j][e]);
      }
      const double sums = 2.0 * (static_cast<double>(k.size()) + 8.0) * 0x1p-24 * mass;
      // The last term is what f32 has no bits for.
      ASSERT_NEAR(got[i][e], exact.out[e], off / (1.0 - off) * spread + sums + 0x1p-149)
          << what << ", row " << i << ", column " << e;
    }
  }
}

// All heads, at the inputs that the rung makes of these.
void expect_exact_but_for_weights(const Made& made, const AttentionOptions& options,
                                  const oracle::Sees& sees, const std::string& what) {
  const Tensor out = attention(made.q, made.k, made.v, options);
  const AttentionInputs inputs = attention_inputs(made.q, made.k, made.v, {.rung = options.rung});
  const std::int64_t heads = made.q.shape()[1], group = heads / made.k.shape()[1];
  for (std::int64_t head = 0; head < heads; ++head)
    expect_exact_but_for_weights(
        rows_of(inputs.q.view(), 0, head), rows_of(inputs.k.view(), 0, head / group),
        rows_of(inputs.v.view(), 0, head / group), rows_of(out.view(), 0, head), sees,
        what + ", head " + std::to_string(head));
}

TEST(AttentionMatrix, OnlyWeightsAreRoundedOnEveryRungMaskAndShape) {
  const std::vector<BackendInfo> backends = matrix_backends();
  if (backends.empty()) GTEST_SKIP() << "this CPU has no matrix instructions; an emulator has";
  const std::vector<Sizes> shapes = {
      {.queries = 1, .keys = 1, .depth = 8, .width = 1},
      {.heads = 4, .kv_heads = 2, .queries = 5, .keys = 131, .depth = 64, .width = 40},
      {.queries = 37, .keys = 99, .depth = 40, .width = 24},
      {.queries = 13, .keys = 258, .depth = 72, .width = 9},
      {.queries = 49, .keys = 128, .depth = 16, .width = 16},
      {.queries = 12, .keys = 127, .depth = 33, .width = 130},
  };
  int tried = 0;
  for (const Sizes& sizes : shapes) {
    const Masked masks[] = {{"all", {}},
                            {"causal", {.causal = true}},
                            {"bottom right", {.causal = true, .bottom_right = true}},
                            {"window", {.left = 17, .right = 3}}};
    const Made made = make_inputs(sizes, Kind::biased, 3);
    for (const Masked& masked : masks)
      for (const AttentionRung rung : kRungs)
        for (const BackendInfo& backend : backends) {
          const oracle::Sees sees{
              .causal = masked.mask.causal,
              .left = masked.mask.left,
              .right = masked.mask.right,
              .diagonal = masked.mask.bottom_right ? sizes.keys - sizes.queries : 0,
              .keys = sizes.keys};
          const AttentionOptions options{
              .rung = rung, .mask = masked.mask, .out = DType::f32, .backend = backend.kernels};
          expect_exact_but_for_weights(made, options, sees,
                                       std::string(octavo::name_of(rung)) + ", " + masked.name +
                                           ", " + std::to_string(sizes.queries) + " x " +
                                           std::to_string(sizes.keys) + " on " + backend.name);
          if (HasFatalFailure()) return;
          ++tried;
        }
  }
  EXPECT_GE(tried, 6 * 4 * 4);
}

// Scales that are factored out, of each granularity that keeps packed elements exact.
TEST(AttentionMatrix, CodesWithTheirScalesAreExact) {
  const std::vector<BackendInfo> backends = matrix_backends();
  if (backends.empty()) GTEST_SKIP() << "this CPU has no matrix instructions; an emulator has";
  const Sizes sizes{.queries = 19, .keys = 258, .depth = 64, .width = 32};
  const Made made = make_inputs(sizes, Kind::biased, 5, DType::f32);
  struct Codes {
    const char* base;
    Tile tile;
  };
  const auto coded = [](const Tensor& tensor, const Codes& codes) {
    Scaling scaling = preset(codes.base);
    scaling.tile = codes.tile;
    return quantize(tensor.view(), scaling);
  };
  const auto rows = [](const QuantizedTensor& tensor) {
    // A tile of all rows has one scale for all, whatever its rank.
    return rows_of(dequantize(tensor, DType::f32).view(), 0, 0);
  };
  for (const Codes& qk : {Codes{"fp8", {0, 0}}, Codes{"fp8", {1, 0}}, Codes{"fp8:e5m2", {128, 0}},
                          Codes{"mxfp8", {1, 32}}, Codes{"mxint8", {1, 32}}})
    for (const Codes& of_v : {Codes{"fp8", {0, 0}}, Codes{"fp8", {0, 1}}, Codes{"fp8", {128, 0}},
                              Codes{"mxfp8", {1, 32}}}) {
      const QuantizedTensor q = coded(made.q, qk), k = coded(made.k, qk), v = coded(made.v, of_v);
      for (const BackendInfo& backend : backends)
        expect_exact_but_for_weights(
            rows(q), rows(k), rows(v),
            rows_of(attention(q, k, v, {.rung = AttentionRung::strict, .backend = backend.kernels})
                        .view(),
                    0, 0),
            {.keys = sizes.keys},
            std::string(qk.base) + " " + std::to_string(qk.tile.rows) + ", V " +
                std::to_string(of_v.tile.rows) + "x" + std::to_string(of_v.tile.cols) + " on " +
                backend.name);
    }
}

// V with a scale for each key, which AMX's method takes apart (key_factors.h): scales of any size
// and sign, and a key without any.
TEST(AttentionMatrix, EachKeyMayHaveAScaleOfItsOwn) {
  std::vector<BackendInfo> backends = matrix_backends();
  std::erase_if(backends, [](const BackendInfo& info) { return info.name != "cpu/amx"; });
  if (backends.empty()) GTEST_SKIP() << "this CPU has no AMX";
  for (const std::int64_t keys : {1, 5, 128, 258}) {
    const Sizes sizes{.queries = 35, .keys = keys, .depth = 64, .width = 48};
    const Made made = make_inputs(sizes, Kind::biased, 7, DType::f32);
    const QuantizedTensor q = quantize(made.q.view(), preset("fp8-channel")),
                          k = quantize(made.k.view(), preset("fp8-channel"));
    for (const float step : {1.0F, 1.5F, -0.25F, 0.0F}) {
      const QuantizedTensor v = quantize(made.v.view(), preset("fp8-channel"));
      const auto scales = v.rowwise.scales.span<float>();
      for (std::size_t i = 0; i < scales.size(); i += 3)
        scales[i] *= std::pow(step, static_cast<float>(i % 40));
      for (const BackendInfo& backend : backends)
        expect_exact_but_for_weights(
            rows_of(dequantize(q, DType::f32).view(), 0, 0),
            rows_of(dequantize(k, DType::f32).view(), 0, 0),
            rows_of(dequantize(v, DType::f32).view(), 0, 0),
            rows_of(attention(q, k, v, {.rung = AttentionRung::strict, .backend = backend.kernels})
                        .view(),
                    0, 0),
            {.keys = keys}, std::to_string(keys) + " keys, scales by " + std::to_string(step));
    }
  }
}

// A weight of zero is zero, not something small: what it is multiplied by may be anything.
TEST(AttentionMatrix, ValuesBehindAMaskDoNotCountHoweverLarge) {
  const std::vector<BackendInfo> backends = matrix_backends();
  if (backends.empty()) GTEST_SKIP() << "this CPU has no matrix instructions; an emulator has";
  const Sizes sizes{.queries = 30, .keys = 30, .depth = 16};
  for (const BackendInfo& backend : backends)
    for (const std::int64_t last : {1, 2, 5, 30}) {
      Made made = make_inputs(sizes, Kind::normal, 4, DType::f32);
      for (std::int64_t key = last; key < 30; ++key)
        for (std::int64_t e = 0; e < 16; ++e)
          made.v.span<float>()[static_cast<std::size_t>(key * 16 + e)] = 0x1p+127F;
      const Tensor out = attention(
          made.q, made.k, made.v,
          {.rung = AttentionRung::bf16, .mask = {.causal = true}, .backend = backend.kernels});
      for (std::int64_t at = 0; at < last * 16; ++at)
        ASSERT_LE(std::abs(out.span<float>()[static_cast<std::size_t>(at)]), 5.0F)
            << backend.name << ", row " << at / 16 << " of " << last;
    }
}

// BFMMLA flushes subnormals to zero: units of rows and tiles keep packed elements normal.
TEST(AttentionMatrix, MagnitudesOfInputsDoNotMatter) {
  const std::vector<BackendInfo> backends = matrix_backends();
  if (backends.empty()) GTEST_SKIP() << "this CPU has no matrix instructions; an emulator has";
  const Sizes sizes{.queries = 20, .keys = 70, .depth = 16};
  const auto times = [](Tensor& tensor, float factor) {
    for (float& number : tensor.span<float>()) number *= factor;
  };
  for (const BackendInfo& backend : backends)
    for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::strict})
      for (const float factor : {0x1p-100F, 0x1p-60F, 0x1p+60F, 0x1p+100F})
        for (const float of_v : {0x1p-124F, 0x1p-30F, 0x1p+124F}) {
          Made made = make_inputs(sizes, Kind::normal, 6, DType::f32);
          times(made.q, factor);
          times(made.k, 1.0F / factor);
          times(made.v, of_v);
          expect_exact_but_for_weights(
              made, {.rung = rung, .out = DType::f32, .backend = backend.kernels},
              {.keys = sizes.keys},
              backend.name + ", Q times " + std::to_string(std::log2(factor)) + ", V times " +
                  std::to_string(std::log2(of_v)));
          if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace octavo::testing
