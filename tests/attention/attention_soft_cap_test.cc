// Soft caps and sinks: the gate, decode attention, and inputs at their edges. Shapes and masks with
// them are in attention_forms_test.cc, every backend in tests/agreement.
#include <algorithm>
#include <limits>
#include <memory>

#include "tests/attention/attention_gate.h"

namespace octavo::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kSinks = {-kInf, -4.0F, 0.0F, 3.0F, 8.0F, 20.0F};
constexpr std::array kAllRungs = {
    AttentionRung::exact,  AttentionRung::f32,  AttentionRung::bf16,     AttentionRung::f16,
    AttentionRung::strict, AttentionRung::fast, AttentionRung::balanced, AttentionRung::automatic};

// 30 and 50 are Gemma 2's; 3 is far below the scores of peaked inputs.
TEST(AttentionSoftCap, GateWithCapsAndSinks) {
  int cells = 0;
  for (const AttentionRung rung :
       {AttentionRung::strict, AttentionRung::bf16, AttentionRung::automatic})
    for (const Kind kind : kGateKinds)
      for (const double cap : {0.0, 3.0, 30.0, 50.0})
        for (const bool has_sinks : {false, true}) {
          if (cap == 0.0 && !has_sinks) continue;
          const GateCell cell{.rung = rung,
                              .kind = kind,
                              .tokens = 256,
                              .depth = 64,
                              .causal = cells % 2 == 0,
                              .seed = 7,
                              .heads = has_sinks ? 6 : 1,
                              .rows = 24,
                              .of_own_inputs = rung == AttentionRung::strict,
                              .soft_cap = cap,
                              .sinks = has_sinks ? kSinks : std::vector<float>{}};
          const Errors errors = errors_of(cell);
          EXPECT_EQ(errors.failures, 0) << cell.name() << ": " << errors;
          ++cells;
        }
  EXPECT_EQ(cells, 3 * 4 * 7);
}

// All rows of heads whose first rows see few keys: the posteriori check and rows that are done
// again, with the log-sum-exp within the tolerance too.
TEST(AttentionSoftCap, AutoOnAllRowsWithItsLogSumExp) {
  const Sizes sizes{.heads = 6, .kv_heads = 2, .queries = 300, .keys = 300, .depth = 64};
  for (const Kind kind : kGateKinds) {
    const Made made = make_inputs(sizes, kind, 13);
    const Tensor lse = Tensor::values({1, 6, 300}, DType::f32);
    const Tensor out = attention(made.q, made.k, made.v,
                                 {.mask = {.causal = true},
                                  .soft_cap = 20.0,
                                  .sinks = view_of_sinks(kSinks),
                                  .out = DType::f32,
                                  .log_sum_exp = lse.view()});
    Errors errors;
    compare(errors, out.view(),
            {.q = made.q.view(),
             .k = made.k.view(),
             .v = made.v.view(),
             .sees = {.causal = true},
             .soft_cap = 20.0,
             .sinks = kSinks},
            spread_rows(sizes, 300));
    EXPECT_EQ(errors.failures, 0) << name_of(kind) << ": " << errors;
    for (std::int64_t head = 0; head < 6; ++head) {
      const oracle::Rows q = rows_of(made.q.view(), 0, head),
                         k = rows_of(made.k.view(), 0, head / 3),
                         v = rows_of(made.v.view(), 0, head / 3);
      for (std::size_t row = 0; row < 300; row += 13) {
        const double exact =
            oracle::attended(q[row], k, v, 0.125, {.causal = true}, static_cast<std::int64_t>(row),
                             logits_of(20.0, kSinks, head))
                .log_sum_exp;
        EXPECT_NEAR(
            static_cast<double>(lse.span<float>()[static_cast<std::size_t>(head) * 300 + row]),
            exact, 5e-3 + 5e-3 * std::abs(exact))
            << name_of(kind) << ", head " << head << ", row " << row;
      }
    }
  }
}

