// wgmma: the warpgroup matrix instruction of Hopper, 64 rows by 32 to 256 columns over 32 bytes of
// K. Both operands are in shared memory as TMA loads them (rows of 128 bytes, 128B swizzle), given
// by shared-memory matrix descriptors; or the rows are bf16 in registers. Element 4 j + i of the
// sums is in row 16 warp + lane / 4 + (i < 2 ? 0 : 8), column 8 j + 2 (lane % 4) + i % 2.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

enum class Mma { e4m3_e4m3, e4m3_e5m2, e5m2_e4m3, e5m2_e5m2, bf16, f16 };
constexpr bool is_fp8(Mma mma) { return mma != Mma::bf16 && mma != Mma::f16; }

inline constexpr int kMmaRows = 64;
inline constexpr int kRowBytes = 128;  // of K per row in shared memory: one swizzled line
inline constexpr int kMmaBytes = 32;   // of K per instruction

// Shared-memory matrix descriptor of an operand at a multiple of 1024 bytes: 128B swizzle, stride
// of 1024 bytes between groups of eight lines. The low word holds the address in units of 16 bytes.
__device__ __forceinline__ unsigned smem_descriptor_low(SharedAddress address) {
  return static_cast<unsigned>(address >> 4) | 1u << 16;
}
__device__ __forceinline__ std::uint64_t smem_descriptor_from_low(unsigned place) {
  constexpr std::uint64_t kGroup = 1024 / 16, kSwizzle128 = 1;
  return (kSwizzle128 << 62) | (kGroup << 32) | place;
}
__device__ __forceinline__ std::uint64_t smem_descriptor(SharedAddress address) {
  return smem_descriptor_from_low(smem_descriptor_low(address));
}
inline constexpr unsigned kDescriptorStep = kMmaBytes / 16;  // to the next bytes of K

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kBehind commit groups are in flight.
template <int kBehind>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kBehind) : "memory");
}
// Keeps the compiler from moving uses of accumulators across the wgmmas that write them
// (warpgroup_fence_operand in CUTLASS).
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operand(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// clang-format off
#define OCTAVO_SUMS_16 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define OCTAVO_SUMS_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OCTAVO_SUMS_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, " \
  "%37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, " \
  "%55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define OCTAVO_SUMS_96 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95}"
#define OCTAVO_SUMS_128 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define OCTAVO_OUT_8(d, i)                                                                  \
  "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),         \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define OCTAVO_OUT_32(d, i)                                                                 \
  OCTAVO_OUT_8(d, i), OCTAVO_OUT_8(d, (i) + 8), OCTAVO_OUT_8(d, (i) + 16), OCTAVO_OUT_8(d, (i) + 24)
// `more`: accumulate into sums; else overwrite them (scale-d).
#define OCTAVO_MMA_64(kind, flags)                                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned." kind " "  \
               OCTAVO_SUMS_32 ", %32, %33, p, " flags ";\n}"                                \
               : OCTAVO_OUT_32(sums, 0) : "l"(rows), "l"(cols), "r"(static_cast<int>(more)))
#define OCTAVO_MMA_128(kind, flags)                                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned." kind " "  \
               OCTAVO_SUMS_64 ", %64, %65, p, " flags ";\n}"                                \
               : OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32)                             \
               : "l"(rows), "l"(cols), "r"(static_cast<int>(more)))
#define OCTAVO_MMA_192(kind, flags)                                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned." kind " "  \
               OCTAVO_SUMS_96 ", %96, %97, p, " flags ";\n}"                                \
               : OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32), OCTAVO_OUT_32(sums, 64)     \
               : "l"(rows), "l"(cols), "r"(static_cast<int>(more)))
#define OCTAVO_MMA_256(kind, flags)                                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned." kind " "  \
               OCTAVO_SUMS_128 ", %128, %129, p, " flags ";\n}"                              \
               : OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32), OCTAVO_OUT_32(sums, 64),    \
                 OCTAVO_OUT_32(sums, 96)                                                     \
               : "l"(rows), "l"(cols), "r"(static_cast<int>(more)))
// wgmma with the rows (A) in registers; the arguments r0... are the asm operand numbers after the
// sums.
#define OCTAVO_MMA_RS(shape, list, r0, r1, r2, r3, at, scale_d, ...)                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " scale_d ", 0;\n"                          \
               "wgmma.mma_async.sync.aligned." shape "k16.f32.bf16.bf16 " list               \
               ", {" r0 ", " r1 ", " r2 ", " r3 "}, " at ", p, 1, 1, 0;\n}"                  \
               : __VA_ARGS__                                                                \
               : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(cols),          \
                 "r"(static_cast<int>(more)))
