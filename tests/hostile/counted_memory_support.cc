#include "tests/hostile/counted_memory.h"

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
