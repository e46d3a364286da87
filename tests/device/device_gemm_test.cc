// Products on a device: the reference's bytes, one device for everything, scratch that is given
// back.
#include "device_testing.h"

namespace octavo::testing {
namespace {

class GemmOnDevice : public OnDevice {
 protected:
  static constexpr std::int64_t kM = 20, kN = 33, kK = 70;
  const Tensor x = values_as(all_kinds_of_values(kM * kK, 3, true), {kM, kK}, DType::bf16),
               w = values_as(all_kinds_of_values(kN * kK, 5, true), {kN, kK}, DType::bf16),
               bias = values_as(all_kinds_of_values(kN, 7, true), {kN}, DType::f32),
               residual = values_as(all_kinds_of_values(kM * kN, 9, true), {kM, kN}, DType::f32);
  const Tensor x_there = to_device(x.view(), kFirst), w_there = to_device(w.view(), kFirst),
               bias_there = to_device(bias.view(), kFirst),
               residual_there = to_device(residual.view(), kFirst);
  const GemmOptions reference{.backend = &reference_backend()};
};

TEST_F(GemmOnDevice, ValuesOfTheReference) {
  for (const char* name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const QuantizedTensor a = quantize(x.view(), preset(name)),
                          b = quantize(w.view(), preset(name)), a_there = to_device(a, kFirst),
                          b_there = to_device(b, kFirst);
    GemmOptions options = reference;
    options.bias = bias.view();
    options.residual = residual.view();
    const Tensor wanted = gemm(a, b, options);
    const GemmOptions there{.bias = bias_there.view(), .residual = residual_there.view()};
    const Tensor got = gemm(a_there, b_there, there);
    EXPECT_EQ(got.view().device, kFirst);
    EXPECT_EQ(difference(to_host(got.view()), wanted), "") << name;
    captured([&] { gemm_into(a_there, b_there, got.view(), there); });
    EXPECT_EQ(difference(to_host(gemm_quantized(a_there, b_there, preset("mxfp8"), there)),
                         quantize(wanted.view(), preset("mxfp8"))),
              "")
        << name;
  }
  EXPECT_EQ(difference(to_host(gemm(x_there, w_there, {.out = DType::bf16}).view()),
                       gemm(x, w, {.out = DType::bf16, .backend = &reference_backend()})),
            "");
}

TEST_F(GemmOnDevice, EverythingIsOnOneDevice) {
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  const QuantizedTensor b = quantize(w.view(), preset("mxfp8"));
  refused(kInvalid, "A is on cuda:0 and B on cpu", [&] { (void)gemm(x_there, w); });
  refused(kInvalid, "A is on cuda:0 and B on cpu", [&] { (void)gemm(x_there, b); });
  refused(kInvalid, "A is on cpu and B on cuda:0", [&] { (void)gemm(x, to_device(b, kFirst)); });
  refused(kInvalid, "A is on cuda:0 and B on cuda:1",
          [&] { (void)gemm(x_there, to_device(b, kSecond)); });
  refused(kInvalid, "A is on cuda:0 and the bias on cpu",
          [&] { (void)gemm(x_there, w_there, {.bias = bias.view()}); });
  refused(kInvalid, "A is on cuda:0 and the residual on cpu",
          [&] { (void)gemm(x_there, w_there, {.residual = residual.view()}); });
  const Tensor out = Tensor::values({kM, kN}, DType::f32);
  refused(kInvalid, "the output on cpu", [&] { gemm_into(x_there, w_there, out.view()); });
}

TEST_F(GemmOnDevice, WhatADeviceDoesNotOffer) {
  Kernels fewer = *device.api().kernels;
  fewer.gemm_offered = [](const GemmJob& job) { return job.accumulator == Accumulator::native; };
  device.offer(fewer);
  (void)gemm(x_there, w_there);
  constexpr ErrorCode kUnsupported = ErrorCode::unsupported;
  refused(kUnsupported,
          "backend 'fake' does not offer this product: accumulator float16, A bfloat16, B "
          "bfloat16; use accumulator native, or copy to the CPU (x.cpu(), in C++ to_host)",
          [&] { (void)gemm(x_there, w_there, {.accumulator = Accumulator::f16}); });
  fewer.gemm = nullptr;
  device.offer(fewer);
  refused(kUnsupported, "accumulator native, A bfloat16, B bfloat16; copy to the CPU (x.cpu()",
          [&] { (void)gemm(x_there, w_there); });

  // As a Hopper does it.
  fewer = *device.api().kernels;
  fewer.gemm = [](const Exec&, const GemmJob&) {};
  fewer.gemm_offered = [](const GemmJob& job) {
    return job.accumulator != Accumulator::hopper_fp8 ||
           (job.promote_every == 128 && job.a.quantized.tile.cols == 0 &&
            job.a.quantized.codes.col_stride == 1);
  };
  device.offer(fewer);
  const QuantizedTensor rows = to_device(quantize(x.view(), preset("fp8-channel")), kFirst),
                        blocks = to_device(quantize(x.view(), preset("mxfp8")), kFirst),
                        weights = to_device(quantize(w.view(), preset("fp8-channel")), kFirst);
  GemmOptions options{.accumulator = Accumulator::hopper_fp8};
  (void)gemm(rows, weights, options);
  refused(kUnsupported,
          "accumulator hopper_fp8 with promote_every 128, A mxfp8: e4m3fn, tile 1x32, scale e8m0",
          [&] { (void)gemm(blocks, weights, options); });
  refused(kUnsupported, "B fp8-channel: e4m3fn, tile 1xall, scale f32; use accumulator native",
          [&] { (void)gemm(blocks, weights, options); });
  options.promote_every = 64;
  refused(kUnsupported, "with promote_every 64", [&] { (void)gemm(rows, weights, options); });
  refused(kUnsupported, "; use promote_every 128 or accumulator native, or copy",
          [&] { (void)gemm(rows, weights, options); });
  options.promote_every = 128;
  QuantizedTensor gaps = rows;
  View strided = gaps.rowwise.codes.view();
  strided.shape = gaps.shape = {kM, kK / 2};
  strided.strides[1] = 2;
  gaps.rowwise.codes = Tensor::adopt(strided, gaps.rowwise.codes.owner());
  View half = value_view(w_there.view().data, DType::bf16, {kN, kK / 2});
  half.device = kFirst;
  const QuantizedTensor half_weights = quantize(half, preset("fp8-channel"));
  refused(kUnsupported, "codes with gaps along K",
          [&] { (void)gemm(gaps, half_weights, options); });
}

// A count for the host synchronizes, which cannot be captured; its memory comes from the pool.
TEST_F(GemmOnDevice, ACountIsNotCaptured) {
  const Tensor out = values_on(kFirst, {kM, kN}, DType::f32);
  const int lasting = device.diary().lasting;
  std::int64_t aligned = 0;
  gemm_into(x_there, w_there, out.view(), {.aligned = &aligned});
  EXPECT_EQ(aligned, 0);
  EXPECT_EQ(device.diary().lasting, lasting);
  device.capture(true);
  refused(ErrorCode::unsupported, "no count of aligned elements can be returned to the host",
          [&] { gemm_into(x_there, w_there, out.view(), {.aligned = &aligned}); });
  device.capture(false);
}

// Row blocks of a product are internal: B, which all of them share, counts once. Their values need
// no lasting memory.
TEST_F(GemmOnDevice, RowBlocksOfAQuantizedProduct) {
  constexpr std::int64_t kRows = 4096, kCols = 2176, kDepth = 64;
  static const FakeDevice* there;
  static int calls;
  there = &device;
  calls = 0;
  Kernels kernels = *device.api().kernels;
  kernels.gemm = [](const Exec& exec, const GemmJob& job) {
    ++calls;
    if (job.aligned == nullptr) return;
    unsigned long long count = 0;
    there->api().copy(exec, &count, job.aligned, sizeof count);
    count += 7;
    there->api().copy(exec, job.aligned, &count, sizeof count);
  };
  kernels.quantize = [](const Exec&, const QuantizeJob&) {};
  device.offer(kernels);
  const auto made = [](std::int64_t rows, const char* name) {
    const Tensor values = Tensor::values({rows, kDepth}, DType::f32);
    std::ranges::fill(values.bytes(), std::byte{0});
    return to_device(quantize(values.view(), preset(name)), kFirst);
  };
  const QuantizedTensor a = made(kRows, "fp8-channel"), b = made(kCols, "mxfp8");
  const int lasting = device.diary().lasting;
  std::int64_t aligned = 0;
  (void)gemm_quantized(a, b, preset("mxfp8"), {.aligned = &aligned});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(aligned, 7);
  EXPECT_EQ(device.diary().lasting, lasting + 2);  // codes and scales
  QuantizedTensor out = make_quantized({kRows, kCols}, DType::f32, preset("mxfp8"), kFirst);
  captured([&] { gemm_quantized_into(a, b, out); });
}

TEST_F(GemmOnDevice, AQuantizedProductIntoMemoryThatIsThere) {
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  const QuantizedTensor a = quantize(x_there.view(), preset("mxfp8")),
                        b = quantize(w_there.view(), preset("mxfp8"));
  for (const char* name : {"mxfp8", "fp8", "nvfp4"}) {
    const QuantizedTensor wanted = to_host(gemm_quantized(a, b, preset(name)));
    QuantizedTensor out = make_quantized({kM, kN}, DType::bf16, preset(name), kFirst);
    const int lasting = device.diary().lasting;
    captured([&] { gemm_quantized_into(a, b, out); });
    EXPECT_EQ(device.diary().lasting, lasting);
    EXPECT_EQ(difference(to_host(out), wanted), "") << name;
    EXPECT_EQ(out.source, DType::f32);
  }
  QuantizedTensor wrong = make_quantized({kN, kM}, DType::f32, preset("fp8"), kFirst);
  refused(kInvalid, "the result is for [33, 20]; expected [20, 33]",
          [&] { gemm_quantized_into(a, b, wrong); });
  wrong = make_quantized({kM, kN}, DType::f32, preset("fp8"));
  const int launches = device.diary().launches;
  refused(kInvalid, "[gemm] A is on cuda:0 and codes on cpu",
          [&] { gemm_quantized_into(a, b, wrong); });
  EXPECT_EQ(device.diary().launches, launches);
  wrong = make_quantized({kM, kN}, DType::f32, preset("fp8"), kFirst);
  wrong.rowwise.codes = Tensor::adopt(code_view(a.rowwise.codes.view().data, e4m3fn, {kM, kN}),
                                      a.rowwise.codes.owner());
  refused(kInvalid, "codes of the result share memory with A",
          [&] { gemm_quantized_into(a, b, wrong); });
}

// Weights with gaps between them are multiplied one by one, and each job sets is_group.
TEST_F(GemmOnDevice, GroupsThatRunAsSeparateProductsSaySo) {
  static std::vector<bool> asked;
  asked.clear();
  Kernels kernels = *device.api().kernels;
  kernels.gemm_offered = [](const GemmJob& job) {
    if (job.group_count == 0) asked.push_back(job.is_group);
    return job.group_count == 0;
  };
  device.offer(kernels);
  const std::vector<std::int64_t> rows{12, 8};
  View stack = w_there.view();  // of two matrices, with 13 rows between them
  stack.shape = {2, 10, kK};
  stack.strides = {23 * stack.strides[0], stack.strides[0], stack.strides[1]};
  View here = w.view();
  here.shape = stack.shape;
  here.strides = stack.strides;
  const Tensor got = gemm_grouped(x_there.view(), stack, rows),
               wanted = gemm_grouped(x.view(), here, rows, reference);
  EXPECT_EQ(difference(to_host(got.view()), wanted), "");
  EXPECT_EQ(asked, (std::vector<bool>{true, true}));
  asked.clear();
  (void)gemm(x_there, w_there);
  EXPECT_EQ(asked, (std::vector<bool>{false}));
}

TEST_F(GemmOnDevice, WorkspaceOfTheCallerOrOfThePool) {
  Kernels hungry = *device.api().kernels;
  hungry.gemm_workspace = [](const Exec&, const GemmJob&) -> std::int64_t { return 1000; };
  device.offer(hungry);
  const Tensor out = values_on(kFirst, {kM, kN}, DType::f32);
  const int before = device.diary().allocations;
  gemm_into(x_there, w_there, out.view());
  EXPECT_EQ(device.diary().allocations, before + 1);
  EXPECT_GE(device.diary().workspace, 1000U);
  auto* own = static_cast<std::byte*>(device.memory(2000));
  gemm_into(x_there, w_there, out.view(), {.workspace = {own, 2000}});
  EXPECT_EQ(device.diary().allocations, before + 1);
  EXPECT_EQ(device.diary().workspace, 2000U);
}

TEST_F(GemmOnDevice, AWorkspaceIsDeviceMemoryOfItsOwn) {
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  const Tensor out = values_on(kFirst, {kM, kN}, DType::f32);
  const auto with = [&](void* memory, std::size_t bytes) {
    gemm_into(x_there, w_there, out.view(),
              {.workspace = {static_cast<std::byte*>(memory), bytes}});
  };
  std::array<std::byte, 256> here{};
  refused(kInvalid, "the workspace, declared to be on cuda:0, is not: it is memory of the host",
          [&] { with(here.data(), here.size()); });
  refused(kInvalid, "the workspace, declared to be on cuda:0, is not: it is memory of cuda:1",
          [&] { with(device.memory(256, 1), 256); });
  // One that is longer than its memory.
  refused(kInvalid, "the workspace, declared to be on cuda:0, is not",
          [&] { with(device.memory(4096 - 256), std::size_t{1} << 40); });
  auto* end = static_cast<std::byte*>(out.view().data) + kM * kN * sizeof(float);
  refused(kInvalid, "the workspace shares memory with the output", [&] { with(end - 1, 1); });
  refused(kInvalid, "the workspace shares memory with A", [&] { with(x_there.view().data, 256); });
  refused(kInvalid, "the workspace shares memory with the input", [&] {
    (void)quantize(x_there.view(), preset("fp8"),
                   {.workspace = {static_cast<std::byte*>(x_there.view().data), 256}});
  });
  refused(kInvalid, "the workspace, declared to be on cuda:0, is not",
          [&] { (void)amax(x_there.view(), {.workspace = here}); });
  with(device.memory(256), 256);
  with(nullptr, 0);
}

}  // namespace
}  // namespace octavo::testing
