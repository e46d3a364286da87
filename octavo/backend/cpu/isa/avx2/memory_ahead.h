// Prefetching of what a span reads, and elements before an aligned address. Hardware prefetchers
// stop at the end of a page and begin again with a miss; a line in two to three of them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {
namespace {

inline constexpr std::int64_t kBytesAhead = 2048, kCacheLine = 64;

// The lines of the next kBytes bytes, kBytesAhead from here. Beyond the end of an array it reads
// nothing.
template <std::int64_t kBytes>
[[gnu::always_inline]] inline void prefetch_ahead(const void* from) {
  // As a number: the address may be of no object.
  const auto at = reinterpret_cast<std::uintptr_t>(from) + kBytesAhead;
#pragma GCC unroll 8
  for (std::int64_t line = 0; line < kBytes; line += kCacheLine)
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T0);
}

// Elements of `size` bytes from `to` to the next cache line; negative where none begins there.
inline std::int64_t elements_to_line(const void* to, std::int64_t size) {
  const auto into = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kCacheLine);
  return into % size != 0 ? -1 : (kCacheLine - into) % kCacheLine / size;
}

}  // namespace
}  // namespace octavo::cpu
