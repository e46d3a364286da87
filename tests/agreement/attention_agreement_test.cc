// Every backend's attention against reference, on every rung. Both round P, each to within half a
// step of its type, and may round differently: a kernel's scores are sums in f32. So with w_j the
// weights of a row, u the step of P and s the bound of a score's error, an output differs by at
// most (u + 2 s) sum_j w_j |v_j - o|, and by what P below the form's normal range loses. Kernels
// may sum runs of at most 32 products in f16: that is the worst case, and the L2 bound the usual
// one.
#include <algorithm>
#include <limits>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct RungStep {
  AttentionRung rung;
  double step;        // of P, relative: twice what a rounding can be off
  double typical_l2;  // between two backends whose P differ at ties alone, or are finer than asked
};
constexpr std::array kRungSteps = {
    RungStep{AttentionRung::f32, 0x1p-22, 1e-5}, RungStep{AttentionRung::bf16, 0x1p-7, 4e-3},
    RungStep{AttentionRung::strict, 0x1p-7, 6e-3}, RungStep{AttentionRung::balanced, 0x1p-7, 4e-3},
    RungStep{AttentionRung::fast, 0x1p-3, 3e-2}};

struct AgreementCase {
  std::string name;
  Sizes sizes;
  AttentionMask mask{};
  std::vector<std::int64_t> query_lengths{}, key_lengths{};
  Kind kind = Kind::normal;
  DType dtype = DType::bf16;
  double soft_cap = 0.0;
  std::vector<float> sinks{};
};

const std::vector<AgreementCase>& cases() {
  static const std::vector<AgreementCase> all = {
      {"square", {.heads = 2, .kv_heads = 2, .queries = 130, .keys = 130, .depth = 64}},
      {"long", {.queries = 65, .keys = 517, .depth = 128}},
      {"causal", {.queries = 200, .keys = 200, .depth = 64}, {.causal = true}},
      {"wide head",
       {.queries = 40, .keys = 150, .depth = 256},
       {.causal = true, .bottom_right = true}},
      {"odd head, other width", {.queries = 37, .keys = 99, .depth = 40, .width = 24}},
      {"smallest", {.queries = 1, .keys = 1, .depth = 8}},
      {"one query, grouped",
       {.batches = 2, .heads = 8, .kv_heads = 2, .queries = 1, .keys = 300, .depth = 128}},
      {"window", {.queries = 150, .keys = 150, .depth = 64}, {.left = 17, .right = 5}},
      {"lengths",
       {.batches = 3, .heads = 2, .kv_heads = 1, .queries = 50, .keys = 140, .depth = 64},
       {.causal = true, .bottom_right = true},
       {50, 7, 0},
       {140, 33, 5}},
      {"outlier", {.queries = 96, .keys = 256, .depth = 64}, {}, {}, {}, Kind::outlier},
      {"peaked", {.queries = 96, .keys = 256, .depth = 64}, {}, {}, {}, Kind::peaked},
      {"f32",
       {.queries = 60, .keys = 190, .depth = 64},
       {.causal = true},
       {},
       {},
       Kind::biased,
       DType::f32},
      {"f16", {.queries = 60, .keys = 190, .depth = 64}, {}, {}, {}, Kind::normal, DType::f16},
      {.name = "soft cap of large scores",
       .sizes = {.queries = 70, .keys = 190, .depth = 64},
       .mask = {.causal = true},
       .kind = Kind::peaked,
       .soft_cap = 4.0},
      {.name = "sinks, grouped",
       .sizes = {.heads = 6, .kv_heads = 2, .queries = 50, .keys = 140, .depth = 64},
       .mask = {.causal = true, .bottom_right = true, .left = 40},
       .sinks = {-kInf, -4.0F, 0.0F, 3.0F, 8.0F, 20.0F}},
      {.name = "soft cap and sinks, one query",
       .sizes = {.heads = 4, .kv_heads = 2, .queries = 1, .keys = 300, .depth = 128},
       .kind = Kind::biased,
       .soft_cap = 2.0,
       .sinks = {-1.0F, 0.0F, 5.0F, 7.0F}},
  };
  return all;
}

struct Outcome {
  Tensor out, lse;
};

Outcome outcome_of(const AgreementCase& how, const Made& made, AttentionRung rung,
                   const Kernels* backend) {
  const Sizes& sizes = how.sizes;
  AttentionMask mask = how.mask;
  mask.query_lengths = how.query_lengths;
  mask.key_lengths = how.key_lengths;
  Outcome outcome;
  outcome.lse = Tensor::values({sizes.batches, sizes.heads, sizes.queries}, DType::f32);
  outcome.out = attention(made.q, made.k, made.v,
                          {.rung = rung,
                           .mask = mask,
                           .soft_cap = how.soft_cap,
                           .sinks = view_of_sinks(how.sinks),
                           .out = DType::f32,
                           .log_sum_exp = outcome.lse.view(),
                           .backend = backend});
  return outcome;
}

