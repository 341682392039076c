// The operands of stream.cuh in 16 bits: a stage is 64 elements along k of the rows of the weight
// and of x, 128 bytes of each, with the 128-byte swizzle. Tensor cores read both from shared
// memory.
#pragma once
#include "stream.cuh"
#include "kw/hopper/wgmma.cuh"

namespace stream {

// Rows<T, N>::mma(d, a, b): D (64 x N) += A B, both operands contiguous along k.
template <typename T, int N> struct Rows;

#define KW_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_ROWS(TYPE, NAME, N, OUT, A, B, ...)                                              \
  template <> struct Rows<TYPE, N> {                                                        \
    static __device__ __forceinline__ void mma(float (&d)[N / 2], unsigned long long a,     \
                                               unsigned long long b) {                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" OUT \
                   "}, " A ", " B ", 1, 1, 1, 0, 0;"                                        \
                   : __VA_ARGS__                                                            \
                   : "l"(a), "l"(b));                                                       \
    }                                                                                       \
  };
#define KW_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KW_16 KW_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_32 \
  KW_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_SIZES(TYPE, NAME)                                                                    \
  KW_ROWS(TYPE, NAME, 8, "%0, %1, %2, %3", "%4", "%5", KW_FOUR(0))                              \
  KW_ROWS(TYPE, NAME, 16, KW_8, "%8", "%9", KW_FOUR(0), KW_FOUR(4))                             \
  KW_ROWS(TYPE, NAME, 32, KW_16, "%16", "%17", KW_FOUR(0), KW_FOUR(4), KW_FOUR(8), KW_FOUR(12)) \
  KW_ROWS(TYPE, NAME, 64, KW_32, "%32", "%33", KW_FOUR(0), KW_FOUR(4), KW_FOUR(8), KW_FOUR(12), \
          KW_FOUR(16), KW_FOUR(20), KW_FOUR(24), KW_FOUR(28))
KW_SIZES(__nv_bfloat16, "bf16")
KW_SIZES(__half, "f16")
#undef KW_SIZES
#undef KW_32
#undef KW_16
#undef KW_8
#undef KW_ROWS
#undef KW_FOUR

template <typename T, class SHAPE> struct Dense {
  static constexpr int kOfWeight = SHAPE::kRows * 128, kOfX = SHAPE::kColumns * 128;
  static constexpr int kStage = kOfWeight + kOfX;
  const kw::TensorMap &weight, &x;
  int bytes;  // that a stage receives: fewer than it holds if a matrix has fewer rows

  __device__ __forceinline__ void load(unsigned to, kw::Barrier *full, int top, int step) const {
    kw::tma_load(to, weight, full, 64 * step, top, 0);
    kw::tma_load(to + kOfWeight, x, full, 64 * step, 0, 0);
  }
  __device__ __forceinline__ void multiply(Sums<SHAPE> &sums, unsigned stage) const {
    using Operand = kw::Operand<true>;
    const auto a = Operand::descriptor(stage + threadIdx.x / kw::kWarpGroup * 64 * 128);
    const auto b = Operand::descriptor(stage + kOfWeight);
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
      Rows<T, SHAPE::kColumns>::mma(sums, a + Operand::step(i), b + Operand::step(i));
    kw::wgmma_commit();
    kw::wgmma_wait<0>();
    kw::pin(sums);
  }
};

}  // namespace stream
