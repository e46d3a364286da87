// Attention of a device's tensors: nothing is read by the host, nothing waits, all memory is given
// back, and results are those of the CPU's reference.
#include "device_testing.h"
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

class DeviceAttention : public OnDevice {
 protected:
  struct There {
    Tensor q, k, v, out, lse;
  };
  There there(const Made& made, DType out) {
    const auto moved = [](const Tensor& tensor) { return to_device(tensor.view(), kFirst); };
    const Shape& q = made.q.shape();
    return {moved(made.q), moved(made.k), moved(made.v),
            values_on(kFirst, {q[0], q[1], q[2], made.v.shape()[3]}, out),
            values_on(kFirst, {q[0], q[1], q[2]}, DType::f32)};
  }
};

constexpr Sizes kSizes{
    .batches = 2, .heads = 4, .kv_heads = 2, .queries = 33, .keys = 50, .depth = 16, .width = 24};

TEST_F(DeviceAttention, EveryRungWithoutAWait) {
  const std::int64_t rows[] = {33, 5}, keys[] = {50, 0};
  for (const AttentionRung rung :
       {AttentionRung::exact, AttentionRung::f32, AttentionRung::bf16, AttentionRung::strict,
        AttentionRung::balanced, AttentionRung::fast, AttentionRung::naive})
    for (const DType out : {DType::f32, DType::bf16, DType::f64}) {
      const Made made = make_inputs(kSizes, Kind::biased, 3, DType::f32);
      const Shape& q = made.q.shape();
      const Tensor want = Tensor::values({q[0], q[1], q[2], 24}, out),
                   want_lse = Tensor::values({q[0], q[1], q[2]}, DType::f32);
      AttentionOptions options{.rung = rung,
                               .mask = {.causal = true,
                                        .bottom_right = true,
                                        .query_lengths = rows,
                                        .key_lengths = keys},
                               .log_sum_exp = want_lse.view(),
                               .backend = &reference_backend()};
      attention_into(made.q, made.k, made.v, want.view(), options);
      const There on = there(made, out);
      options.backend = nullptr;
      options.log_sum_exp = on.lse.view();
      captured([&] { attention_into(on.q, on.k, on.v, on.out.view(), options); });
      EXPECT_EQ(difference(to_host(on.out.view()), want), "")
          << name_of(rung) << ", " << dtype_name(out);
      EXPECT_EQ(difference(to_host(on.lse.view()), want_lse), "") << name_of(rung);
    }
}

// Pages of K and V, and numbers of keys that a device knows alone.
TEST_F(DeviceAttention, PagesAndLengthsOfTheDevice) {
  constexpr std::int64_t kPage = 16, kPages = 9;
  const Made pool = make_inputs(
      {.batches = kPages, .kv_heads = 2, .queries = 1, .keys = kPage, .depth = 16, .width = 24},
      Kind::normal, 7, DType::f32);
  const Made made = make_inputs(kSizes, Kind::normal, 3, DType::f32);
  const std::int32_t table[] = {7, 2, 0, 4, -1, 3, 8, 1, -5, 100};
  const std::int64_t lengths[] = {50, 33};
  const Shape& q = made.q.shape();
  const QuantizedTensor k = quantize(pool.k.view(), preset("fp8-channel")),
                        v = quantize(pool.v.view(), preset("fp8-channel"));
  for (const AttentionRung rung : {AttentionRung::f32, AttentionRung::bf16, AttentionRung::fast}) {
    const bool of_codes = rung == AttentionRung::fast;
    const Tensor want = Tensor::values({q[0], q[1], q[2], 24}, DType::f32);
    AttentionOptions options{.rung = rung,
                             .mask = {.causal = true, .key_lengths = lengths},
                             .block_table = {table, 2, 5, 5},
                             .backend = &reference_backend()};
    attention_into(made.q, of_codes ? Operand(k) : Operand(pool.k),
                   of_codes ? Operand(v) : Operand(pool.v), want.view(), options);
    const There on = there(made, DType::f32);
    const Tensor k_there = to_device(pool.k.view(), kFirst),
                 v_there = to_device(pool.v.view(), kFirst);
    const QuantizedTensor k_codes = to_device(k, kFirst), v_codes = to_device(v, kFirst);
    auto* const table_there = static_cast<std::int32_t*>(device.memory(sizeof table));
    auto* const lengths_there = static_cast<std::int64_t*>(device.memory(sizeof lengths));
    device.api().copy({.device = kFirst}, table_there, table, sizeof table);
    device.api().copy({.device = kFirst}, lengths_there, lengths, sizeof lengths);
    options.backend = nullptr;
    options.block_table.blocks = table_there;
    options.mask.key_lengths = {};
    options.mask.device_key_lengths = lengths_there;
    captured([&] {
      attention_into(on.q, of_codes ? Operand(k_codes) : Operand(k_there),
                     of_codes ? Operand(v_codes) : Operand(v_there), on.out.view(), options);
    });
    EXPECT_EQ(difference(to_host(on.out.view()), want), "") << name_of(rung);
    options.rung = AttentionRung::balanced;
    refused(ErrorCode::unsupported, "the others read all of K first",
            [&] { attention_into(on.q, k_there, v_there, on.out.view(), options); });
    options.rung = rung;
    options.block_table.blocks = table;
    refused(ErrorCode::invalid_argument, "the block table",
            [&] { attention_into(on.q, k_there, v_there, on.out.view(), options); });
  }
}

