// Gradients of attention on a device, against the reference in f64 at the same inputs.
#include <bit>

#include "octavo/exec/device_tensor.h"
#include "tests/attention/attention_cases.h"
#include "tests/cuda/device_memory.h"

namespace octavo::testing {
namespace {

constexpr Device kDevice{DeviceKind::cuda, 0};

struct BackwardCase {
  std::string name;
  Sizes sizes;
  AttentionMask mask{};
  std::vector<std::int64_t> query_lengths{}, key_lengths{};
  double soft_cap = 0.0;
  std::vector<float> sinks{};
  AttentionDropout dropout{};
};

const std::vector<BackwardCase>& cases() {
  static const std::vector<BackwardCase> all = {
      {"one row and key", {.queries = 1, .keys = 1, .depth = 128}},
      {"a block", {.queries = 128, .keys = 128, .depth = 128}},
      {"around tiles", {.heads = 2, .kv_heads = 2, .queries = 193, .keys = 257, .depth = 128}},
      {"head size 64", {.heads = 2, .kv_heads = 2, .queries = 300, .keys = 270, .depth = 64}},
      {"causal",
       {.heads = 2, .kv_heads = 2, .queries = 500, .keys = 500, .depth = 128},
       {.causal = true}},
      {"causal, groups, bottom right",
       {.batches = 2, .heads = 6, .kv_heads = 2, .queries = 150, .keys = 400, .depth = 64},
       {.causal = true, .bottom_right = true}},
      {"rows without keys",
       {.queries = 300, .keys = 90, .depth = 128},
       {.causal = true, .bottom_right = true}},
      {"window",
       {.heads = 2, .kv_heads = 2, .queries = 400, .keys = 400, .depth = 128},
       {.left = 100, .right = 30}},
      {"lengths",
       {.batches = 3, .heads = 4, .kv_heads = 2, .queries = 260, .keys = 300, .depth = 128},
       {.causal = true, .bottom_right = true},
       {260, 77, 0},
       {300, 33, 5}},
      {.name = "soft cap",
       .sizes = {.heads = 2, .kv_heads = 2, .queries = 170, .keys = 130, .depth = 128},
       .soft_cap = 1.5},
      {.name = "sinks",
       .sizes = {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 160, .keys = 190, .depth = 64},
       .mask = {.causal = true, .bottom_right = true},
       .sinks = {-HUGE_VALF, -2.0F, 3.0F, 20.0F}},
      {.name = "dropout",
       .sizes =
           {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 200, .keys = 330, .depth = 128},
       .mask = {.causal = true, .bottom_right = true},
       .dropout = {0.2, 77}},
      {.name = "dropout, head size 64, soft cap",
       .sizes = {.heads = 2, .kv_heads = 2, .queries = 200, .keys = 330, .depth = 64},
       .soft_cap = 3.0,
       .dropout = {0.2, 78}},
  };
  return all;
}

struct Gradients {
  Tensor q, k, v, sinks;
};

AttentionOptions options_of(const BackwardCase& how, AttentionRung rung) {
  AttentionOptions options{
      .rung = rung, .mask = how.mask, .soft_cap = how.soft_cap, .dropout = how.dropout};
  options.mask.query_lengths = how.query_lengths;
  options.mask.key_lengths = how.key_lengths;
  return options;
}

// In f64, by the reference.
Gradients exact_of(const BackwardCase& how, const Made& made, const Tensor& d_out) {
  AttentionOptions options = options_of(how, AttentionRung::exact);
  options.sinks = view_of_sinks(how.sinks);
  options.backend = &reference_backend();
  Gradients to{Tensor::values(made.q.shape(), DType::f64),
               Tensor::values(made.k.shape(), DType::f64),
               Tensor::values(made.v.shape(), DType::f64),
               {}};
  if (!how.sinks.empty())
    to.sinks = Tensor::values({static_cast<std::int64_t>(how.sinks.size())}, DType::f64);
  attention_backward_into(made.q, made.k, made.v, d_out.view(), to.q.view(), to.k.view(),
                          to.v.view(), options, {}, how.sinks.empty() ? View{} : to.sinks.view());
  return to;
}

struct OnDevice {
  OnDevice(const BackwardCase& how, const Made& made, const Tensor& given, DType result)
      : q(to_device(made.q.view(), kDevice)),
        k(to_device(made.k.view(), kDevice)),
        v(to_device(made.v.view(), kDevice)),
        d_out(to_device(given.view(), kDevice)),
        d_q(values_on(kDevice, made.q.shape(), result)),
        d_k(values_on(kDevice, made.k.shape(), result)),
        d_v(values_on(kDevice, made.v.shape(), result)) {
    if (how.sinks.empty()) return;
    sinks = to_device(view_of_sinks(how.sinks), kDevice);
    d_sinks = values_on(kDevice, sinks.shape(), DType::f32);
  }
  Tensor q, k, v, d_out, d_q, d_k, d_v, sinks, d_sinks;
};

void run(const OnDevice& on, AttentionOptions options, const AttentionForward& forward = {}) {
  const bool sinks = on.sinks.owner() != nullptr;
  if (sinks) options.sinks = on.sinks.view();
  attention_backward_into(on.q, on.k, on.v, on.d_out.view(), on.d_q.view(), on.d_k.view(),
                          on.d_v.view(), options, forward, sinks ? on.d_sinks.view() : View{});
}

double number_of(const Tensor& tensor, std::size_t i) {
  switch (tensor.dtype()) {
    case DType::f64:
      return tensor.span<double>()[i];
    case DType::f32:
      return static_cast<double>(tensor.span<float>()[i]);
    default: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, tensor.bytes().data() + 2 * i, 2);
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
    }
  }
}

