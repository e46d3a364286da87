// Device tensors: allocation, and copies between host and device.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Dense, uninitialised memory on a device or the CPU. It is freed with the last tensor that shares
// it, which synchronizes the device (cudaFree); short-lived memory is better taken from a pool of
// the caller. Throws when the device cannot be used or memory runs out, and while the stream is
// captured into a graph.
[[nodiscard]] OCTAVO_API Tensor values_on(Device device, const Shape& shape, DType dtype,
                                          void* stream = nullptr);
[[nodiscard]] OCTAVO_API Tensor codes_on(Device device, const Shape& shape, const Format& format,
                                         bool packed = false, void* stream = nullptr);

// A copy with the same strides: the elements must be without gaps, in any order. Both calls wait
// until the copy is complete.
[[nodiscard]] OCTAVO_API Tensor to_device(const View& from, Device device, void* stream = nullptr);
[[nodiscard]] OCTAVO_API Tensor to_host(const View& from, void* stream = nullptr);

}  // namespace octavo
