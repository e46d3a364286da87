// Bits that no other process draws, on any machine: for names and tickets that must differ. For
// random numbers that can be repeated there is philox.h.
#pragma once

#include <cstdint>

namespace octavo {

// 64 bits of the kernel's generator. Not std::random_device: linked statically, as in wheels, it
// asks glibc for arc4random, which none before 2.36 has, and wheels promise 2.34.
[[nodiscard]] std::uint64_t random_bits();

}  // namespace octavo
