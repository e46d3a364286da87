// Where an operation runs: on the one device that all of its memory is on, in the order of a
// stream.
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

// A view as messages call it.
struct NamedView {
  const View* view;
  std::string_view name;
  // Of a StagingMemory: nobody asks whether it is the device's, because what is taken while a
  // stream is captured is not yet.
  bool is_staging = false;
};

// The device of all these views. Throws Error(invalid_argument) that names two which differ, or a
// pointer that is not memory of the device or not aligned to its elements; Error(unsupported) where
// the device cannot be used. Nothing is read through a pointer.
Device common_device(std::span<const NamedView> views, std::string_view op);

// The caller's workspace: on a device, memory of that device that none of these views has a part
// of. Throws Error(invalid_argument) where it is not.
void check_workspace(const Exec& exec, std::span<const NamedView> views, std::string_view op);

// How work on so many elements runs on the device of all these views, which are checked as
// common_device has it. Options are those of an operation: threads, log, stream and workspace; a
// CPU has no use for the last two.
template <typename Options>
Exec make_exec_on(std::span<const NamedView> views, std::int64_t elements, const Options& options,
                  std::string_view op) {
  const Device device = common_device(views, op);
  const Exec here = make_exec(elements, options.threads, options.log, op);
  if (device.kind == DeviceKind::cpu) return here;
  const Exec exec{.device = device,
                  .stream = options.stream,
                  .workspace = options.workspace,
                  .log = options.log};
  check_workspace(exec, views, op);
  return exec;
}

// A number of the caller's that lies beside the data: on a device, memory of that device. Null is
// nothing to check.
void check_beside(const Exec& exec, const void* number, std::size_t alignment, std::string_view op,
                  std::string_view what);

// Waiting for a device cannot be recorded in a graph. `why` completes "while the stream is
// captured, ...".
void check_may_wait(const Exec& exec, std::string_view op, std::string_view why);

// Zeros, in the order of the stream.
void clear_memory(const Exec& exec, void* memory, std::size_t bytes);

// Copies between host and device, and waits until that is done: both may go afterwards.
void copy_and_wait(const Exec& exec, void* to, const void* from, std::size_t bytes);

// A few numbers where the work is done, all zero at first. On a device they come from the front of
// the workspace, where that is large enough (the kernels then have the rest of it), else from the
// device's pool; they are released in the order of the stream, when this goes.
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

// f32 numbers on their way from one kernel to the next, as many as it takes, where the work is
// done. On a device they come from its pool, in the order of the stream.
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
