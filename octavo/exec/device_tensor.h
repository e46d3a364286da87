// Tensors in the memory of a device, and copies between there and the host.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Dense, uninitialised memory on a device or the CPU. It is freed when the last tensor that shares
// it goes, which waits for all work on the device; what is needed for a moment only is better taken
// from a pool of the caller's. Throws when the device cannot be used or memory runs out, and while
// the stream is captured into a graph.
[[nodiscard]] OCTAVO_API Tensor values_on(Device device, const Shape& shape, DType dtype,
                                          void* stream = nullptr);
[[nodiscard]] OCTAVO_API Tensor codes_on(Device device, const Shape& shape, const Format& format,
                                         bool packed = false, void* stream = nullptr);

// A copy there, whose strides are the same: the elements must lie without gaps, in any order. Both
// wait until the copy is done.
[[nodiscard]] OCTAVO_API Tensor to_device(const View& from, Device device, void* stream = nullptr);
[[nodiscard]] OCTAVO_API Tensor to_host(const View& from, void* stream = nullptr);

}  // namespace octavo
