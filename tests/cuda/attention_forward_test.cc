// The forward kernels of attention on the tensor cores: what only a device shows. That they, and
// not the general kernel, take the jobs they are for; sums of P V over many keys; layouts with
// heads inside of rows; NaN in keys that a row does not see; graphs. Agreement with reference is
// tests/agreement.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "octavo/backend/cuda/attention/forward/forward.h"
#include "octavo/octavo.h"
#include "tests/cuda/device_memory.h"

namespace octavo::support {
namespace {

constexpr std::size_t kEach = 2;  // bytes of a bf16

std::uint16_t bf16_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
float number_of(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

// bf16 Q, K and V of one batch on the device, [heads, rows, size] or [rows, heads, size].
struct Forward {
  Forward(std::int64_t head_count, std::int64_t row_count, std::int64_t key_count,
          std::int64_t depth, bool heads_inside = false)
      : heads(head_count),
        rows(row_count),
        keys(key_count),
        size(depth),
        inside(heads_inside),
        q(bytes_of(rows)),
        k(bytes_of(keys)),
        v(bytes_of(keys)),
        out(static_cast<std::size_t>(heads * rows * size) * sizeof(float)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (DeviceMemory* memory : {&q, &k, &v}) {
      std::vector<std::uint16_t> bits(memory->size() / kEach);
      std::ranges::generate(bits, [&] { return bf16_bits(normal(random)); });
      memory->write(std::as_bytes(std::span(bits)));
    }
  }
  [[nodiscard]] std::size_t bytes_of(std::int64_t count) const {
    return static_cast<std::size_t>(heads * count * size) * kEach;
  }
  [[nodiscard]] std::int64_t place(std::int64_t head, std::int64_t row, std::int64_t count) const {
    return (inside ? row * heads + head : head * count + row) * size;
  }
  void set(const DeviceMemory& memory, std::int64_t head, std::int64_t row, std::int64_t col,
           std::int64_t count, float x) const {
    const std::uint16_t bits = bf16_bits(x);
    memory.write(std::as_bytes(std::span(&bits, 1)),
                 static_cast<std::size_t>(place(head, row, count) + col) * kEach);
  }
  void fill(const DeviceMemory& memory, float x) const {
    const std::vector<std::uint16_t> bits(memory.size() / kEach, bf16_bits(x));
    memory.write(std::as_bytes(std::span(bits)));
  }

  [[nodiscard]] AttentionJob job() const {
    const auto operand = [&](const DeviceMemory& memory, std::int64_t count) {
      const auto each = static_cast<std::int64_t>(kEach);
      AttentionOperand made{.batch_pitch = heads * count * size * each,
                            .head_pitch = (inside ? size : count * size) * each};
      made.first.values = {.data = memory.data(),
                           .dtype = DType::bf16,
                           .rows = count,
                           .cols = size,
                           .row_pitch = (inside ? heads * size : size) * each,
                           .col_stride = each};
      return made;
    };
    AttentionJob job{
        .batches = 1, .heads = heads, .kv_heads = heads, .queries = rows, .keys = keys};
    job.q = operand(q, rows);
    job.k = operand(k, keys);
    job.v = operand(v, keys);
    job.out.head_pitch = rows * size * 4;
    job.out.batch_pitch = heads * job.out.head_pitch;
    job.out.first.values = {.data = out.data(),
                            .dtype = DType::f32,
                            .rows = rows,
                            .cols = size,
                            .row_pitch = size * 4,
                            .col_stride = 4};
    job.softmax_scale = 1.0 / std::sqrt(static_cast<double>(size));
    job.values = DType::bf16;
    job.p = AttentionP::bf16;
    return job;
  }
  [[nodiscard]] std::vector<float> result() const {
    const std::vector<std::byte> bytes = out.read(0, out.size());
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  // A row in f64.
  [[nodiscard]] std::vector<double> exact(const AttentionJob& job, std::int64_t head,
                                          std::int64_t row) const {
    const auto read = [&](const DeviceMemory& memory, std::int64_t line, std::int64_t count) {
      const std::vector<std::byte> bytes =
          memory.read(static_cast<std::size_t>(place(head, line, count)) * kEach,
                      static_cast<std::size_t>(size) * kEach);
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(size));
      std::memcpy(bits.data(), bytes.data(), bytes.size());
      std::vector<double> numbers;
      for (const std::uint16_t b : bits) numbers.push_back(static_cast<double>(number_of(b)));
      return numbers;
    };
    const std::vector<double> of_q = read(q, row, rows);
    const AttentionJob::Keys seen = job.keys_of(0, row);
    std::vector<double> scores, sums(static_cast<std::size_t>(size), 0.0);
    double top = -HUGE_VAL, total = 0.0;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const std::vector<double> of_k = read(k, j, keys);
      double score = 0.0;
      for (std::size_t d = 0; d < of_q.size(); ++d) score += of_q[d] * of_k[d];
      scores.push_back(score * job.softmax_scale);
      top = std::max(top, scores.back());
    }
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const double weight = std::exp(scores[static_cast<std::size_t>(j - seen.begin)] - top);
      total += weight;
      const std::vector<double> of_v = read(v, j, keys);
      for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * of_v[d];
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }

  std::int64_t heads, rows, keys, size;
  bool inside;
  DeviceMemory q, k, v, out;
};

using AttentionForward = CudaTest;

TEST_F(AttentionForward, TakesItsJobs) {
  for (const std::int64_t size : {40, 64, 80, 96, 128, 192, 256}) {
    const Forward data(1, 8, 8, size);
    EXPECT_TRUE(cuda::attention_forward_offered(data.job())) << size;
    AttentionJob other = data.job();
    other.p = AttentionP::f32;
    EXPECT_FALSE(cuda::attention_forward_offered(other)) << "rung f32";
    other = data.job();
    other.soft_cap = 5.0;
    EXPECT_FALSE(cuda::attention_forward_offered(other)) << "soft cap";
  }
  EXPECT_FALSE(cuda::attention_forward_offered(Forward(1, 8, 8, 264).job()));
}

// P is off by half a step of bf16, 2^-9, and at random: 4e-3 is the L2 bound of the agreement
// tests.
TEST_F(AttentionForward, HeadSizesAndLayouts) {
  for (const std::int64_t size : {40, 64, 80, 96, 128, 192, 256})
    for (const bool inside : {false, true}) {
      const Forward data(3, 200, 333, size, inside);
      for (const bool causal : {false, true}) {
        AttentionJob job = data.job();
        job.right = causal ? 0 : -1;
        job.bottom_right = causal;
        api().kernels->attention({.device = {DeviceKind::cuda, 0}}, job);
        const std::vector<float> got = data.result();
        double error = 0.0, value = 0.0;
        for (const std::int64_t head : {0, 2})
          for (const std::int64_t row : {0, 1, 63, 64, 127, 128, 199}) {
            const std::vector<double> wanted = data.exact(job, head, row);
            for (std::int64_t d = 0; d < size; ++d) {
              const double number =
                  static_cast<double>(got[static_cast<std::size_t>((head * 200 + row) * size + d)]);
              const double off = number - wanted[static_cast<std::size_t>(d)];
              error += off * off;
              value += wanted[static_cast<std::size_t>(d)] * wanted[static_cast<std::size_t>(d)];
            }
          }
        EXPECT_LT(std::sqrt(error / value), 4e-3)
            << size << (inside ? ", heads inside" : "") << (causal ? ", causal" : "");
      }
    }
}

// Numerator and divisor are the same sums: what is constant stays so, to f32.
TEST_F(AttentionForward, ConstantValuesOfManyKeys) {
  for (const std::int64_t size : {64, 128, 256}) {
    const Forward data(1, 130, 16384, size);
    data.fill(data.v, 1.0F);
    api().kernels->attention({.device = {DeviceKind::cuda, 0}}, data.job());
    // Without ones beside V, at size 256, products are truncated to f32 and the divisor rounded:
    // 16384 / 16 sums of 2^-24 each.
    for (const float number : data.result()) ASSERT_NEAR(number, 1.0F, 1024 * 0x1p-24F) << size;
  }
}

// A NaN or Inf in V reaches the rows that see its key and no others, of both halves of a tile.
TEST_F(AttentionForward, WhatIsNotFiniteStaysWithItsKey) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::int64_t key : {0, 5, 70, 130, 255}) {
      const Forward data(2, 256, 256, 64);
      data.set(data.v, 1, key, 3, 256, bad);
      AttentionJob job = data.job();
      job.right = 0;
      api().kernels->attention({.device = {DeviceKind::cuda, 0}}, job);
      const std::vector<float> got = data.result();
      for (std::int64_t row = 0; row < 512; ++row)
        for (std::int64_t d = 0; d < 64; ++d) {
          const bool poisoned = row >= 256 + key && d == 3;
          ASSERT_EQ(!std::isfinite(got[static_cast<std::size_t>(row * 64 + d)]), poisoned)
              << "key " << key << ", row " << row << ", channel " << d;
        }
    }
  // In K it makes NaN of all channels.
  const Forward data(1, 200, 200, 64);
  data.set(data.k, 0, 70, 3, 200, std::numeric_limits<float>::quiet_NaN());
  AttentionJob job = data.job();
  job.right = 0;
  api().kernels->attention({.device = {DeviceKind::cuda, 0}}, job);
  const std::vector<float> got = data.result();
  for (std::int64_t row = 0; row < 200; ++row)
    for (std::int64_t d = 0; d < 64; ++d)
      ASSERT_EQ(std::isnan(got[static_cast<std::size_t>(row * 64 + d)]), row >= 70) << row;
}

TEST_F(AttentionForward, GraphGivesTheSameBits) {
  const Forward data(2, 300, 300, 128);
  AttentionJob job = data.job();
  job.right = 0;
  const Stream stream;
  api().kernels->attention(stream.exec(), job);
  stream.wait();
  const std::vector<float> wanted = data.result();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  api().kernels->attention(stream.exec(), job);
  must(cudaStreamEndCapture(stream.get(), &graph));
  must(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 3; ++i) {
    must(cudaMemset(data.out.data(), 0xA5, data.out.size()));
    must(cudaDeviceSynchronize());
    must(cudaGraphLaunch(ready, stream.get()));
    stream.wait();
    EXPECT_EQ(data.result(), wanted);
  }
  must(cudaGraphExecDestroy(ready));
  must(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace octavo::support