void expect_near(const Tensor& there, const Tensor& want, double bound, const std::string& name) {
  const Tensor got = to_host(there.view());
  double error2 = 0.0, want2 = 0.0;
  std::int64_t other = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(element_count(want.shape())); ++i) {
    const double a = number_of(want, i), b = number_of(got, i);
    if (std::isnan(a) || std::isnan(b)) {
      other += std::isnan(a) != std::isnan(b);
      continue;
    }
    error2 += (a - b) * (a - b);
    want2 += a * a;
  }
  EXPECT_EQ(other, 0) << name << ": NaN elsewhere";
  // A row of one key has a dS of zero, which f32 has within a few 2^-24 of dP.
  const double nothing = 1e-6 * std::sqrt(static_cast<double>(element_count(want.shape())));
  const bool is_zero = want2 == 0.0;
  EXPECT_LE(std::sqrt(error2), is_zero ? nothing : bound * std::sqrt(want2)) << name;
}
void expect_near(const OnDevice& on, const Gradients& want, double bound, const std::string& name) {
  expect_near(on.d_q, want.q, bound, name + ", dQ");
  expect_near(on.d_k, want.k, bound, name + ", dK");
  expect_near(on.d_v, want.v, bound, name + ", dV");
  if (want.sinks.owner() != nullptr)
    expect_near(on.d_sinks, want.sinks, bound + 0x1p-24, name + ", sinks");  // they are f32
}

Tensor gradient_of_out(const BackwardCase& how, DType dtype) {
  Sizes sizes = how.sizes;
  sizes.keys = sizes.queries;
  sizes.kv_heads = sizes.heads;
  return make_inputs(sizes, Kind::normal, 77, dtype).v;
}

// P and dS are rounded to bf16 once each, at most 2^-9 of themselves; delta is of an output that
// was made of P so rounded, which is as much again; results of 16 bits once more.
constexpr double kBf16 = 3.0 * 0x1p-9;

using AttentionBackwardOnDevice = support::CudaTest;

