// Every backend's attention against reference with P not rounded, at sizes around every tile's
// edges, with masks, groups of heads (GQA), and non-finite values.
//
// How far a kernel may be off. In f32: scores by D 2^-24 of sum |q k|, weights by 2^-22, both far
// below kWide for these sizes. With sums in f16, standard deviations, for V of a deviation of one
// (docs/numerics/attention.md):
//   weights, 2^-11 / sqrt(3) and 7.5e-5 for the polynomial:             2.9e-4
//   sums of a run of 32 weighted values, 2^-11 sqrt(32) / 3:            9.2e-4
//   scores, 2.7e-3 at most, times the 1/2 that a row of two keys has:  1.35e-3
// together 1.7e-3. The test allows ten of them, since it checks a hundred thousand elements whose
// rows are of all kinds, in units of the largest |v|, which is 4.5 of V's deviations: 3.8e-3.
#include <numeric>

#include "octavo/backend/attention_job.h"
#include "octavo/ops/attention/attention_call_internal.h"
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

struct Form {
  const char* name;
  DType values;
  AttentionP p;
  const char *qk, *v;  // presets; null: values
  double bound;        // of the output, in units of the largest |v|
};
// The two kinds of methods: f32 throughout, or weights and their sums in f16 and scores in f16 or
// by limbs.
constexpr double kWide = 1e-5, kShort = 10 * 1.7e-3 / 4.5;
constexpr Form kForms[] = {
    {"f32", DType::f32, AttentionP::f32, nullptr, nullptr, kWide},
    {"bf16", DType::bf16, AttentionP::bf16, nullptr, nullptr, kShort},
    {"strict", DType::f32, AttentionP::fp8_split, "fp8", "fp8", kShort},
    {"strict per token", DType::f32, AttentionP::fp8_split, "fp8-channel", "fp8-channel", kShort},
    {"fast mx", DType::f32, AttentionP::fp8, "mxfp8", "mxfp8", kShort},
    {"balanced", DType::bf16, AttentionP::bf16, "mxint8", nullptr, kShort},
};

struct Case {
  Sizes sizes{};
  AttentionMask mask{};
  Kind kind = Kind::normal;
  DType dtype = DType::f32;
};

std::string describe(const Case& one) {
  const Sizes& s = one.sizes;
  return std::to_string(s.batches) + " x " + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " heads, " + std::to_string(s.queries) + " x " +
         std::to_string(s.keys) + ", D " + std::to_string(s.depth) + ", E " +
         std::to_string(s.width) + (one.mask.causal ? ", causal" : "") + ", left " +
         std::to_string(one.mask.left) + ", right " + std::to_string(one.mask.right);
}

class Attended {
 public:
  Attended(const Case& one, const Form& form, Made made)
      : one_(one), form_(form), made_(std::move(made)) {
    if (form.qk != nullptr) {
      q_ = quantize(made_.q.view(), preset(form.qk));
      k_ = quantize(made_.k.view(), preset(form.qk));
    }
    if (form.v != nullptr) v_ = quantize(made_.v.view(), preset(form.v));
  }

  // Out and log-sum-exp, one after the other.
  [[nodiscard]] std::vector<float> on(const Kernels& kernels, bool exact, int threads,
                                      std::vector<AttentionRange> ranges = {}) const {
    AttentionOptions options{.mask = one_.mask};
    options.ranges = ranges;
    const Operand q = form_.qk != nullptr ? Operand(q_) : Operand(made_.q.view()),
                  k = form_.qk != nullptr ? Operand(k_) : Operand(made_.k.view()),
                  v = form_.v != nullptr ? Operand(v_) : Operand(made_.v.view());
    const AttentionCall call(q, k, v, options, "test");
    AttentionJob job = call.job();
    const Tensor out = Tensor::values(call.out_shape(), DType::f32);
    std::vector<float> result(static_cast<std::size_t>(job.batches * job.heads * job.queries),
                              7.0F);
    std::fill(out.span<float>().begin(), out.span<float>().end(), 7.0F);
    job.out = AttentionStack(out.view(), "test", "O").operand();
    job.log_sum_exp = result.data();
    job.values = form_.values;
    job.p = exact ? AttentionP::f64 : form_.p;
    if (!exact && (job.p == AttentionP::fp8 || job.p == AttentionP::fp8_split)) job.p_factor = 256;
    Exec exec{.threads = threads};
    std::vector<std::byte> memory;
    if (kernels.attention_workspace != nullptr) {
      EXPECT_TRUE(kernels.attention_offered(job));
      memory.resize(static_cast<std::size_t>(kernels.attention_workspace(exec, job)) + 64);
      const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
      exec.workspace = std::span(memory).subspan((64 - at % 64) % 64);
    }
    kernels.attention(exec, job);
    const std::span<float> numbers = out.span<float>();
    result.insert(result.begin(), numbers.begin(), numbers.end());
    return result;
  }

