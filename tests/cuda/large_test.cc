// More elements than 31 bits can count. The data repeats with a period that no power of two shares,
// so an index that wraps around reads something else.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "tests/cuda/device_quantizer.h"

namespace octavo::support {
namespace {

constexpr std::int64_t kPeriod = 16'777'213;  // a prime below 2^24
constexpr std::int64_t kWindow = 1 << 16;

// Repeated bytes, written a period at a time.
void fill(const DeviceMemory& memory, std::span<const std::byte> all) {
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
  fill(from, values.bytes());
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
  fill(from, values.bytes());
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

// e4m3 codes with per-row scales.
struct Codes {
  Codes(std::int64_t of_rows, std::int64_t of_cols, std::span<const std::byte> period)
      : rows(of_rows),
        cols(of_cols),
        codes(static_cast<std::size_t>(rows * cols)),
        scales(static_cast<std::size_t>(rows) * sizeof(float)) {
    fill(codes, period);
    std::vector<float> values;
    for (std::int64_t row = 0; row < rows; ++row)
      values.push_back(0.5F + static_cast<float>(row % 7));
    scales.write(std::as_bytes(std::span(values)));
  }
  // Some of its rows, on the device or copied to the host.
  [[nodiscard]] GemmOperand operand(std::int64_t count, void* code_bytes, void* numbers) const {
    GemmOperand made;
    made.quantized = {
        .codes = dense_matrix(code_bytes, code_view(nullptr, e4m3fn, {0}), count, cols),
        .scales = dense_matrix(numbers, value_view(nullptr, DType::f32, {0}), count, 1),
        .tile = {1, 0}};
    return made;
  }
  [[nodiscard]] GemmOperand all() const { return operand(rows, codes.data(), scales.data()); }

  std::int64_t rows, cols;
  DeviceMemory codes, scales;
};

DeviceMemory product_of(const DeviceApi& api, const Codes& a, const Codes& b, DType dtype) {
  DeviceMemory out(static_cast<std::size_t>(a.rows * b.rows * element_bytes(dtype)));
  const GemmJob job{
      .a = a.all(),
      .b = b.all(),
      .out = dense_matrix(out.data(), value_view(nullptr, dtype, {0}), a.rows, b.rows),
      .accumulator = Accumulator::hopper_fp8};
  EXPECT_TRUE(api.kernels->gemm_offered(job));
  const Stream stream;
  api.kernels->gemm(stream.exec(), job);
  stream.wait();
  return out;
}

// Rows of a product are those of the reference's model.
void expect_rows(const DeviceMemory& out, const Codes& a, const Codes& b, DType dtype,
                 std::initializer_list<std::size_t> rows) {
  const auto bytes = static_cast<std::size_t>(b.rows * element_bytes(dtype)),
             depth = static_cast<std::size_t>(a.cols);
  auto b_codes = b.codes.read(0, b.codes.size()), b_scales = b.scales.read(0, b.scales.size());
  for (const std::size_t row : rows) {
    auto codes = a.codes.read(row * depth, depth),
         scale = a.scales.read(row * sizeof(float), sizeof(float));
    std::vector<std::byte> wanted(bytes);
    reference_backend().gemm(
        {}, {.a = a.operand(1, codes.data(), scale.data()),
             .b = b.operand(b.rows, b_codes.data(), b_scales.data()),
             .out = dense_matrix(wanted.data(), value_view(nullptr, dtype, {0}), 1, b.rows),
             .accumulator = Accumulator::hopper_fp8});
    EXPECT_TRUE(std::ranges::equal(out.read(row * bytes, bytes), wanted))
        << dtype_name(dtype) << ", row " << row << " of " << a.rows << " x " << b.rows << " x "
        << a.cols;
  }
}

// Finite, of both signs.
std::vector<std::byte> period_of_codes() {
  std::vector<std::byte> codes(static_cast<std::size_t>(kPeriod));
  std::uint32_t state = 5;
  for (std::byte& code : codes) {
    state = state * 1664525u + 1013904223u;
    code = static_cast<std::byte>((state >> 16) % 0x70 | (state >> 31) << 7);
  }
  return codes;
}

// By TMA store, and by element stores.
TEST_F(Large, ProductsWithMoreThan31BitsOfResults) {
  const std::vector<std::byte> codes = period_of_codes();
  const Codes a(65'601, 144, codes), b(32'800, 144, codes);
  for (const DType dtype : {DType::bf16, DType::f32})
    expect_rows(product_of(api(), a, b, dtype), a, b, dtype, {0, 32'767, 65'470, 65'536, 65'600});
}

// Rows that TMA reads, and rows that are copied for it. As B they give the bits that they give as
// A.
TEST_F(Large, ProductsOfMoreThan31BitsOfCodes) {
  const std::vector<std::byte> codes = period_of_codes();
  for (const std::int64_t depth : {32'784, 32'785}) {
    const Codes many(65'601, depth, codes), few(40, depth, codes);
    const DeviceMemory as_a = product_of(api(), many, few, DType::f32),
                       as_b = product_of(api(), few, many, DType::f32);
    expect_rows(as_a, many, few, DType::f32, {0, 32'767, 65'500, 65'536, 65'600});
    const auto one = as_a.read(0, as_a.size()), other = as_b.read(0, as_b.size());
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < many.rows; ++row)
      for (std::int64_t col = 0; col < few.rows; ++col)
        wrong +=
            std::memcmp(&one[static_cast<std::size_t>(row * few.rows + col) * sizeof(float)],
                        &other[static_cast<std::size_t>(col * many.rows + row) * sizeof(float)],
                        sizeof(float)) != 0;
    EXPECT_EQ(wrong, 0) << "of " << many.rows * few.rows << ", K " << depth;
  }
}

// A batch whose matrices share A: all results together have more rows than 31 bits count.
TEST_F(Large, BatchesWithMoreThan31BitsOfRows) {
  constexpr std::int64_t kBatch = 2049, kRows = 1 << 20, kDepth = 16;
  const auto a_at = [](std::int64_t row, std::int64_t k) { return (row * 31 + k * 7) % 11 - 5; };
  const auto b_at = [](std::int64_t i, std::int64_t k) { return (i + k) % 5 - 2; };
  // Sums are integers of eight bits, which bf16 holds.
  const auto filled = [&](std::int64_t rows, auto at, const Shape& shape) {
    Tensor made = Tensor::values(shape, DType::bf16);
    auto bits = made.span<std::uint16_t>();
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < kDepth; ++k)
        bits[static_cast<std::size_t>(row * kDepth + k)] = static_cast<std::uint16_t>(
            std::bit_cast<std::uint32_t>(static_cast<float>(at(row, k))) >> 16);
    return to_device(made.view(), Device{DeviceKind::cuda, 0});
  };
  const Tensor a = filled(kRows, a_at, {kRows, kDepth}),
               b = filled(kBatch, b_at, {kBatch, 1, kDepth});
  const DeviceMemory out(static_cast<std::size_t>(kBatch * kRows) * 2);
  View result = value_view(out.data(), DType::bf16, {kBatch, kRows, 1});
  result.device = {DeviceKind::cuda, 0};
  gemm_into(a.view(), b.view(), result);
  must(cudaDeviceSynchronize());
  for (const std::int64_t i :
       {std::int64_t{0}, std::int64_t{1023}, kBatch - 3, kBatch - 2, kBatch - 1})
    for (const std::int64_t first : {std::int64_t{0}, kRows - kWindow}) {
      const auto bytes = out.read(static_cast<std::size_t>(i * kRows + first) * 2, kWindow * 2);
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < kWindow; ++row) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < kDepth; ++k) sum += a_at(first + row, k) * b_at(i, k);
        std::uint16_t got = 0;
        std::memcpy(&got, &bytes[static_cast<std::size_t>(row) * 2], sizeof(got));
        wrong += std::bit_cast<float>(std::uint32_t{got} << 16) != static_cast<float>(sum);
      }
      EXPECT_EQ(wrong, 0) << "of " << kWindow << " from row " << first << " of matrix " << i;
    }
}

}  // namespace
}  // namespace octavo::support
