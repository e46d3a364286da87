// Counts the memory that a piece of code allocates. Include it in one file of a program: it
// replaces the program's operator new.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace octavo::hostile {

struct Memory {
  std::size_t largest = 0;              // of the single allocations
  std::size_t held = 0, most_held = 0;  // of all together
};

inline thread_local Memory* counting = nullptr;

// Counts into `memory` while it lives.
class CountMemory {
 public:
  explicit CountMemory(Memory& memory) { counting = &memory; }
  ~CountMemory() { counting = nullptr; }
  CountMemory(const CountMemory&) = delete;
  CountMemory& operator=(const CountMemory&) = delete;
};

inline void* allocate(std::size_t bytes) {
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  if (counting != nullptr) {
    counting->largest = std::max(counting->largest, bytes);
    counting->held += malloc_usable_size(memory);
    counting->most_held = std::max(counting->most_held, counting->held);
  }
  return memory;
}

inline void release(void* memory) {
  if (counting != nullptr && memory != nullptr) {
    counting->held -= std::min(counting->held, malloc_usable_size(memory));
  }
  std::free(memory);
}

}  // namespace octavo::hostile

void* operator new(std::size_t bytes) { return octavo::hostile::allocate(bytes); }
void* operator new[](std::size_t bytes) { return octavo::hostile::allocate(bytes); }
void operator delete(void* memory) noexcept { octavo::hostile::release(memory); }
void operator delete[](void* memory) noexcept { octavo::hostile::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { octavo::hostile::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { octavo::hostile::release(memory); }
// std::stable_sort asks for its buffer this way.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return octavo::hostile::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  octavo::hostile::release(memory);
}
