// A quick self-check that a backend is bit-exact with the reference on this machine: every bfloat16
// value encoded to every named format, and every code decoded. A few milliseconds; the tests cover
// much more.
#pragma once

#include <string>

namespace octavo {
struct Kernels;
}

namespace octavo::cli {

// Empty when all bits agree, else the first difference.
std::string self_check(const Kernels& backend);

inline constexpr int kSelfCheckInputs = 65536;

}  // namespace octavo::cli
