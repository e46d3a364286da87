// Decode attention on a device against reference: types, scales, masks, pages, NaN, captured
// graphs. Both round P, reference to bf16 and the kernels to that or to f16, each by at most half a
// unit and with a divisor of what was rounded: results differ by at most 2^-8 of the largest |V|
// they see. Scores are sums in f32 of exact products, rounded toward zero: off by D 2^-23 of the
// sum of magnitudes, which adds 2^-10 here.
#include <cmath>
#include <random>

#include "octavo/base/error.h"
#include "octavo/nn/kv_cache.h"
#include "tests/attention/attention_cases.h"
#include "tests/cuda/device_memory.h"

namespace octavo::testing {
namespace {

constexpr Device kThere{DeviceKind::cuda, 0};
constexpr double kOfValues = 0x1p-8 + 0x1p-10;

using AttentionDecode = support::CudaTest;

// Empty where every element is as near as it must be, and NaN where it must be.
std::string far_from(const Tensor& got, const Tensor& want, double largest) {
  const auto a = got.span<float>(), b = want.span<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = std::isnan(b[i]) ? std::isnan(a[i])
                      : std::isinf(b[i])
                          ? a[i] == b[i]
                          : std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) <=
                                kOfValues * largest;
    if (!same) return text("element ", i, ": got ", a[i], "; expected ", b[i]);
  }
  return "";
}

Tensor as_type(const Tensor& of, DType dtype) {
  const auto numbers = of.span<float>();
  return tensor_of(of.shape(), {numbers.begin(), numbers.end()}, dtype);
}

double largest_of(const Tensor& values) {
  double largest = 0.0;
  for (const float number : values.span<float>())
    if (std::isfinite(number)) largest = std::max(largest, std::abs(static_cast<double>(number)));
  return largest;
}

struct Case {
  Sizes sizes;
  AttentionOptions options{};
};

// By both, with the log-sum-exp.
void check_case(const Made& made, const Operand& k, const Operand& v, const Operand& k_there,
                const Operand& v_there, AttentionOptions options, const std::string& what) {
  const Shape& q = made.q.shape();
  const Shape rows{q[0], q[1], q[2]};
  const Tensor lse = Tensor::values(rows, DType::f32),
               lse_there = values_on(kThere, rows, DType::f32),
               q_there = to_device(made.q.view(), kThere);
  options.out = DType::f32;
  AttentionOptions here = options;
  here.backend = &reference_backend();
  here.log_sum_exp = lse.view();
  const Tensor want = attention(made.q, k, v, here);
  options.log_sum_exp = lse_there.view();
  const Tensor got = to_host(attention(q_there, k_there, v_there, options).view());
  EXPECT_EQ(far_from(got, want, largest_of(made.v)), "") << what;
  // 2^-8 of a sum is 2^-8 of its logarithm.
  EXPECT_EQ(far_from(to_host(lse_there.view()), lse, 1.0), "") << what << ", log-sum-exp";
}

std::vector<Case> cases() {
  static const std::int64_t kKeys[] = {300, 0, 17}, kRows[] = {4, 4, 2};
  std::vector<Case> all;
  for (const std::int64_t depth : {64, 80, 128, 192, 256})
    all.push_back(
        {.sizes = {
             .batches = 2, .heads = 8, .kv_heads = 2, .queries = 1, .keys = 700, .depth = depth}});
  for (const std::int64_t heads : {2, 6, 16})
    for (const std::int64_t queries : {1, 3, 8})
      all.push_back(
          {.sizes = {.batches = 3,
                     .heads = heads,
                     .kv_heads = 2,
                     .queries = queries,
                     .keys = 300,
                     .depth = 128},
           .options = {.mask = {.causal = true, .bottom_right = true, .key_lengths = kKeys}}});
  all.push_back({.sizes = {.batches = 3,
                           .heads = 4,
                           .kv_heads = 2,
                           .queries = 4,
                           .keys = 300,
                           .depth = 64,
                           .width = 128},
                 .options = {.mask = {.causal = true,
                                      .bottom_right = true,
                                      .left = 50,
                                      .query_lengths = kRows,
                                      .key_lengths = kKeys}}});
  all.push_back(
      {.sizes = {.batches = 1, .heads = 4, .kv_heads = 1, .queries = 2, .keys = 5000, .depth = 128},
       .options = {.soft_cap = 5.0}});
  return all;
}

