// Hopper's tensor cores with the left operand in registers (sm_90a): D (64 x N, float32) += A B,
// with A (64 x 16) in the registers of four warps as for mma.sync, and B (16 x N) in shared memory.
//
// B has no swizzle: a block of 8 x 8 elements of 16 bits, in which the 8 elements along k of each
// of eight columns are contiguous, has 128 bytes; the blocks of the next columns follow, then those
// of the next 8 elements along k.
#pragma once
#include "kw/types.cuh"

namespace few_rows {

template <int N> __device__ __forceinline__ unsigned long long descriptor(const void *shared) {
  constexpr unsigned long long along_k = N * 16 / 16, along_n = 128 / 16;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return along_n << 32 | along_k << 16 | (at & 0x3ffff) >> 4;
}

__device__ __forceinline__ void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all committed instructions are done; the compiler reads the sums only after this
// point.
template <int N> __device__ __forceinline__ void warpgroup_wait(float (&d)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// Called between ordinary writes to shared memory and wgmma, before a barrier.
__device__ __forceinline__ void fence_shared_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// WarpgroupMma<T, N>::mma(d, a, b, add), where add is false for d = a b.
template <typename T, int N> struct WarpgroupMma;

#define KW_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_MMA(TYPE, NAME, N, OUT, A, B, ADD, ...)                                                \
  template <> struct WarpgroupMma<TYPE, N> {                                                      \
    static __device__ __forceinline__ void mma(float (&d)[N / 2], const unsigned (&a)[4],         \
                                               unsigned long long b, int add) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                        \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" OUT \
                   "}, {" A "}, " B ", p, 1, 1, 0;\n}"                                            \
                   : __VA_ARGS__                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));               \
    }                                                                                             \
  };
#define KW_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KW_16 KW_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_32 \
  KW_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_SIZES(TYPE, NAME)                                                                \
  KW_MMA(TYPE, NAME, 16, KW_8, "%8, %9, %10, %11", "%12", "%13", KW_FOUR(0), KW_FOUR(4))    \
  KW_MMA(TYPE, NAME, 32, KW_16, "%16, %17, %18, %19", "%20", "%21", KW_FOUR(0), KW_FOUR(4), \
         KW_FOUR(8), KW_FOUR(12))                                                           \
  KW_MMA(TYPE, NAME, 64, KW_32, "%32, %33, %34, %35", "%36", "%37", KW_FOUR(0), KW_FOUR(4), \
         KW_FOUR(8), KW_FOUR(12), KW_FOUR(16), KW_FOUR(20), KW_FOUR(24), KW_FOUR(28))
KW_SIZES(__nv_bfloat16, "bf16")
KW_SIZES(__half, "f16")
#undef KW_SIZES
#undef KW_32
#undef KW_16
#undef KW_8
#undef KW_MMA
#undef KW_FOUR

}  // namespace few_rows