void compare(const AgreementCase& how, const Made& made, const RungStep& step, const Outcome& want,
             const Outcome& got, const std::string& name) {
  const Sizes& sizes = how.sizes;
  const AttentionInputs inputs = attention_inputs(
      made.q, made.k, made.v,
      {.rung = step.rung, .soft_cap = how.soft_cap, .sinks = view_of_sinks(how.sinks)});
  const double scale = 1.0 / std::sqrt(static_cast<double>(sizes.depth));
  double error2 = 0.0, value2 = 0.0;
  for (std::int64_t batch = 0; batch < sizes.batches; ++batch)
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      const std::int64_t kv = head / (sizes.heads / sizes.kv_heads);
      const auto at = static_cast<std::size_t>(batch);
      const std::int64_t keys = how.key_lengths.empty() ? sizes.keys : how.key_lengths[at],
                         rows = how.query_lengths.empty() ? sizes.queries : how.query_lengths[at];
      const oracle::Sees sees{.causal = how.mask.causal,
                              .left = how.mask.left,
                              .right = how.mask.right,
                              .diagonal = how.mask.bottom_right ? keys - rows : 0,
                              .keys = keys};
      const oracle::Rows q = rows_of(inputs.q.view(), batch, head),
                         k = rows_of(inputs.k.view(), batch, kv),
                         v = rows_of(inputs.v.view(), batch, kv),
                         a = rows_of(want.out.view(), batch, head),
                         b = rows_of(got.out.view(), batch, head);
      for (std::int64_t row = 0; row < sizes.queries; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const auto lse_at =
            static_cast<std::size_t>((batch * sizes.heads + head) * sizes.queries + row);
        const double lse_a = static_cast<double>(want.lse.span<float>()[lse_at]),
                     lse_b = static_cast<double>(got.lse.span<float>()[lse_at]);
        if (row >= rows || lse_a == -HUGE_VAL) {
          ASSERT_EQ(lse_b, -HUGE_VAL) << name << ", row " << row;
          for (const double number : b[i]) ASSERT_EQ(number, 0.0) << name << ", row " << row;
          continue;
        }
        const oracle::AttendedRow exact = oracle::attended(
            q[i], k, v, scale, sees, row, logits_of(how.soft_cap, how.sinks, head));
        // D products and their sum in f32: each rounding is 2^-24 of at most sum_d |q k|. Where Q
        // and K are codes, two int8 limbs of each number instead, 1.9e-4 of the largest
        // product in each of D, or runs of 32 products in f16, and up to four of them, 36 roundings
        // of 2^-11.
        double products = 0.0, largest_v = 0.0, largest_q = 0.0, largest_k = 0.0;
        for (const double number : q[i]) largest_q = std::max(largest_q, std::abs(number));
        for (std::size_t j = 0; j < k.size(); ++j) {
          double sum = 0.0;
          for (std::size_t d = 0; d < q[i].size(); ++d) {
            sum += std::abs(q[i][d] * k[j][d]);
            largest_k = std::max(largest_k, std::abs(k[j][d]));
          }
          products = std::max(products, sum * scale);
          for (const double number : v[j]) largest_v = std::max(largest_v, std::abs(number));
        }
        const double depth = static_cast<double>(sizes.depth);
        const bool in_f32 = step.rung == AttentionRung::f32 || step.rung == AttentionRung::bf16;
        const double of_cap = kSoftCapError * how.soft_cap;  // a soft cap leaves other errors
        const double score =
            of_cap + (in_f32 ? (depth + 8.0) * 0x1p-24 * products
                             : std::max(1.9e-4 * depth * largest_q * largest_k * scale,
                                        36.0 * 0x1p-11 * products));
        // P of e4m3 has steps of 2^-9 / 256 below its normal range; the sum of p is 1/2 at least.
        const bool fp8 = step.rung == AttentionRung::strict || step.rung == AttentionRung::fast;
        const double lost = fp8 ? static_cast<double>(keys) * 0x1p-17 / 0.5 : 0.0;
        for (std::size_t e = 0; e < b[i].size(); ++e) {
          double spread = 0.0, mass = 0.0;
          for (std::size_t j = 0; j < k.size(); ++j) {
            spread += exact.weights[j] * std::abs(v[j][e] - exact.out[e]);
            mass += exact.weights[j] * std::abs(v[j][e]);
          }
          // V in f16, and runs of 32 products summed in it, where Q and K are codes.
          const double half = in_f32 ? 0.0 : 36.0 * 0x1p-11 * mass;
          const double bound = 1.1 * (step.step + 2.0 * score) * spread + half +
                               2.0 * lost * largest_v + 0x1p-20 * largest_v;
          ASSERT_NEAR(b[i][e], a[i][e], bound) << name << ", row " << row << ", column " << e;
          error2 += (b[i][e] - a[i][e]) * (b[i][e] - a[i][e]);
          value2 += a[i][e] * a[i][e];
        }
        // Smoothed keys: q shift is taken in f32, and is as large as the scores themselves.
        ASSERT_NEAR(lse_b, lse_a,
                    step.step + 4.0 * score + 2.0 * lost + 1e-5 * (1.0 + std::abs(lse_a)))
            << name << ", row " << row;
      }
    }
  EXPECT_LE(std::sqrt(error2), step.typical_l2 * std::sqrt(value2)) << name;
}