TEST_F(AttentionDecode, IsReference) {
  unsigned seed = 1;
  for (const Case& one : cases())
    for (const Kind kind : {Kind::normal, Kind::peaked, Kind::biased, Kind::ones}) {
      const Made made = make_inputs(one.sizes, kind, ++seed, DType::f32);
      const std::string what =
          text("D ", one.sizes.depth, ", heads ", one.sizes.heads, ", queries ", one.sizes.queries,
               ", keys ", one.sizes.keys, ", ", name_of(kind));
      AttentionOptions options = one.options;
      options.rung = AttentionRung::bf16;
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const Tensor k = as_type(made.k, dtype), v = as_type(made.v, dtype);
        check_case(made, k, v, to_device(k.view(), kThere), to_device(v.view(), kThere), options,
                   what + ", " + std::string(dtype_name(dtype)));
      }
      for (const char* name : {"fp8", "fp8-channel", "fp8-channel:e5m2", "mxfp8"}) {
        const QuantizedTensor k = quantize(made.k.view(), preset(name)),
                              v = quantize(made.v.view(), preset(name));
        const QuantizedTensor k_there = to_device(k, kThere), v_there = to_device(v, kThere);
        check_case(made, k, v, k_there, v_there, options, what + ", " + name);
      }
    }
}

// A key that a row does not see may be NaN; rows that see it are.
TEST_F(AttentionDecode, NaNOfKeysThatARowSees) {
  for (const char* name : {"fp8-channel", "fp8-channel:e5m2", ""}) {
    Made made = make_inputs(
        {.batches = 1, .heads = 4, .kv_heads = 2, .queries = 4, .keys = 200, .depth = 64},
        Kind::normal, 3, DType::f32);
    made.v.span<float>()[static_cast<std::size_t>(199 * 64 + 5)] = NAN;
    made.k.span<float>()[static_cast<std::size_t>((200 + 198) * 64)] = NAN;
    made.v.span<float>()[static_cast<std::size_t>((200 + 100) * 64 + 7)] = INFINITY;
    AttentionOptions options{.rung = AttentionRung::bf16,
                             .mask = {.causal = true, .bottom_right = true}};
    if (*name == 0) {
      const Tensor k = as_type(made.k, DType::bf16), v = as_type(made.v, DType::bf16);
      check_case(made, k, v, to_device(k.view(), kThere), to_device(v.view(), kThere), options,
                 "bf16");
      continue;
    }
    const QuantizedTensor k = quantize(made.k.view(), preset(name)),
                          v = quantize(made.v.view(), preset(name));
    const QuantizedTensor k_there = to_device(k, kThere), v_there = to_device(v, kThere);
    check_case(made, k, v, k_there, v_there, options, name);
  }
}

// A cache on the device, contiguous and in pages, that grows in runs of one graph, is the cache of
// the CPU.
TEST_F(AttentionDecode, CachesGrowInAGraph) {
  for (const std::int64_t page : {0, 16, 64}) {
    KvCache here(2, 2, 128, 128), there(2, 2, 128, 128, {.device = kThere, .page_tokens = page});
    const Made made = make_inputs(
        {.batches = 2, .heads = 8, .kv_heads = 2, .queries = 1, .keys = 150, .depth = 128},
        Kind::normal, 3, DType::f32);
    const std::int64_t counts[] = {150, 33};
    const Tensor k = to_device(made.k.view(), kThere), v = to_device(made.v.view(), kThere),
                 q = to_device(made.q.view(), kThere);
    const support::Stream stream;
    const Tensor out = values_on(kThere, made.q.shape(), DType::f32);
    here.append(made.k.view(), made.v.view(), counts);
    there.append(k.view(), v.view(), counts, stream.get());
    there.reserve(300, stream.get());
    View k_token = k.view(), v_token = v.view(), k_here = made.k.view(), v_here = made.v.view();
    for (View* view : {&k_token, &v_token, &k_here, &v_here}) view->shape[2] = 1;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    support::must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    there.append(k_token, v_token, {}, stream.get());
    there.attend_into(q, out.view(), {.rung = AttentionRung::bf16, .stream = stream.get()});
    support::must(cudaStreamEndCapture(stream.get(), &graph));
    support::must(cudaGraphInstantiate(&ready, graph, 0));
    for (int run = 0; run < 20; ++run) {
      here.append(k_here, v_here);
      support::must(cudaGraphLaunch(ready, stream.get()));
      stream.wait();
      const Tensor want =
          here.attend(made.q, {.rung = AttentionRung::bf16, .backend = &reference_backend()});
      EXPECT_EQ(far_from(to_host(out.view()), want, largest_of(made.v)), "")
          << "pages of " << page << ", run " << run;
    }
    support::must(cudaGraphExecDestroy(ready));
    support::must(cudaGraphDestroy(graph));
    EXPECT_EQ(there.lengths()[0], 170);
    EXPECT_EQ(there.lengths()[1], 53);
  }
}

}  // namespace
}  // namespace octavo::testing