// A row's P has the same bits with a sink: its output is that without one times the share of its
// keys, to a few roundings of f32. strict and fast do not smooth K in either call, because it is
// codes.
TEST(AttentionSoftCap, ASinkChangesNoBitOfP) {
  const Sizes sizes{.heads = 6, .kv_heads = 6, .queries = 40, .keys = 200, .depth = 64};
  const Made made = make_inputs(sizes, Kind::normal, 3);
  const QuantizedTensor q = quantize(made.q.view(), preset("fp8-channel")),
                        k = quantize(made.k.view(), preset("fp8-channel"));
  for (const BackendInfo& backend : support::every_backend()) {
    for (const AttentionRung rung :
         {AttentionRung::f32, AttentionRung::bf16, AttentionRung::strict, AttentionRung::fast}) {
      const Tensor lse = Tensor::values({1, 6, 40}, DType::f32),
                   with_sink = Tensor::values({1, 6, 40}, DType::f32);
      AttentionOptions options{
          .rung = rung, .out = DType::f32, .log_sum_exp = lse.view(), .backend = backend.kernels};
      const Tensor plain = attention(q, k, made.v, options);
      options.sinks = view_of_sinks(kSinks);
      options.log_sum_exp = with_sink.view();
      const Tensor got = attention(q, k, made.v, options);
      for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
        const double sink = static_cast<double>(kSinks[i / (40 * 64)]),
                     keys = static_cast<double>(lse.span<float>()[i / 64]),
                     share = 1.0 / (1.0 + std::exp(sink - keys)),
                     want = static_cast<double>(plain.span<float>()[i]) * share;
        // A log-sum-exp of at most 8 is off by 2^-22.
        ASSERT_NEAR(static_cast<double>(got.span<float>()[i]), want, 0x1p-20 * std::abs(want))
            << octavo::name_of(rung) << " on " << backend.name << ", " << i;
        ASSERT_NEAR(static_cast<double>(with_sink.span<float>()[i / 64]),
                    std::max(sink, keys) + std::log1p(std::exp(-std::abs(sink - keys))), 1e-5);
      }
    }
  }
}

// Few query rows, whose keys are read where they lie: codes, and bf16.
TEST(AttentionSoftCap, Decode) {
  for (const BackendInfo& backend : support::every_backend()) {
    for (const Kind kind : {Kind::peaked, Kind::biased})
      for (const std::int64_t queries : {1, 2})
        for (const bool coded : {false, true}) {
          const Sizes sizes{
              .heads = 6, .kv_heads = 2, .queries = queries, .keys = 1100, .depth = 64};
          const Made made = make_inputs(sizes, kind, 4);
          const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                                v = quantize(made.v.view(), preset("fp8-channel"));
          const AttentionOptions options{
              .rung = AttentionRung::bf16,
              .mask = {.causal = true, .bottom_right = true, .left = 1060},
              .soft_cap = 5.0,
              .sinks = view_of_sinks(kSinks),
              .out = DType::f32,
              .backend = backend.kernels};
          const Tensor out =
              coded ? attention(made.q, k, v, options) : attention(made.q, made.k, made.v, options);
          const Tensor wide_k = dequantize(k, DType::f32), wide_v = dequantize(v, DType::f32);
          Errors errors;
          compare(errors, out.view(),
                  {.q = made.q.view(),
                   .k = coded ? wide_k.view() : made.k.view(),
                   .v = coded ? wide_v.view() : made.v.view(),
                   .sees = {.causal = true, .left = 1060, .diagonal = 1100 - queries},
                   .soft_cap = 5.0,
                   .sinks = kSinks},
                  spread_rows(sizes, queries));
          EXPECT_EQ(errors.failures, 0) << name_of(kind) << (coded ? ", e4m3" : ", bf16") << " on "
                                        << backend.name << ": " << errors;
        }
  }
}

// One key of weight 1: the log-sum-exp is its score, which is within kSoftCapError of the cap's
// tanh, and within the 2^-22 of a weight and f32's rounding.
TEST(AttentionSoftCap, TanhOnEveryBackend) {
  for (const BackendInfo& backend : support::every_backend()) {
    for (const double cap : {1e-3, 0.7, 30.0, 1e4}) {
      const std::int64_t rows = 400;
      const Tensor q = Tensor::values({rows, 1}, DType::f32),
                   one = Tensor::values({1, 1}, DType::f32),
                   lse = Tensor::values({rows}, DType::f32);
      one.span<float>()[0] = 1.0F;
      for (std::int64_t i = 0; i < rows; ++i)
        q.span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(
            cap * (i % 2 == 0 ? 1.0 : -1.0) * std::exp2(static_cast<double>(i) / 20.0 - 15.0));
      (void)attention(q, one, one,
                      {.rung = AttentionRung::f32,
                       .softmax_scale = 1.0,
                       .soft_cap = cap,
                       .log_sum_exp = lse.view(),
                       .backend = backend.kernels});
      for (std::size_t i = 0; i < lse.span<float>().size(); ++i) {
        const double exact = cap * std::tanh(static_cast<double>(q.span<float>()[i]) / cap);
        ASSERT_NEAR(static_cast<double>(lse.span<float>()[i]), exact,
                    (kSoftCapError + 0x1p-23) * std::abs(exact) + 0x1p-21)
            << "cap " << cap << " on " << backend.name;
      }
    }
  }
}

