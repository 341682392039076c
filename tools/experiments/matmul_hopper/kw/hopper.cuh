// Hopper's asynchronous machinery (sm_90a), one function for each PTX instruction that our kernels
// use: the tensor copy engine (TMA), registers that move between warp groups, named and cluster
// barriers, and the fence between the ordinary and the asynchronous way into shared memory.
#pragma once
#include "kw/barrier.cuh"
#include "kw/cluster.cuh"

namespace kw {

constexpr int kGroup = 128;  // threads of a warp group

// What cuTensorMapEncodeTiled writes; a kernel takes it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// What this thread wrote to shared memory is seen by the copy engine and the tensor cores.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Box (x, y) of a matrix, x counted along its contiguous dimension, to shared memory. Its bytes are
// counted by `full`. What lies outside the matrix arrives as zeros, and counts.
__device__ __forceinline__ void tma_load(void *to, const TensorMap &map, Barrier *full, int x,
                                         int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(full)), "r"(x), "r"(y)
      : "memory");
}
// The same to every block of the cluster whose bit of `blocks` is set, at the same place of its
// shared memory, counted by its own `full`.
__device__ __forceinline__ void tma_load(void *to, const TensorMap &map, Barrier *full, int x,
                                         int y, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(full)), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// A box of shared memory to place (x, y) of a matrix; what lies outside is not written. A thread
// closes the stores that it issued into a group, and waits until all but the N youngest groups
// have been read from shared memory.
__device__ __forceinline__ void tma_store(const TensorMap &map, const void *from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Registers of each thread of a warp group from here on. All its warps call it.
template <int N> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Named barriers among whole warps, `id` 1 to 15; 0 is __syncthreads. signal() does not wait.
__device__ __forceinline__ void meet(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void signal(int id, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// All threads of the cluster. Orders no memory: barriers are announced by fence_barrier_init.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_meet() {
  cluster_arrive();
  cluster_wait();
}

// True in one thread of a warp, and the compiler knows that it is one.
__device__ __forceinline__ bool elected() {
  unsigned one;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(one));
  return one != 0;
}

// With overlapping launches a kernel may start before the one in front of it has ended: it waits
// before its first access to global memory, and lets the next one start.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Four 8x8 matrices of 16-bit values to shared memory: lane l names the 16 bytes that row l % 8 of
// matrix l / 8 goes to, and register i of a lane holds columns 2 (l % 4) and the next of row l / 4
// of matrix i.
__device__ __forceinline__ void store_matrices(void *row, const unsigned (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace kw
