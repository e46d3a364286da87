#include "octavo/base/random_bits.h"

#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

namespace octavo {

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  ssize_t got = 0;
  do got = getrandom(&bits, sizeof bits, 0);
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof bits)) return bits;
  // Kernels before 3.17, and sandboxes that refuse the call: time, process and a count.
  static std::atomic<std::uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  bits = static_cast<std::uint64_t>(now) ^ static_cast<std::uint64_t>(getpid()) << 48U;
  bits += (count.fetch_add(1, std::memory_order_relaxed) + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 31U) * 0xBF58476D1CE4E5B9U;
  return bits ^ bits >> 29U;
}

}  // namespace octavo