// The cap comes before the bias: with one key the log-sum-exp is tanh(10) + 3.
TEST(AttentionSoftCap, BiasIsAddedAfterTheCap) {
  const Tensor q = Tensor::values({1, 1}, DType::f32), k = Tensor::values({2, 1}, DType::f32),
               lse = Tensor::values({1}, DType::f32);
  q.span<float>()[0] = 10.0F;
  std::ranges::fill(k.span<float>(), 1.0F);
  const float added[] = {3.0F, -kInf};
  for (const BackendInfo& backend : support::every_backend()) {
    (void)attention(q, k, k,
                    {.rung = AttentionRung::f32,
                     .mask = {.bias = value_view(const_cast<float*>(added), DType::f32, {1, 2})},
                     .softmax_scale = 1.0,
                     .soft_cap = 1.0,
                     .log_sum_exp = lse.view(),
                     .backend = backend.kernels});
    EXPECT_NEAR(lse.span<float>()[0], std::tanh(10.0F) + 3.0F, 1e-6F) << backend.name;
  }
}

TEST(AttentionSoftCap, ASinkOfNanPoisonsItsHeadAlone) {
  const Sizes sizes{
      .batches = 2, .heads = 4, .kv_heads = 4, .queries = 60, .keys = 40, .depth = 32};
  const std::int64_t query_lengths[] = {60, 21};
  const std::vector<float> sinks = {0.5F, kNaN, kInf, -kInf};
  for (const BackendInfo& backend : support::every_backend())
    for (const AttentionRung rung : kAllRungs) {
      const Made made = make_inputs(sizes, Kind::normal, 6, DType::f32);
      const Tensor lse = Tensor::values({2, 4, 60}, DType::f32);
      // With fewer keys than rows the first 20 rows see none.
      const Tensor out =
          attention(made.q, made.k, made.v,
                    {.rung = rung,
                     .mask = {.causal = true, .bottom_right = true, .query_lengths = query_lengths},
                     .sinks = view_of_sinks(sinks),
                     .log_sum_exp = lse.view(),
                     .backend = backend.kernels});
      for (std::size_t at = 0; at < 2 * 4 * 60; ++at) {
        const std::size_t batch = at / 240, head = at / 60 % 4, row = at % 60;
        const bool is_padding = batch == 1 && row >= 21, sees_none = batch == 0 && row < 20,
                   is_poisoned = (head == 1 || head == 2) && !is_padding;
        const float number = out.span<float>()[at * 32], sum = lse.span<float>()[at];
        const std::string where = std::string(octavo::name_of(rung)) + " on " +
                                  std::string(backend.name) + ", head " + std::to_string(head) +
                                  ", row " + std::to_string(row);
        ASSERT_EQ(std::isnan(number), is_poisoned) << where;
        ASSERT_EQ(std::isnan(sum), is_poisoned) << where;
        if (is_poisoned) continue;
        ASSERT_EQ(number == 0.0F, is_padding || sees_none) << where;
        ASSERT_EQ(sum == -kInf, is_padding || (sees_none && sinks[head] == -kInf)) << where;
        ASSERT_TRUE(!sees_none || sum == sinks[head]) << where;
      }
    }
}

// Sinks beyond any score take all weight, or none; neither overflows.
TEST(AttentionSoftCap, HugeSinks) {
  const Sizes sizes{.heads = 4, .kv_heads = 1, .queries = 30, .keys = 50, .depth = 32};
  const Made made = make_inputs(sizes, Kind::normal, 9, DType::f32);
  const std::vector<float> sinks = {1e4F, 3.3e38F, -1e4F, -3.3e38F};
  for (const BackendInfo& backend : support::every_backend()) {
    for (const AttentionRung rung :
         {AttentionRung::f32, AttentionRung::bf16, AttentionRung::strict}) {
      const Tensor lse = Tensor::values({1, 4, 30}, DType::f32);
      const AttentionOptions plain{.rung = rung, .backend = backend.kernels};
      AttentionOptions options = plain;
      options.sinks = view_of_sinks(sinks);
      options.log_sum_exp = lse.view();
      const Tensor got = attention(made.q, made.k, made.v, options),
                   want = attention(made.q, made.k, made.v, plain);
      for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
        const bool is_all = i < got.span<float>().size() / 2;
        ASSERT_EQ(got.span<float>()[i], is_all ? 0.0F : want.span<float>()[i])
            << octavo::name_of(rung) << " on " << backend.name << ", " << i;
      }
      for (std::size_t row = 0; row < 60; ++row)
        ASSERT_EQ(lse.span<float>()[row], sinks[row / 30]) << backend.name;
    }
  }
}

