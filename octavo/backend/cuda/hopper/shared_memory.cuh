// Addresses in the shared-memory window, loads and stores that the compiler keeps in place, and
// stmatrix.
#pragma once

#include <cstdint>

namespace octavo::cuda {

using SharedAddress = std::uint32_t;  // in the shared-memory window

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Volatile loads: the compiler does not move them across barriers.
__device__ __forceinline__ float load_shared(SharedAddress from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from));
  return value;
}
__device__ __forceinline__ float2 load_shared_pair(SharedAddress from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}
__device__ __forceinline__ float4 load_shared_four(SharedAddress from) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(from));
  return four;
}
__device__ __forceinline__ void store_shared(SharedAddress to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ __forceinline__ uint4 load_shared_vector(SharedAddress from) {
  uint4 vector;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "r"(from));
  return vector;
}
__device__ __forceinline__ void store_shared_vector(SharedAddress to, const uint4& vector) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(vector.x), "r"(vector.y),
               "r"(vector.z), "r"(vector.w)
               : "memory");
}

// Stores four matrices of 8 x 8 elements of 16 bits from registers; lane i gives the address of row
// i % 8 of matrix i / 8. Transposed: of column i % 8.
template <bool kTransposed>
__device__ __forceinline__ void stmatrix_x4(SharedAddress to, const std::uint32_t (&from)[4]) {
  if constexpr (kTransposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}

}  // namespace octavo::cuda