 private:
  const Case& one_;
  const Form& form_;
  Made made_;
  QuantizedTensor q_, k_, v_;
};

// Where one is not finite the other must be the same kind of not finite.
void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, double most,
                 const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  double worst = 0.0;
  std::int64_t odd = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i]) || std::isinf(wanted[i])) {
      odd += std::isnan(wanted[i]) ? !std::isnan(got[i]) : got[i] != wanted[i];
    } else {
      const double off = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
      worst = off <= worst ? worst : off;
      odd += std::isnan(got[i]);
    }
  }
  EXPECT_LE(worst, most) << what;
  EXPECT_EQ(odd, 0) << what;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t size : {1, 2, 7, 31, 33, 63, 65, 80, 127, 129, 256})
    all.push_back({.sizes = {.queries = size, .keys = size, .depth = size, .width = size}});
  all.push_back({.sizes = {.queries = 3, .keys = 200, .depth = 64, .width = 40}});
  all.push_back({.sizes = {.queries = 130, .keys = 1, .depth = 16, .width = 16}});
  const Sizes group{.batches = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .queries = 50,
                    .keys = 150,
                    .depth = 32,
                    .width = 48};
  all.push_back({.sizes = group});
  all.push_back({.sizes = group, .mask = {.causal = true}});
  all.push_back({.sizes = group, .mask = {.causal = true, .bottom_right = true}});
  all.push_back({.sizes = group, .mask = {.left = 20, .right = 3}});
  all.push_back({.sizes = group, .mask = {.causal = true, .left = 70}});
  static constexpr std::int64_t kRows[] = {50, 17}, kKeys[] = {0, 101};
  all.push_back({.sizes = group, .mask = {.query_lengths = kRows, .key_lengths = kKeys}});
  // Decode attention: few rows and many keys, unpacked, split-KV.
  const Sizes few{.batches = 2,
                  .heads = 6,
                  .kv_heads = 2,
                  .queries = 2,
                  .keys = 1300,
                  .depth = 64,
                  .width = 80};
  static constexpr std::int64_t kLong[] = {1300, 1030};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    all.push_back({.sizes = few, .dtype = dtype});
    all.push_back({.sizes = few, .mask = {.causal = true, .bottom_right = true}, .dtype = dtype});
    all.push_back(
        {.sizes = few,
         .mask = {.causal = true, .bottom_right = true, .left = 1100, .key_lengths = kLong},
         .kind = Kind::peaked,
         .dtype = dtype});
  }
  all.push_back({.sizes = {.queries = 1, .keys = 70, .depth = 128, .width = 256},
                 .kind = Kind::biased,
                 .dtype = DType::bf16});
  const Sizes square{.queries = 300, .keys = 300, .depth = 64, .width = 64};
  for (const Kind kind : {Kind::outlier, Kind::peaked, Kind::biased})
    for (const bool causal : {false, true})
      all.push_back({.sizes = square, .mask = {.causal = causal}, .kind = kind});
  return all;
}

// A test of its own for each case: builds that take a part of the tests take some of these.
class AttentionCases : public ::testing::TestWithParam<std::size_t> {};