TEST(AttentionAgreement, EveryRungOnEveryBackend) {
  for (const AgreementCase& how : cases()) {
    const Made made = make_inputs(how.sizes, how.kind, 17, how.dtype);
    for (const RungStep& step : kRungSteps) {
      const Outcome want = outcome_of(how, made, step.rung, &reference_backend());
      for (const BackendInfo& backend : support::every_backend()) {
        if (backend.kernels == &reference_backend()) continue;
        const Outcome got = outcome_of(how, made, step.rung, backend.kernels);
        compare(how, made, step, want, got,
                how.name + ", " + std::string(octavo::name_of(step.rung)) + " on " +
                    std::string(backend.name));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Quantized operands of every scale granularity, on the rungs that take them.
TEST(AttentionAgreement, KindsOfScales) {
  const AgreementCase how{
      .name = "codes",
      .sizes = {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 33, .keys = 300, .depth = 64}};
  const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::f32);
  for (const auto& [base, tile] :
       {std::pair{"fp8", Tile{0, 0}}, std::pair{"fp8", Tile{300, 0}}, std::pair{"fp8", Tile{1, 0}},
        std::pair{"fp8", Tile{0, 1}}, std::pair{"fp8", Tile{128, 0}},
        std::pair{"mxfp8", Tile{1, 32}}, std::pair{"mxfp8:e5m2", Tile{1, 32}},
        std::pair{"fp8:e5m2", Tile{1, 0}}}) {
    Scaling scaling = preset(base);
    scaling.tile = tile;
    const QuantizedTensor k = quantize(made.k.view(), scaling),
                          v = quantize(made.v.view(), scaling),
                          q = quantize(made.q.view(), scaling);
    for (const bool of_codes : {true, false})
      for (const RungStep& step : kRungSteps) {
        if (step.rung == AttentionRung::balanced) continue;
        const auto run = [&](const Kernels* backend) {
          Outcome outcome;
          outcome.lse = Tensor::values({2, 4, 33}, DType::f32);
          outcome.out =
              attention(of_codes ? Operand(q) : Operand(made.q), k, v,
                        {.rung = step.rung, .log_sum_exp = outcome.lse.view(), .backend = backend});
          return outcome;
        };
        const Outcome want = run(&reference_backend());
        for (const BackendInfo& backend : support::every_backend()) {
          if (backend.kernels == &reference_backend()) continue;
          const Outcome got = run(backend.kernels);
          double error2 = 0.0, value2 = 0.0;
          for (std::size_t i = 0; i < got.out.span<float>().size(); ++i) {
            const double a = static_cast<double>(want.out.span<float>()[i]),
                         b = static_cast<double>(got.out.span<float>()[i]);
            error2 += (a - b) * (a - b);
            value2 += a * a;
          }
          EXPECT_LE(std::sqrt(error2 / value2), step.typical_l2)
              << base << " " << tile.rows << "x" << tile.cols << ", " << octavo::name_of(step.rung)
              << " on " << backend.name << (of_codes ? "" : ", Q as values");
        }
      }
  }
}

// Only these rows are written, with the bits of a call on all rows.
TEST(AttentionAgreement, RangesOfRows) {
  const Sizes sizes{
      .batches = 1, .heads = 3, .kv_heads = 3, .queries = 140, .keys = 140, .depth = 64};
  const Made made = make_inputs(sizes, Kind::normal, 5);
  const std::vector<AttentionRange> ranges = {
      {0, 1, 3, 1}, {0, 1, 9, 1}, {0, 2, 0, 140}, {0, 0, 64, 20}, {0, 0, 139, 1}};
  for (const BackendInfo& backend : support::every_backend())
    for (const RungStep& step : kRungSteps) {
      AttentionOptions options{.rung = step.rung,
                               .mask = {.causal = true},
                               .out = DType::f32,
                               .backend = backend.kernels};
      const Tensor whole = attention(made.q, made.k, made.v, options),
                   part = Tensor::values(whole.shape(), DType::f32);
      std::ranges::fill(part.span<float>(), 77.0F);
      options.ranges = ranges;
      attention_into(made.q, made.k, made.v, part.view(), options);
      for (std::int64_t head = 0; head < 3; ++head)
        for (std::int64_t row = 0; row < 140; ++row) {
          const bool wanted = std::ranges::any_of(ranges, [&](const AttentionRange& range) {
            return range.head == head && row >= range.first && row < range.first + range.count;
          });
          for (std::int64_t e = 0; e < 64; ++e) {
            const auto at = static_cast<std::size_t>((head * 140 + row) * 64 + e);
            if (!wanted) {
              ASSERT_EQ(part.span<float>()[at], 77.0F) << backend.name << " wrote row " << row;
            } else {
              ASSERT_NEAR(part.span<float>()[at], whole.span<float>()[at],
                          step.rung == AttentionRung::f32 ? 1e-5 : 0.35 * step.step + 1e-5)
                  << octavo::name_of(step.rung) << " on " << backend.name << ", row " << row;
            }
          }
        }
    }
}

}  // namespace
}  // namespace octavo::testing