TEST_F(AttentionBackwardOnDevice, TensorCores) {
  for (const BackwardCase& how : cases())
    for (const DType result : {DType::bf16, DType::f32}) {
      Made made = make_inputs(how.sizes, Kind::normal, 5, DType::bf16);
      Tensor d_out = gradient_of_out(how, DType::bf16);
      const Gradients want = exact_of(how, made, d_out);
      const auto spoil = [](const Tensor& of, std::span<const std::int64_t> lengths) {
        const Shape& shape = of.shape();
        const auto row = static_cast<std::size_t>(shape[3] * 2);
        for (std::size_t b = 0; b < lengths.size(); ++b)
          for (std::int64_t h = 0; h < shape[1]; ++h)
            for (std::int64_t i = lengths[b]; i < shape[2]; ++i)
              std::ranges::fill(
                  of.bytes().subspan(
                      static_cast<std::size_t>(
                          (static_cast<std::int64_t>(b) * shape[1] + h) * shape[2] + i) *
                          row,
                      row),
                  std::byte{0xFF});
      };
      spoil(made.q, how.query_lengths);  // padding may hold anything
      spoil(d_out, how.query_lengths);
      spoil(made.k, how.key_lengths);
      spoil(made.v, how.key_lengths);
      const OnDevice on(how, made, d_out, result);
      Log log([&](std::string_view message) {
        EXPECT_EQ(message.find("[attention_backward]"), message.npos) << how.name << message;
      });
      AttentionOptions options = options_of(how, AttentionRung::bf16);
      options.log = &log;  // says so where the general kernel is taken
      run(on, options);
      expect_near(on, want, kBf16, how.name);
    }
}

// Of rung f32, exact, and bf16 with head sizes that tensor cores do not have, or a bias.
TEST_F(AttentionBackwardOnDevice, GeneralKernel) {
  for (const BackwardCase& how : cases())
    for (const AttentionRung rung : {AttentionRung::f32, AttentionRung::exact}) {
      const DType dtype = rung == AttentionRung::exact ? DType::f64 : DType::f32;
      const Made made = make_inputs(how.sizes, Kind::normal, 5, dtype);
      const Tensor d_out = gradient_of_out(how, dtype);
      const OnDevice on(how, made, d_out, dtype);
      run(on, options_of(how, rung));
      // As the CPU in f32 (tests/agreement/attention_backward_test.cc).
      expect_near(on, exact_of(how, made, d_out), rung == AttentionRung::exact ? 1e-12 : 1e-5,
                  how.name + " on " + std::string(name_of(rung)));
    }
  for (const std::int64_t depth : {24, 80, 256}) {
    BackwardCase how{"bias",
                     {.batches = 2,
                      .heads = 4,
                      .kv_heads = 2,
                      .queries = 70,
                      .keys = 110,
                      .depth = depth,
                      .width = 40},
                     {.causal = true, .bottom_right = true}};
    const Tensor bias = Tensor::values({4, 70, 110}, DType::f32);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    std::size_t i = 0;
    for (float& number : bias.span<float>()) {
      const std::size_t key = i % 110, row = i / 110 % 70;
      number = key == 9 || i++ % 7 == 2 || row == 50 ? -HUGE_VALF : normal(random);
    }
    how.mask.bias = bias.view();
    const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::bf16);
    Sizes of_out = how.sizes;
    of_out.depth = of_out.width;
    const Tensor d_out = gradient_of_out({"", of_out}, DType::bf16);
    const Gradients want = exact_of(how, made, d_out);
    const OnDevice on(how, made, d_out, DType::f32);
    const Tensor bias_there = to_device(bias.view(), kDevice);
    how.mask.bias = bias_there.view();
    run(on, options_of(how, AttentionRung::bf16));
    expect_near(on, want, 1e-5, "bias");
  }
}

