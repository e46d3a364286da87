// ReusedMemory: tensors of a thread take memory that earlier ones have freed, instead of fresh
// pages, which the system clears first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo {

// For a loop whose steps make tensors of the same sizes, as the layers of a model. Copies are the
// same memory. What tensors have freed stays until it is taken, until newer frees push it out, or
// until the last copy is destroyed; tensors may outlive that.
class ReusedMemory {
 public:
  // Smaller tensors are left to the C library, which keeps their memory anyway.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
  // What waits to be taken; enough for the layers of most models at 2048 tokens.
  static constexpr std::int64_t kMostFreeBytes = std::int64_t{256} << 20;

  explicit ReusedMemory(std::int64_t most_free_bytes);
  // That of this thread, to use it on another one; without a scope one that keeps nothing.
  [[nodiscard]] static ReusedMemory current();

  class Scope;

  // For Tensor: memory of `bytes` that others have freed, or fresh from `allocate`, which returns
  // what std::free takes. Null outside of scopes, and for less than kLeastBytes.
  using Allocate = void* (*)(std::size_t bytes);
  [[nodiscard]] static std::shared_ptr<void> take(std::size_t bytes, Allocate allocate);

 private:
  class Blocks;
  struct Owner;
  ReusedMemory() = default;
  // Shared by copies. The blocks live as long as a tensor of theirs.
  std::shared_ptr<Owner> owner_{};
};

// While it lives, this thread's tensors take their memory there. The innermost scope counts.
class ReusedMemory::Scope {
 public:
  explicit Scope(const ReusedMemory& memory);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ReusedMemory memory_;
  const ReusedMemory* before_;
};

}  // namespace octavo
