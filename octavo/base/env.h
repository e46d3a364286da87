// Environment variables of the library; no other file reads the environment.
//   OCTAVO_BACKEND   force a backend by name (see registry.h)
//   OCTAVO_THREADS   number of threads of the pool, 1 .. 1024
//   OCTAVO_CUDA_LIBRARY_GEMM   whether GEMMs on a device use cuBLASLt, 0 or 1
#pragma once

#include <optional>
#include <string>

namespace octavo {

// Unset and empty both mean "not given". Every call reads the variable anew.
std::optional<std::string> env_backend();
// Throws Error(invalid_argument) when it is not a number from 1 to 1024.
std::optional<int> env_threads();
// Throws Error(invalid_argument) when it is neither 0 nor 1.
std::optional<bool> env_cuda_library_gemm();
// A variable that a launcher of processes sets (launcher.cc knows which).
std::optional<std::string> env_of_launcher(const char* name);

}  // namespace octavo