// A NaN makes NaN of what sees it and of nothing else, whichever kernel does it.
TEST_F(AttentionBackwardOnDevice, NanGoesWhereItIsSeen) {
  const BackwardCase how{"causal", {.queries = 200, .keys = 200, .depth = 64}, {.causal = true}};
  for (const int which : {0, 1, 2, 3}) {
    const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::bf16);
    const Tensor d_out = gradient_of_out(how, DType::bf16);
    const Tensor* of[] = {&made.q, &made.k, &made.v, &d_out};
    const std::uint16_t nan = 0x7FC0;
    std::memcpy(of[which]->bytes().data() + (120 * 64 + 3) * 2, &nan, 2);
    const OnDevice on(how, made, d_out, DType::f32);
    run(on, options_of(how, AttentionRung::bf16));
    expect_near(on, exact_of(how, made, d_out), 1e-5, std::string("bad ") + "QKVO"[which]);
  }
}

// A forward pass on the device gives out and log-sum-exp. They are used: with log-sum-exps that are
// 0.5 more, dV is exp(-0.5) of itself.
TEST_F(AttentionBackwardOnDevice, ForwardIsHandedOver) {
  for (const BackwardCase& how : cases()) {
    const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::bf16);
    const Tensor d_out = gradient_of_out(how, DType::bf16);
    const OnDevice on(how, made, d_out, DType::f32);
    const Shape& q = made.q.shape();
    const Tensor lse = values_on(kDevice, {q[0], q[1], q[2]}, DType::f32);
    AttentionOptions options = options_of(how, AttentionRung::bf16);
    if (!how.sinks.empty()) options.sinks = on.sinks.view();
    options.log_sum_exp = lse.view();
    const Tensor out = attention(on.q, on.k, on.v, options);
    ASSERT_EQ(out.dtype(), DType::bf16);
    options.log_sum_exp = {};
    const Gradients want = exact_of(how, made, d_out);
    run(on, options, {.out = out.view(), .log_sum_exp = lse.view()});
    expect_near(on, want, kBf16, how.name);
    const Tensor more = to_host(lse.view());
    for (float& number : more.span<float>()) number += 0.5F;
    const Tensor more_there = to_device(more.view(), kDevice);
    run(on, options, {.out = out.view(), .log_sum_exp = more_there.view()});
    for (double& number : want.v.span<double>()) number *= std::exp(-0.5);
    expect_near(on.d_v, want.v, kBf16, how.name + ", less");
  }
}

// The same bits each time, beside other work and in a replayed graph.
TEST_F(AttentionBackwardOnDevice, TheSameBits) {
  const BackwardCase how{
      "causal",
      {.batches = 2, .heads = 8, .kv_heads = 4, .queries = 1500, .keys = 1500, .depth = 128},
      {.causal = true}};
  const Made made = make_inputs(how.sizes, Kind::normal, 5, DType::bf16);
  const Tensor d_out = gradient_of_out(how, DType::bf16);
  const OnDevice on(how, made, d_out, DType::bf16), beside(how, made, d_out, DType::bf16);
  const support::Stream stream, other;
  AttentionOptions options = options_of(how, AttentionRung::bf16);
  options.stream = stream.get();
  run(on, options);
  stream.wait();
  const auto bits = [&] {
    std::vector<std::vector<std::byte>> all;
    for (const Tensor* one : {&on.d_q, &on.d_k, &on.d_v}) {
      const Tensor host = to_host(one->view());
      all.emplace_back(host.bytes().begin(), host.bytes().end());
    }
    return all;
  };
  const auto first = bits();
  AttentionOptions elsewhere = options;
  elsewhere.stream = other.get();
  for (int i = 0; i < 10; ++i) {
    run(beside, elsewhere);
    run(on, options);
  }
  stream.wait();
  other.wait();
  EXPECT_EQ(bits(), first);
  const support::Graph graph(stream, [&] { run(on, options); });
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  stream.wait();
  EXPECT_EQ(bits(), first);
}

}  // namespace
}  // namespace octavo::testing
