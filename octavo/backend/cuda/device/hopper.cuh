// Instructions that only Hopper has, a function each: barriers in shared memory that count bytes,
// the copy engine, clusters of blocks, registers that move between warpgroups.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace octavo::cuda {

using SharedAddress = std::uint32_t;  // in the window of shared memory

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Loads that stay where they are written, before or after a barrier.
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
__device__ __forceinline__ void store_shared(SharedAddress to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

// ---- clusters

__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// A kernel that is launched to begin early (overlapped_launch.h) waits here until those before it
// in the stream are over and all that they wrote is seen: before it reads or writes what they may.
__device__ __forceinline__ void wait_for_kernels_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// From here on blocks of the next kernel may take the place of blocks that have ended.
__device__ __forceinline__ void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// ---- barriers in shared memory

__device__ __forceinline__ void barrier_init(SharedAddress barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// So that the copy engine and the other blocks of the cluster see them.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier in the same place of another block of the cluster. Says that shared memory was
// read; to order memory between blocks (.release.cluster) would cost a fence of all memory.
__device__ __forceinline__ void barrier_arrive_at(SharedAddress barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Arrives, and makes the phase last until so many bytes have been copied.
__device__ __forceinline__ void barrier_expect(SharedAddress barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(SharedAddress barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Whether waiting is over, without waiting.
__device__ __forceinline__ bool barrier_over(SharedAddress barrier, unsigned parity) {
  unsigned over;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}
// Of `threads` threads of the block, by number; 0 is __syncthreads().
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- the copy engine

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Bytes as they lie, addresses and count multiples of 16.
__device__ __forceinline__ void copy_bytes(SharedAddress to, const void* from, unsigned bytes,
                                           SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// The box of the map whose first element is (x, y) into shared memory; what lies outside is zero.
__device__ __forceinline__ void copy_box(SharedAddress to, const CUtensorMap& map, int x, int y,
                                         SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// The same into the same place of every block of the mask, whose barriers there count the bytes.
__device__ __forceinline__ void copy_box_to(SharedAddress to, const CUtensorMap& map, int x, int y,
                                            SharedAddress barrier, std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}
// What ordinary stores wrote to shared memory is seen by the copy engine and the tensor cores.
__device__ __forceinline__ void shared_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// From shared memory; what lies outside the map is left out. One thread, then store_commit().
__device__ __forceinline__ void store_box(const CUtensorMap& map, int x, int y,
                                          SharedAddress from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
__device__ __forceinline__ void store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until shared memory may be written again that all commits but the last kBehind have stored from;
// and until all is stored.
template <int kBehind = 0>
__device__ __forceinline__ void stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBehind) : "memory");
}
__device__ __forceinline__ void stores_done() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- registers

template <int kRegisters>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Four matrices of 8 x 8 elements of 16 bits from registers; lane i gives the address of row i % 8
// of matrix i / 8. Transposed: that of a column.
template <bool kTransposed>
__device__ __forceinline__ void store_matrices(SharedAddress to, const std::uint32_t (&from)[4]) {
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
