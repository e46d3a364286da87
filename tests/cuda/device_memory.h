// CUDA fixtures of device tests: memory, streams, and skipping where there is no device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "octavo/backend/cuda.h"
#include "octavo/backend/registry.h"

namespace octavo::support {

inline void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    must(cudaMalloc(&memory_, bytes > 0 ? bytes : 1));
    must(cudaMemset(memory_, 0xA5, bytes));  // shows bytes that are not written
    must(cudaDeviceSynchronize());
  }
  ~DeviceMemory() { (void)cudaFree(memory_); }
  DeviceMemory(DeviceMemory&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_) {
    other.memory_ = nullptr;
  }
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  void write(std::span<const std::byte> from, std::size_t at = 0) const {
    must(cudaMemcpy(data() + at, from.data(), from.size(), cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize());  // a small copy may still be in flight, and streams do not wait
                                    // for it
  }
  [[nodiscard]] std::vector<std::byte> read(std::size_t at, std::size_t bytes) const {
    std::vector<std::byte> host(bytes);
    must(cudaMemcpy(host.data(), data() + at, bytes, cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// A stream that does not wait for the default one.
class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  [[nodiscard]] Exec exec() const { return {.device = {DeviceKind::cuda, 0}, .stream = stream_}; }
  void wait() const { must(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// A captured graph, to be launched repeatedly.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& queue) {
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    queue();
    must(cudaStreamEndCapture(stream.get(), &graph));
    must(cudaGraphInstantiate(&ready_, graph, 0));
    must(cudaGraphDestroy(graph));
  }
  ~Graph() { (void)cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(const Stream& stream) const { must(cudaGraphLaunch(ready_, stream.get())); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = cuda::device_problem(0);
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
  static const DeviceApi& api() { return device_api({DeviceKind::cuda, 0}); }
};

}  // namespace octavo::support
