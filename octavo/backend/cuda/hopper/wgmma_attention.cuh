// Forms of wgmma that attention needs beside those of wgmma.cuh: sums of e4m3 products in f16, sums
// of int8 products in int32, and A in registers against bf16 whose rows run along N (a matrix V of
// [keys, channels]) or against e4m3 with 8 columns more than the head size.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// Keeps the compiler from moving uses of sums across the wgmmas that write them.
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operand(std::uint32_t (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operand(std::int32_t (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// Descriptor of rows of 64 bytes in the 64B swizzle, at a multiple of 512 bytes.
__device__ __forceinline__ std::uint64_t smem_descriptor_64(SharedAddress address) {
  constexpr std::uint64_t kGroup = 512 / 16, kSwizzle64 = 2;
  return (kSwizzle64 << 62) | (kGroup << 32) | (1u << 16) | (address >> 4);
}
// Descriptor of a bf16 matrix whose rows run along N: panels of 64 columns, `panel_bytes` apart,
// rows of 128 bytes in the 128B swizzle. 16 rows on are kDescriptorRows further.
__device__ __forceinline__ std::uint64_t smem_descriptor_along_n(SharedAddress address,
                                                                 unsigned panel_bytes) {
  constexpr std::uint64_t kGroup = 1024 / 16, kSwizzle128 = 1;
  return (kSwizzle128 << 62) | (kGroup << 32) |
         (static_cast<std::uint64_t>(panel_bytes >> 4) << 16) | (address >> 4);
}
inline constexpr unsigned kDescriptorRows = 16 * kRowBytes / 16;

// clang-format off
#define OCTAVO_LIST_16 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define OCTAVO_LIST_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OCTAVO_LIST_36 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}"
#define OCTAVO_LIST_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63}"
#define OCTAVO_LIST_68 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67}"
#define OCTAVO_LIST_128 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, " \
  "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, " \
  "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, " \
  "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
  "%123, %124, %125, %126, %127}"
#define OCTAVO_EACH_4(c, d, i) c(d[(i)]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define OCTAVO_EACH_16(c, d, i) \
  OCTAVO_EACH_4(c, d, i), OCTAVO_EACH_4(c, d, (i) + 4), OCTAVO_EACH_4(c, d, (i) + 8), \
      OCTAVO_EACH_4(c, d, (i) + 12)
#define OCTAVO_EACH_32(c, d, i) OCTAVO_EACH_16(c, d, i), OCTAVO_EACH_16(c, d, (i) + 16)
#define OCTAVO_EACH_64(c, d, i) OCTAVO_EACH_32(c, d, i), OCTAVO_EACH_32(c, d, (i) + 32)
#define OCTAVO_EACH_128(c, d, i) OCTAVO_EACH_64(c, d, i), OCTAVO_EACH_64(c, d, (i) + 64)
// The numbers after `list` are those of the asm operands that follow the sums.
#define OCTAVO_WGMMA_SS(shape, list, a, b, s, flags, ...)                                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" s ", 0;\n"                            \
               "wgmma.mma_async.sync.aligned." shape " " list ", %" a ", %" b ", p" flags ";\n}" \
               : __VA_ARGS__ : "l"(rows), "l"(cols), "r"(static_cast<int>(more)))
#define OCTAVO_WGMMA_RS(shape, list, a0, a1, a2, a3, b, s, flags, ...)                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" s ", 0;\n"                            \
               "wgmma.mma_async.sync.aligned." shape " " list                               \
               ", {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b ", p" flags ";\n}"             \
               : __VA_ARGS__                                                                \
               : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(cols),          \
                 "r"(static_cast<int>(more)))

// Sums in f16, two neighbouring columns a word: word 2 j + i is of row 16 warp + lane / 4 + 8 i.
__device__ __forceinline__ void wgmma_e4m3_f16(std::uint32_t (&sums)[16], std::uint64_t rows,
                                               std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_SS("m64n64k32.f16.e4m3.e4m3", OCTAVO_LIST_16, "16", "17", "18", ", 1, 1",
                  OCTAVO_EACH_16("+r", sums, 0));
}
__device__ __forceinline__ void wgmma_e4m3_f16(std::uint32_t (&sums)[32], std::uint64_t rows,
                                               std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_SS("m64n128k32.f16.e4m3.e4m3", OCTAVO_LIST_32, "32", "33", "34", ", 1, 1",
                  OCTAVO_EACH_32("+r", sums, 0));
}
// Exact.
__device__ __forceinline__ void wgmma_s8(std::int32_t (&sums)[32], std::uint64_t rows,
                                         std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_SS("m64n64k32.s32.s8.s8", OCTAVO_LIST_32, "32", "33", "34", "",
                  OCTAVO_EACH_32("+r", sums, 0));
}
__device__ __forceinline__ void wgmma_s8(std::int32_t (&sums)[64], std::uint64_t rows,
                                         std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_SS("m64n128k32.s32.s8.s8", OCTAVO_LIST_64, "64", "65", "66", "",
                  OCTAVO_EACH_64("+r", sums, 0));
}

// A in registers (wgmma_rs of wgmma.cuh), B with rows along N.
__device__ __forceinline__ void wgmma_rs_along_n(float (&sums)[32], const std::uint32_t (&rows)[4],
                                                 std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n64k16.f32.bf16.bf16", OCTAVO_LIST_32, "32", "33", "34", "35", "36", "37",
                  ", 1, 1, 1", OCTAVO_EACH_32("+f", sums, 0));
}
__device__ __forceinline__ void wgmma_rs_along_n(float (&sums)[64], const std::uint32_t (&rows)[4],
                                                 std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n128k16.f32.bf16.bf16", OCTAVO_LIST_64, "64", "65", "66", "67", "68", "69",
                  ", 1, 1, 1", OCTAVO_EACH_64("+f", sums, 0));
}
__device__ __forceinline__ void wgmma_rs_along_n(float (&sums)[128],
                                                 const std::uint32_t (&rows)[4],
                                                 std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n256k16.f32.bf16.bf16", OCTAVO_LIST_128, "128", "129", "130", "131", "132",
                  "133", ", 1, 1, 1", OCTAVO_EACH_128("+f", sums, 0));
}
// Eight columns more than a head: the first of the panel after.
__device__ __forceinline__ void wgmma_rs_along_n(float (&sums)[36], const std::uint32_t (&rows)[4],
                                                 std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n72k16.f32.bf16.bf16", OCTAVO_LIST_36, "36", "37", "38", "39", "40", "41",
                  ", 1, 1, 1", OCTAVO_EACH_32("+f", sums, 0), OCTAVO_EACH_4("+f", sums, 32));
}
__device__ __forceinline__ void wgmma_rs_along_n(float (&sums)[68], const std::uint32_t (&rows)[4],
                                                 std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n136k16.f32.bf16.bf16", OCTAVO_LIST_68, "68", "69", "70", "71", "72", "73",
                  ", 1, 1, 1", OCTAVO_EACH_64("+f", sums, 0), OCTAVO_EACH_4("+f", sums, 64));
}
// e4m3 A in registers: rows[i] holds four neighbours of K, from 4 (lane % 4) on (16 more for i of 2
// and 3), of row 16 warp + lane / 4 (8 more for odd i).
__device__ __forceinline__ void wgmma_rs_e4m3(float (&sums)[36], const std::uint32_t (&rows)[4],
                                              std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n72k32.f32.e4m3.e4m3", OCTAVO_LIST_36, "36", "37", "38", "39", "40", "41",
                  ", 1, 1", OCTAVO_EACH_32("+f", sums, 0), OCTAVO_EACH_4("+f", sums, 32));
}
__device__ __forceinline__ void wgmma_rs_e4m3(float (&sums)[68], const std::uint32_t (&rows)[4],
                                              std::uint64_t cols, bool more) {
  OCTAVO_WGMMA_RS("m64n136k32.f32.e4m3.e4m3", OCTAVO_LIST_68, "68", "69", "70", "71", "72", "73",
                  ", 1, 1", OCTAVO_EACH_64("+f", sums, 0), OCTAVO_EACH_4("+f", sums, 64));
}

#undef OCTAVO_WGMMA_RS
#undef OCTAVO_WGMMA_SS
#undef OCTAVO_EACH_128
#undef OCTAVO_EACH_64
#undef OCTAVO_EACH_32
#undef OCTAVO_EACH_16
#undef OCTAVO_EACH_4
#undef OCTAVO_LIST_128
#undef OCTAVO_LIST_68
#undef OCTAVO_LIST_64
#undef OCTAVO_LIST_36
#undef OCTAVO_LIST_32
#undef OCTAVO_LIST_16
// clang-format on

}  // namespace octavo::cuda
