#include "octavo/tensor/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "octavo/base/error.h"
#include "octavo/tensor/reused_memory_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCacheLine = 64;

// For std::free.
void* fresh_memory(std::size_t wanted) {
  const std::size_t alignment = wanted >= kHugePage ? kHugePage : kCacheLine;
  void* memory = nullptr;
  if (wanted > SIZE_MAX - alignment) throw std::bad_alloc();
  const std::size_t rounded = (wanted + alignment - 1) / alignment * alignment;
  if (posix_memalign(&memory, alignment, rounded) != 0) {
    fail(ErrorCode::unsupported, "tensor", "could not allocate ", wanted,
         " bytes; free memory or work in parts");
  }
  // Advice only: a kernel without huge pages refuses it and nothing is lost.
  if (alignment == kHugePage) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

std::shared_ptr<void> allocate(std::int64_t bytes) {
  const std::size_t wanted = bytes > 0 ? static_cast<std::size_t>(bytes) : 1;
  if (std::shared_ptr<void> reused = ReusedMemory::take(wanted, fresh_memory)) return reused;
  return {fresh_memory(wanted), [](void* p) { std::free(p); }};
}

}  // namespace

Tensor Tensor::values(const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.view_ = value_view(nullptr, dtype, shape);
  tensor.owner_ = allocate(tensor.nbytes());
  tensor.view_.data = tensor.owner_.get();
  return tensor;
}

Tensor Tensor::codes(const Shape& shape, const Format& format, bool packed) {
  Tensor tensor;
  tensor.view_ = code_view(nullptr, format, shape, packed);
  tensor.owner_ = allocate(tensor.nbytes());
  tensor.view_.data = tensor.owner_.get();
  return tensor;
}

Tensor Tensor::adopt(const View& view, std::shared_ptr<void> owner) {
  Tensor tensor;
  tensor.view_ = view;
  tensor.owner_ = std::move(owner);
  return tensor;
}

std::int64_t Tensor::nbytes() const {
  return dense_bytes(view_.shape, view_.dtype, view_.format, view_.packed);
}

void* Tensor::checked_data(std::size_t element_size) const {
  check_on_cpu(view_, "tensor", "the memory that span() was asked for");
  check(!view_.packed && is_dense(view_), ErrorCode::invalid_argument, "tensor",
        "span() needs a dense tensor that is not packed; use bytes() or view()");
  const auto size = static_cast<std::size_t>(element_bytes(view_.dtype, view_.format));
  check(size == element_size, ErrorCode::wrong_type, "tensor", "elements have ", size,
        " bytes, but span() was asked for ", element_size);
  return view_.data;
}

std::span<std::byte> Tensor::bytes() const {
  check_on_cpu(view_, "tensor", "the memory that bytes() was asked for");
  check(is_dense(view_), ErrorCode::invalid_argument, "tensor", "bytes() needs a dense tensor");
  return {static_cast<std::byte*>(view_.data), static_cast<std::size_t>(nbytes())};
}

}  // namespace octavo
