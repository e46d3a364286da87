// TMA: bulk and tensor copies between global and shared memory (cp.async.bulk), multicast to a
// cluster, and TMA stores.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Bytes as they lie, addresses and count multiples of 16.
__device__ __forceinline__ void tma_load_1d(SharedAddress to, const void* from, unsigned bytes,
                                            SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// The box of the map whose first element is (x, y) into shared memory; what lies outside is zero.
__device__ __forceinline__ void tma_load_2d(SharedAddress to, const CUtensorMap& map, int x, int y,
                                            SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// The same into the same place of every block of the mask, whose barriers there count the bytes.
__device__ __forceinline__ void tma_load_2d_multicast(SharedAddress to, const CUtensorMap& map,
                                                      int x, int y, SharedAddress barrier,
                                                      std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}
// What ordinary stores wrote to shared memory is seen by the copy engine and the tensor cores.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// From shared memory; what lies outside the map is left out. One thread, then tma_store_commit().
__device__ __forceinline__ void tma_store_2d(const CUtensorMap& map, int x, int y,
                                             SharedAddress from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until shared memory may be written again that all commits but the last kBehind have stored from;
// and until all is stored.
template <int kBehind = 0>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBehind) : "memory");
}
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace octavo::cuda
