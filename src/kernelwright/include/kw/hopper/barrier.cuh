// Barriers in shared memory that count arrivals and bytes (mbarrier), and the position in a ring of
// buffers that such barriers protect.
#pragma once

namespace kw {

__device__ __forceinline__ unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// A phase of a barrier ends when `count` arrivals and all expected bytes have occurred.
// wait(parity) returns once the phase with that parity has ended: 0 for the first phase, then 1, 0,
// ...; on a new barrier wait(1) returns immediately. One bit cannot distinguish a phase from the
// one two before it: a waiting thread must not be two phases behind.
struct Barrier {
  unsigned long long state;

  __device__ __forceinline__ void init(int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(count)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  // Arrives at the same barrier of block `rank` of the cluster. Relaxed, because the barrier itself
  // orders the reads of the tensor cores and the writes of the copy engine; a release at cluster
  // scope would wait for this thread's stores to global memory.
  __device__ __forceinline__ void arrive(int rank) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(
            shared_address(this)),
        "r"(rank)
        : "memory");
  }
  // One arrival, and `bytes` more bytes expected from copies.
  __device__ __forceinline__ void expect(unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
        "r"(bytes)
        : "memory");
  }
  __device__ __forceinline__ void wait(unsigned parity) {
    unsigned done = 0;
    while (!done)
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
  }
  // The same; in addition, stores of other blocks of the cluster to this block are visible.
  __device__ __forceinline__ void wait_for_cluster(unsigned parity) {
    unsigned done = 0;
    while (!done)
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
  }
};

// Makes initialized barriers visible to the cluster and to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// A position in a ring of STAGES buffers, and the parity of the current round.
template <int STAGES> struct RingPosition {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int n) {
    parity ^= (stage + n) / STAGES & 1;
    stage = (stage + n) % STAGES;
  }
};

}  // namespace kw
