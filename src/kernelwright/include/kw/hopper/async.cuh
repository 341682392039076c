// Hopper's asynchronous instructions (sm_90a), one function for each that the matrix products use:
// the tensor copy engine (TMA), reallocation of registers between warp groups, named barriers,
// cluster barriers, and the fence between ordinary and asynchronous accesses to shared memory.
#pragma once
#include "kw/hopper/barrier.cuh"
#include "kw/cluster.cuh"
#include "kw/tensor_map.cuh"

namespace kw {

constexpr int kWarpGroup = 128;  // threads that issue one wgmma together

// Makes this thread's writes to shared memory visible to the copy engine and the tensor cores.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Addresses in shared memory are results of shared_address().
//
// Loads the box at (x, y, z) of a tensor, where x is along its contiguous dimension, to shared
// memory; `full` counts its bytes. Elements outside the tensor are written as zeros, and counted.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap &map, Barrier *full, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(shared_address(full)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// The same for every block of the cluster whose bit of `blocks` is set, at the same address in its
// shared memory, counted by its own `full` (multicast).
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap &map, Barrier *full, int x,
                                         int y, int z, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(&map), "r"(shared_address(full)), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// Stores a box of shared memory to (x, y, z) of a tensor; elements outside are not written. A
// thread commits the stores that it has issued as a group, and waits until all groups except the N
// most recent have been read from shared memory.
__device__ __forceinline__ void tma_store(const TensorMap &map, unsigned from, int x, int y,
                                          int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Sets the number of registers per thread of a warp group; all of its warps must call it.
template <int N> __device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Named barriers among whole warps, with `id` 1 to 15; 0 is __syncthreads.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// A barrier of all threads of the cluster. It does not order memory accesses: fence_barrier_init
// makes barriers visible.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// True in one thread of a converged warp; the compiler knows that it is exactly one.
__device__ __forceinline__ bool elect_one() {
  unsigned one;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(one));
  return one != 0;
}

// Stores or loads four 8 x 8 matrices of 16-bit values in shared memory: lane l gives the address
// of the 16 bytes of row l % 8 of matrix l / 8; register i of a lane holds columns 2 (l % 4) and
// the next of row l / 4 of matrix i.
__device__ __forceinline__ void store_matrices(unsigned row, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

}  // namespace kw
