// Thread-block clusters (compute capability 9.0): several blocks that can write to each other's
// shared memory.
#pragma once

namespace kw {

// The rank of this block in its cluster.
__device__ __forceinline__ int cluster_rank() {
#ifdef __CUDA_ARCH__
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return emulator::cluster_ctarank();
#endif
}

// A mailbox in the shared memory of each block of a cluster, to which the other blocks send. It is
// full when `bytes` bytes have arrived. An mbarrier counts the bytes in hardware, so that only the
// receiver waits: a barrier of the whole cluster would also wait for all accesses to global memory.
//
//   box.open(bytes);    called by every thread; work that needs no other block may follow
//   box.ready();        called by every warp, converged: all blocks run and have opened theirs
//   box.send(...);      called by any thread, to any block
//   box.wait();         called by every thread before it reads the data
//
// A block must not exit before its mailbox is full, because a sender needs it to be running.
//
// A loop alternates between two mailboxes, which open_all opens together. Once a mailbox is full,
// expect() opens it for the iteration after the next one, whose bytes may already be arriving.
// wait() takes the phase parity: 0 for the first time that a mailbox is filled, then 1, 0, and so
// on. One mailbox would not be enough: a block that has received all data of one iteration may send
// data of the next iteration while another block is still waiting for the first. A mailbox that no
// iteration will fill is not opened, so that every opened mailbox is also waited for.
struct Mailbox {
  unsigned long long barrier;

  __device__ __forceinline__ void open(unsigned bytes) {
    init_all(this, 1);
    expect(bytes);
    announce();
  }
  // Opens the mailboxes of those of the first N iterations for which `comes(turn)` holds.
  template <int N, typename Comes>
  static __device__ __forceinline__ void open_all(Mailbox (&boxes)[N], unsigned bytes,
                                                  Comes comes) {
    init_all(boxes, N);
    for (int turn = 0; turn < N; turn++)
      if (comes(turn)) boxes[turn].expect(bytes);
    announce();
  }

  // Every thread may call this; only thread 0 has an effect.
  __device__ __forceinline__ void expect(unsigned bytes) {
    if (threadIdx.x == 0)
#ifdef __CUDA_ARCH__
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barrier)),
          "r"(bytes)
          : "memory");
#else
      emulator::mbarrier_arrive_expect_tx(address(&barrier), bytes);
#endif
  }

  static __device__ __forceinline__ void ready() {
#ifdef __CUDA_ARCH__
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    emulator::cluster_wait();
#endif
  }

  // Writes `value` to `*slot` of block `rank` and counts its bytes in that block's mailbox.
  template <typename T> __device__ __forceinline__ void send(T *slot, T value, int rank) {
    const unsigned to = remote(address(slot), rank), box = remote(address(&barrier), rank);
    if constexpr (sizeof(T) == 8) {
      unsigned long long bits;
      memcpy(&bits, &value, 8);
#ifdef __CUDA_ARCH__
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
          "l"(bits), "r"(box)
          : "memory");
#else
      emulator::st_async(to, bits, box);
#endif
    } else {
      static_assert(sizeof(T) == 4, "4 or 8 bytes at a time");
      unsigned bits;
      memcpy(&bits, &value, 4);
#ifdef __CUDA_ARCH__
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
          "r"(bits), "r"(box)
          : "memory");
#else
      emulator::st_async(to, bits, box);
#endif
    }
  }

  __device__ __forceinline__ void wait(unsigned parity = 0) {
    unsigned full = 0;
    while (!full)
#ifdef __CUDA_ARCH__
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(full)
          : "r"(address(&barrier)), "r"(parity)
          : "memory");
#else
      full = emulator::mbarrier_try_wait(address(&barrier), parity);
#endif
  }

 private:
  static __device__ __forceinline__ void init_all(Mailbox *boxes, int n) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < n; i++) boxes[i].init();
#ifdef __CUDA_ARCH__
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
      emulator::fence_mbarrier_init();
#endif
    }
    __syncwarp();  // racecheck attributes a lane's init to its whole warp
  }
  __device__ __forceinline__ void init() {
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
#else
    emulator::mbarrier_init(address(&barrier), 1);
#endif
  }
  // Signals to the other blocks that this block runs and has opened its mailboxes.
  static __device__ __forceinline__ void announce() {
    __syncwarp();
#ifdef __CUDA_ARCH__
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
    emulator::cluster_arrive_relaxed();
#endif
  }
  static __device__ __forceinline__ unsigned address(const void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
  }
  static __device__ __forceinline__ unsigned remote(unsigned address, int rank) {
#ifdef __CUDA_ARCH__
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
#else
    return emulator::mapa(address, rank);
#endif
  }
};

}  // namespace kw
