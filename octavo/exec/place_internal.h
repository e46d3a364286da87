// Placement of an operation: the one device that all of its memory is on, its stream, workspace,
// scratch and staging memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "octavo/backend/registry_internal.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// A view with its name in messages.
struct NamedView {
  const View* view;
  std::string_view name;
  // Of a StagingMemory: its pointer is not checked, because memory allocated during stream capture
  // is not known to the device yet.
  bool is_staging = false;
};

// The device of all these views. Throws Error(invalid_argument) that names two which differ, or a
// pointer that is not memory of the device or not aligned to its elements; Error(unsupported) where
// the device cannot be used. Nothing is read through a pointer.
Device common_device(std::span<const NamedView> views, std::string_view op);

// Checks the caller's workspace: on a device, memory of that device that overlaps none of these
// views. Throws Error(invalid_argument) where it is not.
void check_workspace(const Exec& exec, std::span<const NamedView> views, std::string_view op);

// The Exec of an operation on `elements` elements on the device of all these views, which are
// checked as in common_device. Options are those of an operation: threads, log, stream and
// workspace; the CPU ignores the last two.
template <typename Options>
Exec make_exec_on(std::span<const NamedView> views, std::int64_t elements, const Options& options,
                  std::string_view op, DefaultThreads default_threads = available_threads) {
  const Device device = common_device(views, op);
  const Exec here = make_exec(elements, options.threads, options.log, op, default_threads);
  if (device.kind == DeviceKind::cpu) return here;
  const Exec exec{.device = device,
                  .stream = options.stream,
                  .workspace = options.workspace,
                  .log = options.log};
  check_workspace(exec, views, op);
  return exec;
}

// Checks a scalar argument (amax, counts, ...) that must be in the memory of the same device. Null
// passes.
void check_beside(const Exec& exec, const void* number, std::size_t alignment, std::string_view op,
                  std::string_view what);

// Synchronization cannot be captured into a graph. `why` completes "while the stream is captured,
// ...".
void check_may_wait(const Exec& exec, std::string_view op, std::string_view why);

// memset to zero, in stream order.
void clear_memory(const Exec& exec, void* memory, std::size_t bytes);
// From one place of it to another; on a device queued on the stream, without waiting.
void copy_memory(const Exec& exec, void* to, const void* from, std::size_t bytes);

// Copies between host and device and synchronizes: both buffers may be freed afterwards.
void copy_and_wait(const Exec& exec, void* to, const void* from, std::size_t bytes);

// A few f32 scalars in the memory of the device, initially zero. On a device they come from the
// front of the workspace where that is large enough (kernels then get the rest of it), else from
// the device's memory pool; the destructor releases them in stream order.
class Scratch {
 public:
  explicit Scratch(Exec& exec) : exec_(exec) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] float* number();  // at most kNumbers times

  static constexpr std::size_t kNumbers = 8, kBytes = kNumbers * sizeof(float);

 private:
  void take();

  Exec& exec_;
  std::array<float, kNumbers> host_{};
  float* numbers_ = nullptr;
  void* owned_ = nullptr;
  std::size_t used_ = 0;
};

// f32 staging buffer between two kernels, in the memory of the device. On a device it comes from
// the memory pool, in stream order.
class StagingMemory {
 public:
  explicit StagingMemory(const Exec& exec) : exec_(exec) {}
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  // Uninitialised; what was there before is gone.
  [[nodiscard]] float* at_least(std::int64_t count);

 private:
  void release() noexcept;

  Exec exec_;
  Tensor host_{};
  void* there_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace octavo
