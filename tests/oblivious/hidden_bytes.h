// Wrappers of memcheck's client requests; no-ops where valgrind is not available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#if defined(OCTAVO_HAVE_MEMCHECK)
#include <valgrind/memcheck.h>
#endif

namespace octavo::oblivious {

#if defined(OCTAVO_HAVE_MEMCHECK)
inline bool watched() { return RUNNING_ON_VALGRIND != 0; }
inline void hide(void* data, std::size_t bytes) { (void)VALGRIND_MAKE_MEM_UNDEFINED(data, bytes); }
inline void reveal(void* data, std::size_t bytes) { (void)VALGRIND_MAKE_MEM_DEFINED(data, bytes); }
inline unsigned reports() { return VALGRIND_COUNT_ERRORS; }
// Has anything hidden reached these bytes? Otherwise a test of them would be worth nothing.
inline bool tainted(std::span<const std::uint8_t> bytes) {
  std::vector<std::uint8_t> hidden(bytes.size());
  (void)VALGRIND_GET_VBITS(bytes.data(), hidden.data(), bytes.size());
  reveal(hidden.data(), hidden.size());
  for (const std::uint8_t bits : hidden) {
    if (bits != 0) return true;
  }
  return false;
}
#else
inline bool watched() { return false; }
inline void hide(void*, std::size_t) {}
inline void reveal(void*, std::size_t) {}
inline unsigned reports() { return 0; }
inline bool tainted(std::span<const std::uint8_t>) { return false; }
#endif

}  // namespace octavo::oblivious
