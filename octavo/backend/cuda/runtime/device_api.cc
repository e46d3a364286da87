// DeviceApi of CUDA: device properties, memory, copies and streams.
#include <cuda_runtime_api.h>

#include "octavo/backend/cuda.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

void* allocate(const Exec& exec, std::size_t bytes) {
  const Scope scope(exec);
  void* memory = nullptr;
  OCTAVO_CUDA_CHECK(cudaMallocFromPoolAsync(&memory, bytes, pool_of(exec), stream_of(exec)));
  return memory;
}

void release(const Exec& exec, void* memory) noexcept {
  const FpEnvGuard guard;
  (void)cudaFreeAsync(memory, stream_of(exec));
}

void* allocate_lasting(const Exec& exec, std::size_t bytes) {
  const Scope scope(exec);
  void* memory = nullptr;
  if (bytes > 0) OCTAVO_CUDA_CHECK(cudaMalloc(&memory, bytes));
  return memory;
}

void free_lasting(int device, void* memory) noexcept {
  const FpEnvGuard guard;
  int before = 0;
  (void)cudaGetDevice(&before);
  (void)cudaSetDevice(device);
  (void)cudaFree(memory);
  (void)cudaSetDevice(before);
}

void copy(const Exec& exec, void* to, const void* from, std::size_t bytes) {
  const Scope scope(exec);
  if (bytes == 0) return;
  OCTAVO_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(exec)));
}

void clear(const Exec& exec, void* memory, std::size_t bytes) {
  const Scope scope(exec);
  if (bytes > 0) OCTAVO_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream_of(exec)));
}

void wait(const Exec& exec) {
  const Scope scope(exec);
  OCTAVO_CUDA_CHECK(cudaStreamSynchronize(stream_of(exec)));
}

bool capturing(const Exec& exec) {
  const FpEnvGuard guard;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // The legacy stream cannot be queried while another stream is captured; it is not captured
  // itself.
  const cudaError_t result = cudaStreamIsCapturing(stream_of(exec), &status);
  if (result == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();
    return true;  // waiting now would break that capture
  }
  OCTAVO_CUDA_CHECK(result);
  return status != cudaStreamCaptureStatusNone;
}

std::string pointer_problem(const Exec& exec, const void* memory) {
  const FpEnvGuard guard;
  cudaPointerAttributes about{};
  const cudaError_t status = cudaPointerGetAttributes(&about, memory);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return "it is not memory known to CUDA";
  }
  if (about.type == cudaMemoryTypeUnregistered) return "it is memory of the CPU, not of a device";
  if (about.type == cudaMemoryTypeDevice && about.device != exec.device.index)
    return text("it is memory of CUDA device ", about.device, ", not of device ",
                exec.device.index);
  return "";
}

constexpr DeviceApi kApi{.kernels = &kCudaKernels,
                         .allocate = allocate,
                         .release = release,
                         .allocate_lasting = allocate_lasting,
                         .free_lasting = free_lasting,
                         .copy = copy,
                         .upload = upload,
                         .clear = clear,
                         .wait = wait,
                         .capturing = capturing,
                         .pointer_problem = pointer_problem};

}  // namespace

const DeviceApi* api() { return &kApi; }

std::string device_problem(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return text("no CUDA device can be used: ", cudaGetErrorString(status),
                status == cudaErrorInsufficientDriver
                    ? "; install an NVIDIA driver for CUDA 13 or later, or use the CPU"
                    : "; use the CPU");
  }
  if (index < 0 || index >= count)
    return text("got CUDA device ", index, "; expected an index below ", count);
  int major = 0, minor = 0;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  if (major != 9 || minor != 0)
    return text("CUDA device ", index, " has compute capability ", major, ".", minor,
                ", and the kernels were built for 9.0 (Hopper: H100, H200); use the CPU");
  return "";
}

std::string summary() {
  const std::string problem = device_problem(0);
  if (!problem.empty()) return text("built with CUDA, but ", problem);
  cudaDeviceProp about{};
  int driver = 0, runtime = 0;
  (void)cudaGetDeviceProperties(&about, 0);
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const auto version = [](int number) { return text(number / 1000, ".", number % 1000 / 10); };
  return text(about.name, ", ", about.multiProcessorCount, " multiprocessors, ",
              about.totalGlobalMem >> 30, " GiB; CUDA ", version(runtime), ", driver for CUDA ",
              version(driver));
}

}  // namespace octavo::cuda
