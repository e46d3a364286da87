// Where kernels state no bound, a call that asks for one is refused before anything is computed or
// recorded, and `auto` leaves their rungs out.
#include "octavo/backend/attention_norms_job.h"
#include "octavo/base/error_testing_internal.h"
#include "tests/attention/attention_oracle_bounds.h"

namespace octavo::testing {
namespace {

int computed = 0;

// The reference, counting what it computes. `kStates`: of which forms of P it states a bound.
template <bool (*kStates)(AttentionP)>
Kernels counting() {
  Kernels kernels = reference_backend();
  kernels.attention = [](const Exec& exec, const AttentionJob& job) {
    ++computed;
    reference_backend().attention(exec, job);
  };
  kernels.attention_prepare = [](const Exec& exec, const AttentionPrepareJob& job) {
    ++computed;
    reference_backend().attention_prepare(exec, job);
  };
  kernels.attention_norms = [](const Exec& exec, const AttentionNormsJob& job) {
    ++computed;
    reference_backend().attention_norms(exec, job);
  };
  kernels.attention_statistics = [](const Exec& exec, const AttentionStatisticsJob& job) {
    ++computed;
    reference_backend().attention_statistics(exec, job);
  };
  kernels.quantize = [](const Exec& exec, const QuantizeJob& job) {
    ++computed;
    reference_backend().quantize(exec, job);
  };
  kernels.attention_rounding = [](const AttentionJob& job, AttentionRounding& rounding) {
    return kStates(job.p) && reference_backend().attention_rounding(job, rounding);
  };
  return kernels;
}

bool never(AttentionP) { return false; }
bool of_values(AttentionP p) { return p == AttentionP::f32 || p == AttentionP::bf16; }

TEST(AttentionBoundRefusal, NothingIsComputedBefore) {
  const Made made = make_inputs({.queries = 12, .keys = 20}, Kind::normal, 2, DType::f32);
  const Tensor bound = Tensor::values({1, 1, 12}, DType::f32);
  const Kernels kernels = counting<never>();
  for (const AttentionRung rung :
       {AttentionRung::exact, AttentionRung::f32, AttentionRung::bf16, AttentionRung::strict,
        AttentionRung::balanced, AttentionRung::fast, AttentionRung::automatic}) {
    computed = 0;
    error_testing::expect_refused(ErrorCode::unsupported, "none is derived", [&] {
      (void)attention(made.q, made.k, made.v,
                      {.rung = rung, .bound = bound.view(), .backend = &kernels});
    });
    EXPECT_EQ(computed, 0) << octavo::name_of(rung);
  }
  for (const AttentionOptions& options :
       {AttentionOptions{.rung = AttentionRung::naive, .bound = bound.view(), .backend = &kernels},
        AttentionOptions{
            .dropout = {.probability = 0.5}, .bound = bound.view(), .backend = &kernels},
        AttentionOptions{.rung = AttentionRung::fast, .certified = true, .backend = &kernels}}) {
    computed = 0;
    EXPECT_NE(error_testing::message_of([&] { (void)attention(made.q, made.k, made.v, options); }),
              "");
    EXPECT_EQ(computed, 0);
  }
}

// State of a layer stays as it is: the amax of a call that was refused is not recorded.
TEST(AttentionBoundRefusal, QuantizersRecordNothing) {
  const Made made = make_inputs({.queries = 12, .keys = 20}, Kind::normal, 2, DType::f32);
  const Tensor bound = Tensor::values({1, 1, 12}, DType::f32);
  const Kernels kernels = counting<of_values>();
  float inv_scale = 1.0F, amax = 0.0F;
  Float8Quantizer quantizer({.inv_scale = view_of(std::span<float>(&inv_scale, 1)),
                             .amax = view_of(std::span<float>(&amax, 1)),
                             .columnwise = false});
  AttentionOptions options{.rung = AttentionRung::fast,
                           .bound = bound.view(),
                           .q_quantizer = &quantizer,
                           .k_quantizer = &quantizer,
                           .v_quantizer = &quantizer,
                           .backend = &kernels};
  error_testing::expect_refused(ErrorCode::unsupported, "none is derived",
                                [&] { (void)attention(made.q, made.k, made.v, options); });
  EXPECT_EQ(amax, 0.0F);
  options.bound = {};
  (void)attention(made.q, made.k, made.v, options);
  EXPECT_GT(amax, 0.0F);
}

// Where cheap rungs have no bound, `auto` with one takes others, certified or not.
TEST(AttentionBoundRefusal, AutomaticLeavesThoseRungsOut) {
  const Made made = make_inputs({.queries = 150, .keys = 150}, Kind::normal, 2, DType::bf16);
  const QuantizedTensor q = quantize(made.q.view(), preset("fp8-channel")),
                        k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  const Kernels kernels = counting<of_values>();
  for (const bool is_certified : {false, true}) {
    AttentionReport report;
    AttentionOptions options{.rtol = 0.0,
                             .atol = 1.0,
                             .out = DType::f32,
                             .certified = is_certified,
                             .report = &report,
                             .backend = &kernels};
    if (!is_certified) {  // without a bound the cheapest passes
      (void)attention(q, k, v, options);
      ASSERT_FALSE(report.choices.empty());
      EXPECT_EQ(report.choices[0].rung, AttentionRung::fast);
    }
    const Tensor bound = Tensor::values({1, 1, 150}, DType::f32);
    options.bound = bound.view();
    (void)attention(q, k, v, options);
    ASSERT_FALSE(report.choices.empty());
    for (const AttentionChoice& choice : report.choices)
      EXPECT_EQ(choice.rung, AttentionRung::bf16) << choice.explanation;
    options.report = nullptr;
    const HeldRows held = held_rows(q, k, v, {.options = options});
    EXPECT_EQ(held.above + held.unknown, 0) << held.first;
  }
}

}  // namespace
}  // namespace octavo::testing