#define OCTAVO_MMA_KINDS(shape, instruction)                                                \
  if constexpr (kMma == Mma::e4m3_e4m3) instruction(shape "k32.f32.e4m3.e4m3", "1, 1");          \
  if constexpr (kMma == Mma::e4m3_e5m2) instruction(shape "k32.f32.e4m3.e5m2", "1, 1");          \
  if constexpr (kMma == Mma::e5m2_e4m3) instruction(shape "k32.f32.e5m2.e4m3", "1, 1");          \
  if constexpr (kMma == Mma::e5m2_e5m2) instruction(shape "k32.f32.e5m2.e5m2", "1, 1");          \
  if constexpr (kMma == Mma::bf16) instruction(shape "k16.f32.bf16.bf16", "1, 1, 0, 0");         \
  if constexpr (kMma == Mma::f16) instruction(shape "k16.f32.f16.f16", "1, 1, 0, 0")
// clang-format on

template <Mma kMma>
__device__ __forceinline__ void wgmma(float (&sums)[32], std::uint64_t rows, std::uint64_t cols,
                                      bool more) {
  OCTAVO_MMA_KINDS("m64n64", OCTAVO_MMA_64);
}
template <Mma kMma>
__device__ __forceinline__ void wgmma(float (&sums)[64], std::uint64_t rows, std::uint64_t cols,
                                      bool more) {
  OCTAVO_MMA_KINDS("m64n128", OCTAVO_MMA_128);
}
template <Mma kMma>
__device__ __forceinline__ void wgmma(float (&sums)[96], std::uint64_t rows, std::uint64_t cols,
                                      bool more) {
  OCTAVO_MMA_KINDS("m64n192", OCTAVO_MMA_192);
}
template <Mma kMma>
__device__ __forceinline__ void wgmma(float (&sums)[128], std::uint64_t rows, std::uint64_t cols,
                                      bool more) {
  OCTAVO_MMA_KINDS("m64n256", OCTAVO_MMA_256);
}

// wgmma with A in registers: rows[i] holds two neighbours of K, from 2 (lane % 4) on (8 more for i
// of 2 and 3), of row 16 warp + lane / 4 (8 more for odd i). They may be overwritten after
// wgmma_wait.
__device__ __forceinline__ void wgmma_rs(float (&sums)[16], const std::uint32_t (&rows)[4],
                                         std::uint64_t cols, bool more) {
  OCTAVO_MMA_RS("m64n32", OCTAVO_SUMS_16, "%16", "%17", "%18", "%19", "%20", "%21",
                OCTAVO_OUT_8(sums, 0), OCTAVO_OUT_8(sums, 8));
}
__device__ __forceinline__ void wgmma_rs(float (&sums)[32], const std::uint32_t (&rows)[4],
                                         std::uint64_t cols, bool more) {
  OCTAVO_MMA_RS("m64n64", OCTAVO_SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37",
                OCTAVO_OUT_32(sums, 0));
}
__device__ __forceinline__ void wgmma_rs(float (&sums)[64], const std::uint32_t (&rows)[4],
                                         std::uint64_t cols, bool more) {
  OCTAVO_MMA_RS("m64n128", OCTAVO_SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69",
                OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32));
}
__device__ __forceinline__ void wgmma_rs(float (&sums)[128], const std::uint32_t (&rows)[4],
                                         std::uint64_t cols, bool more) {
  OCTAVO_MMA_RS("m64n256", OCTAVO_SUMS_128, "%128", "%129", "%130", "%131", "%132", "%133",
                OCTAVO_OUT_32(sums, 0), OCTAVO_OUT_32(sums, 32), OCTAVO_OUT_32(sums, 64),
                OCTAVO_OUT_32(sums, 96));
}

#undef OCTAVO_MMA_KINDS
#undef OCTAVO_MMA_RS
#undef OCTAVO_MMA_256
#undef OCTAVO_MMA_192
#undef OCTAVO_MMA_128
#undef OCTAVO_MMA_64
#undef OCTAVO_OUT_32
#undef OCTAVO_OUT_8
#undef OCTAVO_SUMS_128
#undef OCTAVO_SUMS_96
#undef OCTAVO_SUMS_64
#undef OCTAVO_SUMS_32
#undef OCTAVO_SUMS_16

}  // namespace octavo::cuda
