// wgmma of bf16 whose B is in shared memory with its rows along K: as TMA loads it, boxes of 64
// columns with the 128B swizzle. A product may so read a tile as it is, or transposed.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// Shared-memory matrix descriptor of B along K: `box_bytes` lead to the next 64 columns.
__device__ __forceinline__ std::uint64_t smem_descriptor_along_k(SharedAddress address,
                                                                 unsigned box_bytes) {
  constexpr std::uint64_t kGroup = 1024 / 16, kSwizzle128 = 1;
  return (kSwizzle128 << 62) | (kGroup << 32) | static_cast<std::uint64_t>(box_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(address >> 4);
}
inline constexpr unsigned kAlongKStep = 16 * kRowBytes / 16;  // to the next sixteen rows of K

// clang-format off
#define OCTAVO_OUT_8(d, i)                                                                    \
  "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),        \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define OCTAVO_OUT_32(d, i) \
  OCTAVO_OUT_8(d, i), OCTAVO_OUT_8(d, (i) + 8), OCTAVO_OUT_8(d, (i) + 16), OCTAVO_OUT_8(d, (i) + 24)
#define OCTAVO_SUMS_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "     \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OCTAVO_SUMS_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "     \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, " \
  "%37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, " \
  "%55, %56, %57, %58, %59, %60, %61, %62, %63}"
// clang-format on

// sums = A B, or sums + A B where `more`; A in shared memory with K along its rows.
__device__ __forceinline__ void wgmma_along_k(float (&sums)[32], std::uint64_t rows,
                                              std::uint64_t cols, bool more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " OCTAVO_SUMS_32
      ", %32, %33, p, 1, 1, 0, 1;\n}"
      : OCTAVO_OUT_32(sums, 0)
      : "l"(rows), "l"(cols), "r"(static_cast<int>(more)));
}
// The same with A in registers, as wgmma_rs has it.
__device__ __forceinline__ void wgmma_rs_along_k(float (&sums)[32], const std::uint32_t* rows,
                                                 std::uint64_t cols) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " OCTAVO_SUMS_32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : OCTAVO_OUT_32(sums, 0)
               : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(cols));
}
__device__ __forceinline__ void wgmma_rs_along_k(float (&sums)[64], const std::uint32_t* rows,
                                                 std::uint64_t cols) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " OCTAVO_SUMS_64
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32)
               : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(cols));
}

#undef OCTAVO_OUT_8
#undef OCTAVO_OUT_32
#undef OCTAVO_SUMS_32
#undef OCTAVO_SUMS_64

}  // namespace octavo::cuda
