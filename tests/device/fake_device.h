// A fake device for machines without a GPU: memory that the host cannot access (mprotect whenever
// no kernel runs), the kernels of reference, and a log of all calls. Host code that reads or writes
// through a device pointer crashes at once.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "octavo/backend/device.h"
#include "octavo/tensor/tensor.h"

namespace octavo::testing {

struct Diary {
  int launches = 0;  // kernels
  int waits = 0;
  int allocations = 0, lasting = 0;            // made so far
  int live_allocations = 0, live_lasting = 0;  // not given back
  int clears = 0, copies = 0;
  std::set<void*> streams;    // on which anything was queued
  std::size_t workspace = 0;  // bytes that the last kernel was handed
  std::string broken;         // the first violated contract
};

// While one lives, Device{cuda, 0} and {cuda, 1} are fakes.
class FakeDevice {
 public:
  FakeDevice();
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  [[nodiscard]] Diary& diary() const;
  [[nodiscard]] const DeviceApi& api() const;
  void capture(bool on);               // as if the stream were being captured
  void offer(const Kernels& kernels);  // what it has; entries must be those of `api().kernels`

  // Scratch memory of the test's own.
  [[nodiscard]] void* memory(std::size_t bytes, int index = 0) const;
};

inline constexpr Device kFirst{DeviceKind::cuda, 0}, kSecond{DeviceKind::cuda, 1};

}  // namespace octavo::testing