// A score that is not finite may be a sum that overflowed, whose size nothing says: it poisons the
// rows that see its key, and no others. Without a cap one of -inf is a weight of zero.
TEST(AttentionSoftCap, InfiniteScoresPoison) {
  const Sizes sizes{.queries = 60, .keys = 60, .depth = 16};
  for (const BackendInfo& backend : support::every_backend()) {
    for (const float bad : {kInf, -kInf, kNaN}) {
      Made made = make_inputs(sizes, Kind::normal, 2, DType::f32);
      made.k.span<float>()[25 * 16 + 3] = bad;
      for (const AttentionRung rung :
           {AttentionRung::f32, AttentionRung::bf16, AttentionRung::exact}) {
        const Tensor got = attention(
            made.q, made.k, made.v,
            {.rung = rung, .mask = {.causal = true}, .soft_cap = 2.0, .backend = backend.kernels});
        for (std::size_t row = 0; row < 60; ++row)
          ASSERT_EQ(std::isnan(got.span<float>()[row * 16]), row >= 25)
              << backend.name << ", " << octavo::name_of(rung) << ", " << bad << ", row " << row;
      }
    }
  }
}

AttentionOperand operand_of(const Tensor& tensor) {
  const View& view = tensor.view();
  AttentionOperand operand{.batch_pitch = view.strides[0], .head_pitch = view.strides[1]};
  operand.first.values = {.data = view.data,
                          .dtype = view.dtype,
                          .rows = view.shape[2],
                          .cols = view.shape[3],
                          .row_pitch = view.strides[2],
                          .col_stride = view.strides[3]};
  return operand;
}

// What the interface of kernels gives beside the output: the largest p, which is of keys alone, and
// the largest weight of a row, which shares with the sink.
TEST(AttentionSoftCap, LargestPAndLargestWeight) {
  const Sizes sizes{.heads = 3, .kv_heads = 3, .queries = 30, .keys = 50, .depth = 32};
  const Made made = make_inputs(sizes, Kind::normal, 9, DType::f32);
  const std::vector<float> sinks = {4.0F, -1.0F, 60.0F};
  const Tensor out = Tensor::values({1, 3, 30, 32}, DType::f32);
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->attention == nullptr) continue;
    std::vector<float> weights(90);
    float largest_p[2] = {};
    for (const bool has_sinks : {false, true}) {
      AttentionJob job{
          .batches = 1, .heads = 3, .kv_heads = 3, .queries = 30, .keys = 50, .soft_cap = 2.0};
      job.q = operand_of(made.q);
      job.k = operand_of(made.k);
      job.v = operand_of(made.v);
      job.out = operand_of(out);
      job.softmax_scale = 1.0 / std::sqrt(32.0);
      job.p_amax = largest_p + (has_sinks ? 1 : 0);
      job.largest_weight = weights.data();
      if (has_sinks) job.sinks = {.first = sinks.data()};
      Exec exec;
      exec.threads = 1;
      std::vector<std::byte> memory(
          backend.kernels->attention_workspace == nullptr
              ? 0
              : static_cast<std::size_t>(backend.kernels->attention_workspace(exec, job)) + 64);
      void* at = memory.data();
      std::size_t space = memory.size();
      if (space > 0)
        exec.workspace = {static_cast<std::byte*>(std::align(64, 1, at, space)), space};
      backend.kernels->attention(exec, job);
    }
    EXPECT_EQ(largest_p[0], largest_p[1]) << backend.name;
    EXPECT_GT(largest_p[0], 0.5F) << backend.name;
    for (std::int64_t head = 0; head < 3; ++head) {
      const oracle::Rows q = rows_of(made.q.view(), 0, head), k = rows_of(made.k.view(), 0, head),
                         v = rows_of(made.v.view(), 0, head);
      for (std::size_t row = 0; row < 30; ++row) {
        const oracle::AttendedRow exact =
            oracle::attended(q[row], k, v, 1.0 / std::sqrt(32.0), {},
                             static_cast<std::int64_t>(row), logits_of(2.0, sinks, head));
        const double largest = std::ranges::max(exact.weights);
        EXPECT_NEAR(static_cast<double>(weights[static_cast<std::size_t>(head) * 30 + row]),
                    largest, largest / 8)
            << backend.name << ", head " << head << ", row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
