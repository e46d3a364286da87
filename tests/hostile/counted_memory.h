// Counts the memory that a piece of code allocates, by a replaced operator new
// (counted_memory_support.cc).
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
