// The library's only macros: symbol visibility (OCTAVO_API) and __host__ __device__ (OCTAVO_HD).
#pragma once

#if defined(OCTAVO_STATIC) || defined(_WIN32)
#define OCTAVO_API
#else
#define OCTAVO_API __attribute__((visibility("default")))
#endif

// Scalar numerics are constexpr functions shared by tables, tests, host loops and device kernels.
#if defined(__CUDACC__)
#define OCTAVO_HD __host__ __device__
#else
#define OCTAVO_HD
#endif
