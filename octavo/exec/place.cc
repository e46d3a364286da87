#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/place_internal.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

bool is_host(const Exec& exec) { return exec.device.kind == DeviceKind::cpu; }

std::size_t alignment_of(const View& view) {
  return view.packed ? 1 : static_cast<std::size_t>(element_bytes(view.dtype, view.format));
}

void check_pointer(const DeviceApi& api, const Exec& exec, const void* memory,
                   std::size_t alignment, std::string_view op, std::string_view what) {
  check(reinterpret_cast<std::uintptr_t>(memory) % alignment == 0, ErrorCode::invalid_argument, op,
        what, " is at ", memory, "; expected an address that is a multiple of its elements' ",
        alignment, " bytes; copy it into memory of its own");
  if (is_temporary(memory)) return;
  const std::string problem = api.pointer_problem(exec, memory);
  check(problem.empty(), ErrorCode::invalid_argument, op, what, ", declared to be on ",
        to_string(exec.device), ", is not: ", problem);
}

void check_strides(const View& view, std::int64_t bytes, std::string_view op,
                   std::string_view what) {
  for (int i = 0; i < view.shape.rank(); ++i)
    check(view.shape[i] <= 1 || view.strides[i] % bytes == 0, ErrorCode::invalid_argument, op, what,
          " has a stride of ", view.strides[i], " bytes; expected a multiple of its elements' ",
          bytes, " on ", to_string(view.device));
}

}  // namespace

Device common_device(std::span<const NamedView> views, std::string_view op) {
  const NamedView& first = views.front();
  const Device device = first.view->device;
  for (const NamedView& other : views)
    if (other.view->device != device)
      fail(ErrorCode::invalid_argument, op, first.name, " is on ", to_string(device), " and ",
           other.name, " on ", to_string(other.view->device),
           "; copy one to the other's device first");
  if (device.kind == DeviceKind::cpu) return device;
  const DeviceApi& api = device_api(device);
  for (const NamedView& named : views) {
    const View& view = *named.view;
    if (element_count(view.shape) == 0 || view.data == nullptr || named.is_staging) continue;
    const std::size_t alignment = alignment_of(view);
    check_pointer(api, {.device = device}, view.data, alignment, op, named.name);
    check_strides(view, static_cast<std::int64_t>(alignment), op, named.name);
  }
  return device;
}

void check_workspace(const Exec& exec, std::span<const NamedView> views, std::string_view op) {
  if (exec.workspace.empty() || is_host(exec)) return;
  constexpr std::string_view kName = "the workspace";
  const DeviceApi& api = device_api(exec.device);
  for (const std::byte* end : {&exec.workspace.front(), &exec.workspace.back()})
    check_pointer(api, exec, end, 1, op, kName);
  const View bytes =
      code_view(exec.workspace.data(), e4m3fn, {static_cast<std::int64_t>(exec.workspace.size())});
  for (const NamedView& named : views)
    check(element_count(named.view->shape) == 0 || !bytes_overlap(*named.view, bytes),
          ErrorCode::invalid_argument, op, kName, " shares memory with ", named.name,
          "; give other memory, or none");
}

void check_beside(const Exec& exec, const void* number, std::size_t alignment, std::string_view op,
                  std::string_view what) {
  if (number == nullptr || is_host(exec)) return;
  check_pointer(device_api(exec.device), exec, number, alignment, op, what);
}

void check_may_wait(const Exec& exec, std::string_view op, std::string_view why) {
  if (is_host(exec)) return;
  check(!device_api(exec.device).capturing(exec), ErrorCode::unsupported, op,
        "while the stream is captured into a graph, ", why);
}

void clear_memory(const Exec& exec, void* memory, std::size_t bytes) {
  if (is_host(exec)) {
    std::memset(memory, 0, bytes);
  } else {
    device_api(exec.device).clear(exec, memory, bytes);
  }
}

void copy_memory(const Exec& exec, void* to, const void* from, std::size_t bytes) {
  if (is_host(exec)) {
    std::memcpy(to, from, bytes);
  } else {
    device_api(exec.device).copy(exec, to, from, bytes);
  }
}

void copy_and_wait(const Exec& exec, void* to, const void* from, std::size_t bytes) {
  copy_memory(exec, to, from, bytes);
  if (!is_host(exec)) device_api(exec.device).wait(exec);
}

Scratch::~Scratch() {
  if (owned_ != nullptr) device_api(exec_.device).release(exec_, owned_);
}

float* Scratch::number() {
  if (numbers_ == nullptr) take();
  check(used_ < kNumbers, ErrorCode::internal, "scratch", "more numbers than there are");
  return numbers_ + used_++;
}

void Scratch::take() {
  if (is_host(exec_)) {
    numbers_ = host_.data();
    return;
  }
  const DeviceApi& api = device_api(exec_.device);
  // A whole 256 bytes, so that the rest of the workspace keeps its alignment.
  constexpr std::size_t kStep = 256;
  static_assert(kBytes <= kStep);
  const auto address = reinterpret_cast<std::uintptr_t>(exec_.workspace.data());
  if (exec_.workspace.size() >= kStep && address % alignof(float) == 0) {
    numbers_ = reinterpret_cast<float*>(exec_.workspace.data());
    exec_.workspace = exec_.workspace.subspan(kStep);
  } else {
    owned_ = api.allocate(exec_, kBytes);
    numbers_ = static_cast<float*>(owned_);
  }
  api.clear(exec_, numbers_, kBytes);
}

namespace {

// The largest staging memory that a thread has had on the host, kept for its next call: a product
// of large matrices stages them in tens of megabytes, and memory that is new to the process costs a
// page fault for every page of it. Static objects may compute after it is gone: the main thread's
// is destroyed before they are.
constexpr std::int64_t kMostKept = 128 << 20;
thread_local bool kept_is_gone = false;
struct Kept {
  Tensor memory{};
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { kept_is_gone = true; }
};
thread_local Kept kept;

void keep(Tensor& memory) {
  if (kept_is_gone || memory.owner() == nullptr || memory.nbytes() > kMostKept) return;
  if (kept.memory.owner() == nullptr || kept.memory.nbytes() < memory.nbytes())
    kept.memory = std::move(memory);
}

// What is kept, if it is large enough and not much too large; else new memory.
Tensor host_memory(std::int64_t count) {
  if (!kept_is_gone && kept.memory.owner() != nullptr) {
    const std::int64_t there = element_count(kept.memory.shape());
    if (there >= count && there / 4 <= count) return std::exchange(kept.memory, Tensor{});
  }
  return Tensor::values({count}, DType::f32);
}

}  // namespace

StagingMemory::~StagingMemory() {
  keep(host_);
  release();
}

void StagingMemory::release() noexcept {
  if (there_ != nullptr) device_api(exec_.device).release(exec_, there_);
  there_ = nullptr;
  count_ = 0;
}

float* StagingMemory::at_least(std::int64_t count) {
  if (is_host(exec_)) {
    if (host_.owner() == nullptr || count > count_) host_ = host_memory(count);
    count_ = element_count(host_.shape());
    return static_cast<float*>(host_.view().data);
  }
  if (there_ == nullptr || count > count_) {
    release();
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(float));
    there_ = device_api(exec_.device).allocate(exec_, static_cast<std::size_t>(bytes));
    count_ = count;
  }
  return static_cast<float*>(there_);
}

}  // namespace octavo
