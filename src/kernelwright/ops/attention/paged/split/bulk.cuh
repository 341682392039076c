// Bulk copies from global to shared memory by the copy engine (cp.async.bulk, compute capability
// 9.0), and the barriers that count their bytes. On a CPU the calling thread copies, and the
// barrier counts arrivals only.
#pragma once

namespace split {

#ifndef __CUDA_ARCH__
namespace emulator = kw::emulator;
#endif

__device__ __forceinline__ unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// An mbarrier: a phase ends when `count` arrivals and all expected bytes have occurred.
// wait(parity) returns once the phase of that parity has ended: 0 for the first, then 1, 0, ...; on
// a new barrier wait(1) returns at once. A waiting thread must not be two phases behind.
struct Mbarrier {
  unsigned long long state;

  __device__ __forceinline__ void init(int count) {
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(count)
                 : "memory");
#else
    emulator::mbarrier_init(shared_address(this), count);
#endif
  }
  __device__ __forceinline__ void arrive() {
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
#else
    emulator::mbarrier_arrive_expect_tx(shared_address(this), 0);
#endif
  }
  __device__ __forceinline__ void wait(unsigned parity) {
    unsigned done = 0;
    while (!done)
#ifdef __CUDA_ARCH__
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
#else
      done = emulator::mbarrier_try_wait(shared_address(this), parity);
#endif
  }

  // Copies by a warp, which are one arrival: every lane calls before_copies, then copy for each of
  // its copies, then after_copies. `bytes` are expected by the phase; one of several warps may
  // expect the bytes of all of them.
  __device__ __forceinline__ void before_copies(unsigned bytes) {
#ifdef __CUDA_ARCH__
    if (threadIdx.x % 32 == 0)
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
          "r"(bytes)
          : "memory");
    __syncwarp();
#endif
  }
  // Addresses and bytes are multiples of 16.
  __device__ __forceinline__ void copy(char *to, const char *from, int bytes) {
#ifdef __CUDA_ARCH__
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(this))
        : "memory");
#else
    for (int i = 0; i < bytes; i += 16)
      *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
#endif
  }
  __device__ __forceinline__ void after_copies() {
#ifndef __CUDA_ARCH__
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive();
#endif
  }
};

// Makes initialized barriers visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  emulator::fence_mbarrier_init();
#endif
}

// A position in a ring of STAGES buffers, and the parity of the current round.
template <int STAGES> struct Position {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

}  // namespace split