TEST_P(AttentionCases, AgreeWithTheReference) {
  const Case one = cases()[GetParam()];
  for (const Form& form : kForms) {
    if (one.sizes.depth % 4 != 0 && one.kind == Kind::outlier) continue;
    const Attended run(one, form, make_inputs(one.sizes, one.kind, 3, one.dtype));
    const std::vector<float> wanted = run.on(reference_backend(), true, 1);
    double largest = 4.5;  // expected maximum of that many normal samples

    if (one.kind == Kind::biased) largest += 0.7;
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.name == "reference") continue;
      expect_near(run.on(*backend.kernels, false, 2), wanted, form.bound * largest,
                  backend.name + " " + form.name + ": " + describe(one));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, AttentionCases, ::testing::Range<std::size_t>(0, cases().size()));

// A row that sees one key has its score as log-sum-exp, up to the rounding of its weight, 2^-11,
// and the polynomial, 7.5e-5. Scores of codes may be summed in f16 where norms are below a limit:
// then their errors have a standard deviation of at most 2.7e-3 for keys that are independent of
// the query (and are limbs or f32, and less, above it). Just below and just above the limit, which
// differs on the decode path: their sums are of depth / 16 products in each of sixteen lanes.
void expect_exact_scores(std::int64_t queries, double (*limit_of)(double depth)) {
  for (const std::int64_t depth : {32, 64, 128, 256})
    for (const double share : {0.5, 0.99, 1.01, 4.0}) {
      const std::int64_t heads = 3000 / queries;
      const Sizes sizes{
          .heads = heads, .kv_heads = heads, .queries = queries, .keys = 1, .depth = depth};
      const Made made = make_inputs(sizes, Kind::normal, 8, DType::f32);
      const QuantizedTensor q = quantize(made.q.view(), preset("fp8-channel")),
                            k = quantize(made.k.view(), preset("fp8-channel")),
                            v = quantize(made.v.view(), preset("fp8-channel"));
      // Heads have norms of their own; the largest of all makes the scale.
      double largest = 0.0;
      for (std::int64_t head = 0; head < sizes.heads; ++head) {
        double of_q = 0.0;
        for (const auto& row : rows_of(q, 0, head))
          of_q = std::max(of_q, std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
        const oracle::Rows keys = rows_of(k, 0, head);
        largest = std::max(largest, of_q * std::inner_product(keys[0].begin(), keys[0].end(),
                                                              keys[0].begin(), 0.0));
      }
      const auto scale =
          static_cast<float>(share * limit_of(static_cast<double>(depth)) / std::sqrt(largest));
      for (const BackendInfo& backend : support::every_backend()) {
        if (backend.name == "reference") continue;
        const Tensor lse = Tensor::values({1, sizes.heads, sizes.queries}, DType::f32);
        const Tensor out = attention(q, k, v,
                                     {.rung = AttentionRung::strict,
                                      .softmax_scale = scale,
                                      .log_sum_exp = lse.view(),
                                      .backend = backend.kernels});
        double squares = 0.0, most = 0.0;
        for (std::int64_t head = 0; head < sizes.heads; ++head) {
          const oracle::Rows rows = rows_of(q, 0, head), keys = rows_of(k, 0, head);
          for (std::size_t i = 0; i < rows.size(); ++i) {
            const double exact =
                std::inner_product(rows[i].begin(), rows[i].end(), keys[0].begin(), 0.0) *
                static_cast<double>(scale);
            const auto at = static_cast<std::size_t>(head * sizes.queries) + i;
            const double off = static_cast<double>(lse.span<float>()[at]) - exact;
            squares += off * off;
            most = std::max(most, std::abs(off));
          }
        }
        // The weight's own rounding is uniform: 2^-11 / sqrt(3).
        const double sigma = std::hypot(2.7e-3, 0x1p-11 / std::sqrt(3.0)) + 7.5e-5;
        const double rms = std::sqrt(squares / static_cast<double>(sizes.heads * sizes.queries));
        const std::string what = backend.name + ", " + std::to_string(queries) + " rows, D " +
                                 std::to_string(depth) + ", share " + std::to_string(share);
        EXPECT_LE(rms, sigma) << what;
        EXPECT_LE(most, 6.0 * sigma) << what;
      }
    }
}
TEST(AttentionKernels, ScoresAreAsExactAsNormsPromise) {
  expect_exact_scores(50, [](double depth) { return std::min(24.0, 2.39 * std::sqrt(depth)); });
}
TEST(AttentionKernels, DecodeScoresAreAsExactAsNormsPromise) {
  expect_exact_scores(10, [](double depth) {
    const double n = depth / 16.0;
    return std::min(2.7e-3 / std::sqrt((n + 7.0) / (32.0 * n)),
                    2.2e-2 / std::sqrt((n + 1.0) * (2.0 * n + 1.0) / (6.0 * n) + 3.0)) *
           0x1p+11 * std::sqrt(3.0);
  });
}

TEST(AttentionKernels, DoNotDependOnThreadsOrRanges) {
  const Case one{.sizes = {.heads = 2, .kv_heads = 1, .queries = 333, .keys = 500, .depth = 64},
                 .mask = {.causal = true, .bottom_right = true}};
  for (const Form& form : kForms) {
    const Attended run(one, form, make_inputs(one.sizes, one.kind, 4, DType::f32));
    for (const BackendInfo& backend : support::every_backend()) {
      if (backend.name == "reference") continue;
      const std::vector<float> alone = run.on(*backend.kernels, false, 1);
      EXPECT_EQ(alone, run.on(*backend.kernels, false, 5)) << backend.name << " " << form.name;
      const std::vector<AttentionRange> ranges = {{0, 1, 0, 100}, {0, 0, 5, 328}, {0, 1, 100, 233}};
      std::vector<float> some = run.on(*backend.kernels, false, 3, ranges);
      for (std::int64_t row = 0; row < 5; ++row) {
        for (std::int64_t e = 0; e < 64; ++e) {
          float& untouched = some[static_cast<std::size_t>(row * 64 + e)];
          EXPECT_EQ(untouched, 7.0F);
          untouched = alone[static_cast<std::size_t>(row * 64 + e)];
        }
        some[static_cast<std::size_t>(2 * 333 * 64 + row)] =
            alone[static_cast<std::size_t>(2 * 333 * 64 + row)];
      }
      EXPECT_EQ(alone, some) << backend.name << " " << form.name;
    }
  }
}

// A non-finite key, query or value affects the rows that see it, and no others.
void expect_kept(const Case& one) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  for (const Form& form : kForms)
    for (const float bad : {kNaN, kInf, -kInf})
      for (const int which : {0, 1, 2}) {
        if (bad != kNaN && form.qk != nullptr) continue;  // a code has no Inf
        Made made = make_inputs(one.sizes, one.kind, 5, DType::f32);
        Tensor& tensor = which == 0 ? made.q : which == 1 ? made.k : made.v;
        const std::int64_t row = which == 0 ? one.sizes.queries - 1 : 70;
        tensor.span<float>()[static_cast<std::size_t>(row * 32 + 9)] = bad;
        const Attended run(one, form, std::move(made));
        const std::vector<float> wanted = run.on(reference_backend(), true, 1);
        for (const BackendInfo& backend : support::every_backend()) {
          if (backend.name == "reference") continue;
          expect_near(run.on(*backend.kernels, false, 2), wanted, form.bound * 4.5,
                      backend.name + " " + form.name + " with a bad " + "QKV"[which]);
        }
      }
}

TEST(AttentionKernels, KeepNanWhereItIsSeen) {
  expect_kept({.sizes = {.queries = 100, .keys = 140, .depth = 32}, .mask = {.causal = true}});
}
TEST(AttentionKernels, KeepNanOnTheDecodePath) {
  // The first row sees keys up to 69, the next ones 70 as well.
  expect_kept({.sizes = {.queries = 6, .keys = 75, .depth = 32},
               .mask = {.causal = true, .bottom_right = true}});
}

}  // namespace
}  // namespace octavo::testing
