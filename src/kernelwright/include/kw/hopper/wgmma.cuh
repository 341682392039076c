// Hopper's tensor cores (sm_90a): D (64 x N, float32, in registers) += A (64 x K) B (K x N), both
// in shared memory, where K is 32 bytes. A warp group issues the instruction together and
// continues; wgmma_wait waits for the results.
//
// Register 4 j + 2 h + i of a thread holds row 16 (warp % 4) + lane / 4 + 8 h of D and column 8 j +
// 2 (lane % 4) + i.
#pragma once
#include "kw/hopper/async.cuh"
#include "kw/types.cuh"

namespace kw {

// An operand is stored in shared memory in rows of 128 bytes with the 128-byte swizzle: 16-byte
// unit u of row r is at unit u ^ (r % 8). It starts at a multiple of 1,024 bytes.
//   K_MAJOR: k is contiguous; a row is 64 elements along k, and the number of rows is the width of
//       the operand.
//   otherwise: the width is contiguous; a row is 64 elements of it, a block has 64 rows, one per k,
//       and the operand consists of several such blocks of 8 KiB.
// The descriptor contains the start of the operand, the distance of the next 8 rows (stride) and
// that of the next block along the width (lead). step(i) is what the i-th k of an instruction adds
// to it.
template <bool K_MAJOR> struct Operand {
  static constexpr unsigned kRow = 128, kBlock = 64 * kRow;
  static __device__ __forceinline__ unsigned long long descriptor(unsigned address) {
    constexpr unsigned long long lead = K_MAJOR ? 1 : kBlock / 16, stride = 8 * kRow / 16;
    return (1ull << 62) | (stride << 32) | (lead << 16) | ((address & 0x3ffff) >> 4);
  }
  static __device__ __forceinline__ constexpr unsigned step(int i) {
    return i * (K_MAJOR ? 32 : 16 * kRow) / 16;
  }
};

// Called between ordinary accesses to registers and the wgmma that uses them next.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all groups of this warp group except the N most recent are done.
template <int N> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// The compiler reads these registers only after this point.
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// One instruction: Wgmma<T, N>::mma<A_K_MAJOR, B_K_MAJOR>(d, a, b, add), with add = 0 for d = a b.
template <typename T, int N> struct Wgmma;

// Ten operands in the text of the instruction, and eight in its constraints.
#define KW_TEN(t)                                                                                  \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define KW_EIGHT(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KW_16(i) KW_EIGHT(i), KW_EIGHT(i + 8)
#define KW_WGMMA(TYPE, NAME, N, ADD, OUT, IN, ...)                                                \
  template <> struct Wgmma<TYPE, N> {                                                             \
    template <bool A_K_MAJOR, bool B_K_MAJOR>                                                     \
    static __device__ __forceinline__ void mma(float (&d)[N / 2], unsigned long long a,           \
                                               unsigned long long b, int add) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                        \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" OUT \
                   "}, " IN ";\n}"                                                                \
                   : __VA_ARGS__                                                                  \
                   : "l"(a), "l"(b), "r"(add), "n"(!A_K_MAJOR), "n"(!B_K_MAJOR));                 \
    }                                                                                             \
  };
#define KW_WGMMA_SIZES(TYPE, NAME)                                                               \
  KW_WGMMA(TYPE, NAME, 64, "%34", KW_TEN() KW_TEN(1) KW_TEN(2) "%30, %31",                       \
           "%32, %33, p, 1, 1, %35, %36", KW_16(0), KW_16(16))                                   \
  KW_WGMMA(TYPE, NAME, 96, "%50",                                                                \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47",      \
           "%48, %49, p, 1, 1, %51, %52", KW_16(0), KW_16(16), KW_16(32))                        \
  KW_WGMMA(TYPE, NAME, 128, "%66",                                                               \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) "%60, %61, %62, %63",      \
           "%64, %65, p, 1, 1, %67, %68", KW_16(0), KW_16(16), KW_16(32), KW_16(48))             \
  KW_WGMMA(TYPE, NAME, 160, "%82",                                                               \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5)                            \
               KW_TEN(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79",                     \
           "%80, %81, p, 1, 1, %83, %84", KW_16(0), KW_16(16), KW_16(32), KW_16(48), KW_16(64))  \
  KW_WGMMA(TYPE, NAME, 192, "%98",                                                               \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7)        \
               KW_TEN(8) "%90, %91, %92, %93, %94, %95",                                         \
           "%96, %97, p, 1, 1, %99, %100", KW_16(0), KW_16(16), KW_16(32), KW_16(48), KW_16(64), \
           KW_16(80))                                                                            \
  KW_WGMMA(TYPE, NAME, 224, "%114",                                                              \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7)        \
               KW_TEN(8) KW_TEN(9) KW_TEN(10) "%110, %111",                                      \
           "%112, %113, p, 1, 1, %115, %116", KW_16(0), KW_16(16), KW_16(32), KW_16(48),         \
           KW_16(64), KW_16(80), KW_16(96))                                                      \
  KW_WGMMA(TYPE, NAME, 256, "%130",                                                              \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7)        \
               KW_TEN(8) KW_TEN(9) KW_TEN(10)                                                    \
                   KW_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127",                  \
           "%128, %129, p, 1, 1, %131, %132", KW_16(0), KW_16(16), KW_16(32), KW_16(48),         \
           KW_16(64), KW_16(80), KW_16(96), KW_16(112))
KW_WGMMA_SIZES(__nv_bfloat16, "bf16")
KW_WGMMA_SIZES(__half, "f16")
#undef KW_WGMMA_SIZES
#undef KW_WGMMA
#undef KW_16
#undef KW_EIGHT
#undef KW_TEN

}  // namespace kw