// Token by token in runs of one graph: the bits of the cache on the CPU.
TEST_F(DeviceAttention, CachesGrowOnTheDevice) {
  for (const std::int64_t page : {0, 4}) {
    const auto options_on = [&](Device where) {
      return KvCacheOptions{.capacity = 3, .device = where, .page_tokens = page};
    };
    KvCache here(2, 2, 16, 32, options_on({})), on_it(2, 2, 16, 32, options_on(kFirst));
    const Made made = make_inputs({.batches = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .queries = 1,
                                   .keys = 9,
                                   .depth = 16,
                                   .width = 32},
                                  Kind::normal, 5, DType::f32);
    const Tensor there_k = to_device(made.k.view(), kFirst),
                 there_v = to_device(made.v.view(), kFirst),
                 there_q = to_device(made.q.view(), kFirst),
                 out = values_on(kFirst, {2, 4, 1, 32}, DType::f32);
    const std::int64_t counts[] = {9, 2};
    here.append(made.k.view(), made.v.view(), counts);
    const int waits = device.diary().waits;
    on_it.append(there_k.view(), there_v.view(), counts);
    EXPECT_EQ(device.diary().waits, waits);
    const AttentionOptions exactly{.rung = AttentionRung::bf16, .backend = &reference_backend()};
    on_it.reserve(64);
    View k_token = there_k.view(), v_token = there_v.view();
    k_token.shape[2] = v_token.shape[2] = 1;
    View k_here = made.k.view(), v_here = made.v.view();
    k_here.shape[2] = v_here.shape[2] = 1;
    for (int run = 0; run < 3; ++run) {
      here.append(k_here, v_here);
      captured([&] {
        on_it.append(k_token, v_token);
        on_it.attend_into(there_q, out.view());
      });
      EXPECT_EQ(difference(to_host(out.view()), here.attend(made.q, exactly)), "")
          << "pages of " << page << ", run " << run;
    }
    EXPECT_EQ(on_it.lengths()[0], 12);
    EXPECT_EQ(on_it.lengths()[1], 5);
    EXPECT_EQ(difference(to_host(on_it.key_tokens()), here.key_tokens()), "");
    on_it.truncate(0, 4);
    here.truncate(0, 4);
    const KvCache copy = on_it;
    on_it.clear();
    EXPECT_EQ(difference(to_host(copy.value_tokens()), here.value_tokens()), "");
  }
}

