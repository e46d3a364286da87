// Environment of the cases: a device, a stream, the input matrix in each type, and memory for
// results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"

namespace octavo::bench {

void must(cudaError_t status, const char* what);

class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  [[nodiscard]] void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
};
using Buffer = std::shared_ptr<DeviceBuffer>;

class Lab {
 public:
  Lab(std::int64_t rows, std::int64_t cols);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  std::int64_t rows, cols;
  [[nodiscard]] std::int64_t count() const { return rows * cols; }
  [[nodiscard]] const DeviceApi& api() const { return api_; }
  // An entry of the device's kernels; throws if it is not offered.
  template <typename Entry>
  [[nodiscard]] Entry entry(Entry Kernels::*which) const {
    check(api_.kernels->*which != nullptr, ErrorCode::unsupported, "bench", "not offered yet");
    return api_.kernels->*which;
  }
  [[nodiscard]] Exec exec() const { return {.device = {DeviceKind::cuda, 0}, .stream = stream_}; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // The values, created on first use; f64 is not measured. Each `turn` has other values.
  Matrix values(DType dtype, int turn = 0);
  static Buffer buffer(std::int64_t bytes);
  // A dense matrix in new memory, which `keep` holds.
  static Matrix matrix(DType dtype, const Format& format, bool packed, std::int64_t rows,
                       std::int64_t cols, std::vector<Buffer>& keep);
  // A float in new memory.
  [[nodiscard]] float* number(float value, std::vector<Buffer>& keep) const;

 private:
  const DeviceApi& api_;
  cudaStream_t stream_ = nullptr;
  std::map<std::pair<DType, int>, Buffer> values_;
};

[[nodiscard]] std::int64_t bytes_of(const Matrix& matrix);

// One case to time: the call, and the bytes that it must move, each input counted once.
struct Work {
  std::int64_t bytes = 0;
  std::function<void(const Exec&)> run;
  std::function<void(const Exec&)> other{};  // alternates with it, if set
  std::vector<Buffer> keep{};
};

// `bar`: the least fraction of the copy rate it is held to; 0 for none.
struct Case {
  std::string group, name;
  double bar = 0;
  std::function<Work(Lab&)> make;
};

std::vector<Case> cast_cases();
std::vector<Case> scaled_cases();
std::vector<Case> quantize_cases();

}  // namespace octavo::bench
