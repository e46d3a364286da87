// More elements than 31 bits can count. The data repeats with a period that no power of two shares,
// so an index that wraps around reads something else.
#include <algorithm>

#include "tests/cuda/device_quantizer.h"

namespace octavo::support {
namespace {

constexpr std::int64_t kPeriod = 16'777'213;  // a prime below 2^24
constexpr std::int64_t kWindow = 1 << 16;

// bf16 values that repeat, written a period at a time.
void fill(const DeviceMemory& memory, const Tensor& period) {
  const std::span<const std::byte> all = period.bytes();
  for (std::size_t at = 0; at < memory.size(); at += all.size()) {
    const std::size_t bytes = std::min(all.size(), memory.size() - at);
    if (at == 0) {
      memory.write(all.first(bytes));
    } else {
      must(cudaMemcpy(memory.data() + at, memory.data(), bytes, cudaMemcpyDeviceToDevice));
    }
  }
  must(cudaDeviceSynchronize());
}

class Large : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    std::size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total));
    if (free < std::size_t{24} << 30) GTEST_SKIP() << "wants 24 GiB of device memory";
  }
  static Tensor period() {
    Tensor tensor = Tensor::values({kPeriod}, DType::bf16);
    auto bits = tensor.span<std::uint16_t>();
    std::uint32_t state = 1;
    for (std::uint16_t& value : bits) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<std::uint16_t>(state >> 16);
      if ((value & 0x7F80u) == 0x7F80u) value &= 0xBFFFu;  // finite
    }
    return tensor;
  }
};

TEST_F(Large, CastsMoreThan31BitsOfElements) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 1000;
  const Tensor values = period();
  const Tensor wanted = encode(values.view(), e4m3fn);
  const DeviceMemory from(kCount * 2), to(kCount);
  fill(from, values);
  const Stream stream;
  api().kernels->encode(
      stream.exec(), dense_matrix(from.data(), value_view(nullptr, DType::bf16, {0}), 1, kCount),
      dense_matrix(to.data(), code_view(nullptr, e4m3fn, {0}), 1, kCount), {}, nullptr);
  stream.wait();
  for (const std::int64_t start : {std::int64_t{0}, kCount / 4, kCount / 2 - kWindow / 2,
                                   (std::int64_t{1} << 31) - kWindow, kCount - kWindow}) {
    const std::vector<std::byte> got =
        to.read(static_cast<std::size_t>(start), static_cast<std::size_t>(kWindow));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < kWindow; ++i)
      wrong += got[static_cast<std::size_t>(i)] !=
               wanted.bytes()[static_cast<std::size_t>((start + i) % kPeriod)];
    EXPECT_EQ(wrong, 0) << "of " << kWindow << " from element " << start;
  }
}

// Rows of 2^15: sampled rows are quantized again by the reference.
TEST_F(Large, QuantizesMoreThan31BitsOfElements) {
  constexpr std::int64_t kRows = 65'600, kCols = 32'768;
  const Tensor values = period();
  const Scaling scaling = preset("mxfp8");
  const DeviceMemory from(kRows * kCols * 2), codes(kRows * kCols), scales(kRows * kCols / 32);
  fill(from, values);
  QuantizeJob job{.scale = scaling.scale, .encode = scaling.encode};
  job.scale.context.input = InputType::bf16;
  job.source.values =
      dense_matrix(from.data(), value_view(nullptr, DType::bf16, {0}), kRows, kCols);
  job.rowwise = {
      .codes = dense_matrix(codes.data(), code_view(nullptr, e4m3fn, {0}), kRows, kCols),
      .scales = dense_matrix(scales.data(), code_view(nullptr, e8m0fnu, {0}), kRows, kCols / 32),
      .tile = scaling.tile};
  const Stream stream;
  api().kernels->quantize(stream.exec(), job);
  stream.wait();
  for (const std::int64_t row :
       {std::int64_t{0}, kRows / 2, std::int64_t{65'535}, std::int64_t{65'536}, kRows - 1}) {
    Tensor one = Tensor::values({1, kCols}, DType::bf16);
    for (std::int64_t i = 0; i < kCols; ++i)
      one.span<std::uint16_t>()[static_cast<std::size_t>(i)] =
          values.span<std::uint16_t>()[static_cast<std::size_t>((row * kCols + i) % kPeriod)];
    const QuantizedTensor wanted = quantize(one.view(), scaling);
    const auto got_codes = codes.read(static_cast<std::size_t>(row * kCols), kCols);
    const auto got_scales = scales.read(static_cast<std::size_t>(row * kCols / 32), kCols / 32);
    EXPECT_TRUE(std::ranges::equal(got_codes, wanted.rowwise.codes.bytes())) << "row " << row;
    EXPECT_TRUE(std::ranges::equal(got_scales, wanted.rowwise.scales.bytes())) << "row " << row;
  }
}

}  // namespace
}  // namespace octavo::support