TEST_F(DeviceAttention, RangesAndQuantizers) {
  const Made made = make_inputs(kSizes, Kind::normal, 5, DType::f32);
  const There on = there(made, DType::f32);
  const AttentionRange ranges[] = {{0, 1, 3, 9}, {1, 3, 32, 1}};
  float* const inv_scale = number(256.0F);
  float* const amax = number(0.0F);
  View inv_scale_view = value_view(inv_scale, DType::f32, {1}),
       amax_view = value_view(amax, DType::f32, {1});
  inv_scale_view.device = amax_view.device = kFirst;
  Float8Quantizer p({.inv_scale = inv_scale_view, .amax = amax_view});
  captured([&] {
    attention_into(on.q, on.k, on.v, on.out.view(),
                   {.rung = AttentionRung::fast, .ranges = ranges, .p_quantizer = &p});
  });
  const float largest = fetched(amax);
  EXPECT_GT(largest, 0.5F);
  EXPECT_LE(largest, 1.0F);
}

// Of rungs whose inputs are values the bits are the reference's; codes become bf16 there, which is
// 2^-9 of them, and their products with the errors of dS no more than four times that.
TEST_F(DeviceAttention, GradientsWithoutAWait) {
  const std::int64_t rows[] = {33, 5}, keys[] = {50, 0};
  const std::vector<float> logits = {0.5F, -HUGE_VALF, 3.0F, -2.0F};
  for (const AttentionRung rung :
       {AttentionRung::exact, AttentionRung::f32, AttentionRung::bf16, AttentionRung::automatic,
        AttentionRung::strict, AttentionRung::balanced, AttentionRung::fast}) {
    const Made made = make_inputs(kSizes, Kind::biased, 3, DType::f32);
    const Tensor d_out =
        make_inputs(
            {.batches = 2, .heads = 4, .kv_heads = 4, .queries = 33, .keys = 33, .depth = 24},
            Kind::normal, 4, DType::f32)
            .v;
    AttentionOptions options{
        .rung = rung,
        .mask = {.causal = true, .bottom_right = true, .query_lengths = rows, .key_lengths = keys},
        .sinks = view_of_sinks(logits),
        .dropout = {0.2, 9},
        .backend = &reference_backend()};
    const AttentionGradients want =
        attention_backward(made.q, made.k, made.v, d_out.view(), options);
    const There on = there(made, DType::f32);
    const Tensor d_out_there = to_device(d_out.view(), kFirst),
                 sinks = to_device(view_of_sinks(logits), kFirst),
                 d_q = values_on(kFirst, made.q.shape(), DType::f32),
                 d_k = values_on(kFirst, made.k.shape(), DType::f32),
                 d_v = values_on(kFirst, made.v.shape(), DType::f32),
                 d_sinks = values_on(kFirst, {4}, DType::f32);
    options.backend = nullptr;
    options.sinks = sinks.view();
    captured([&] {
      attention_backward_into(on.q, on.k, on.v, d_out_there.view(), d_q.view(), d_k.view(),
                              d_v.view(), options, {}, d_sinks.view());
    });
    const bool makes_codes = rung == AttentionRung::strict || rung == AttentionRung::fast ||
                             rung == AttentionRung::balanced;
    const Tensor* pairs[][2] = {
        {&d_q, &want.q}, {&d_k, &want.k}, {&d_v, &want.v}, {&d_sinks, &want.sinks}};
    for (const auto& [got, wanted] : pairs) {
      const Tensor host = to_host(got->view());
      double error2 = 0.0, want2 = 0.0;
      for (std::size_t i = 0; i < wanted->span<float>().size(); ++i) {
        const double a = static_cast<double>(host.span<float>()[i]),
                     b = static_cast<double>(wanted->span<float>()[i]);
        error2 += (a - b) * (a - b);
        want2 += b * b;
      }
      EXPECT_LE(std::sqrt(error2), (makes_codes ? 4 * 0x1p-9 : 0.0) * std::sqrt(want2))
          << name_of(rung);
    }
  }
}

TEST_F(DeviceAttention, RefusesMemoryOfAnother) {
  const Made made = make_inputs(kSizes, Kind::normal, 5, DType::f32);
  const There on = there(made, DType::f32);
  refused(ErrorCode::invalid_argument, "copy one to the other's device",
          [&] { attention_into(on.q, made.k, on.v, on.out.view(), {.rung = AttentionRung::f32}); });
}

}  // namespace
}  // namespace octavo::testing
