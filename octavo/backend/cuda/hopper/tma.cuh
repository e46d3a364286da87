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
// TMA load of a 1D range (bulk copy); addresses and size are multiples of 16 bytes.
__device__ __forceinline__ void tma_load_1d(SharedAddress to, const void* from, unsigned bytes,
                                            SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// TMA load of the box at (x, y) of a tensor map into shared memory; elements out of bounds are
// zero.
__device__ __forceinline__ void tma_load_2d(SharedAddress to, const CUtensorMap& map, int x, int y,
                                            SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// TMA load of the box at (x, y) of matrix (z, w) of a tensor map of four dimensions.
__device__ __forceinline__ void tma_load_4d(SharedAddress to, const CUtensorMap& map, int x, int y,
                                            int z, int w, SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}
// tma_load_2d with multicast: to the same address of every block in the mask, whose mbarriers at
// that address count the bytes.
__device__ __forceinline__ void tma_load_2d_multicast(SharedAddress to, const CUtensorMap& map,
                                                      int x, int y, SharedAddress barrier,
                                                      std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}
// Makes ordinary stores to shared memory visible to TMA and wgmma (the async proxy).
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// TMA store of a box from shared memory; elements out of bounds are not written. One thread, which
// then calls tma_store_commit().
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
// tma_store_wait_read: waits until shared memory may be overwritten that all commit groups but the
// last kBehind read. tma_store_wait: waits until all stores are complete.
template <int kBehind = 0>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBehind) : "memory");
}
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace octavo::cuda
