#include "octavo/backend/cuda/runtime/runtime.h"

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

std::string_view advice(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "; the device is out of memory: free some, or use smaller tensors";
    case cudaErrorNoKernelImageForDevice:
      return "; the kernels were built for sm_90a (Hopper): use such a device, or the CPU";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
      return "; a kernel that ran before this call broke the context: nothing on this device works "
             "until the process ends";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return "; the stream is being captured into a graph, where this cannot be done";
    default:
      return "";
  }
}

std::string_view file_name(std::string_view path) {
  const auto at = path.rfind("octavo/backend");
  return at == std::string_view::npos ? path : path.substr(at);
}

}  // namespace

void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears our error, which is reported below, from later calls
  fail(ErrorCode::device, "cuda", call, " failed with ", cudaGetErrorName(status), " (",
       cudaGetErrorString(status), ") at ", file_name(file), ":", line, advice(status));
}

Scope::Scope(const Exec& exec) : device_(exec.device.index) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (pending != cudaSuccess) {
    fail(ErrorCode::device, "cuda", "an earlier CUDA call of this program failed with ",
         cudaGetErrorName(pending), " (", cudaGetErrorString(pending),
         ") and its error is still pending; octavo has done nothing. Find that call, or clear its "
         "error with "
         "cudaGetLastError()",
         advice(pending));
  }
  OCTAVO_CUDA_CHECK(cudaGetDevice(&before_));
  if (before_ != device_) OCTAVO_CUDA_CHECK(cudaSetDevice(device_));
}

Scope::~Scope() {
  if (before_ != device_) (void)cudaSetDevice(before_);
}

namespace {

// Bytes that octavo's memory pool on a device keeps between calls. The device's default pool
// releases all memory whenever a caller synchronizes with the device, and mapping it again in every
// call costs more than most kernels.
constexpr std::uint64_t kKeptBytes = std::uint64_t{1} << 29;
constexpr int kMaxDevices = 64;

}  // namespace

cudaMemPool_t pool_of(const Exec& exec) {
  const int device = exec.device.index;
  static std::mutex guard;
  static cudaMemPool_t pools[kMaxDevices] = {};
  const std::lock_guard lock(guard);
  cudaMemPool_t& pool = pools[device % kMaxDevices];
  if (pool == nullptr) {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = device;
    // Relaxed also while this thread's stream is being captured: the pool is not part of the graph.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OCTAVO_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaMemPool_t made = nullptr;
    cudaError_t status = cudaMemPoolCreate(&made, &wanted);
    std::uint64_t kept = kKeptBytes;
    if (status == cudaSuccess)
      status = cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &kept);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    check_cuda(status, "making a pool of memory", __FILE__, __LINE__);
    pool = made;
  }
  return pool;
}

Scratch::Scratch(const Exec& exec, std::size_t bytes) : stream_(stream_of(exec)), bytes_(bytes) {
  if (exec.workspace.size() >= bytes && is_aligned(exec.workspace.data(), 16) && bytes > 0) {
    memory_ = exec.workspace.data();
    return;
  }
  if (bytes == 0) return;
  OCTAVO_CUDA_CHECK(cudaMallocFromPoolAsync(&memory_, bytes, pool_of(exec), stream_));
  owned_ = true;
}

Scratch::~Scratch() {
  if (owned_) (void)cudaFreeAsync(memory_, stream_);
}

void Scratch::clear() const {
  if (bytes_ > 0) OCTAVO_CUDA_CHECK(cudaMemsetAsync(memory_, 0, bytes_, stream_));
}

unsigned blocks_for(std::int64_t work, int per_block) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  check(blocks <= 0x7FFFFFFF, ErrorCode::unsupported, "cuda", "got work for ", blocks,
        " thread blocks; expected at most 2147483647, the limit of a grid; split the tensor");
  return static_cast<unsigned>(blocks);
}

}  // namespace octavo::cuda
