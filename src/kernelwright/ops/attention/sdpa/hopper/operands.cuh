// Additions to the matrix products' headers for attention on Hopper: four-dimensional boxes, tiles
// of rows in shared memory as operands, and wgmma with A in registers.
#pragma once
#include "kw/hopper/wgmma.cuh"

namespace kw {

// A position in a tensor of (batch, head, row, column), in the order of its map: column first.
struct Corner {
  int col, row, head, batch;
};

__device__ __forceinline__ void tma_load(unsigned to, const TensorMap &map, Barrier *full,
                                         const Corner &at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(shared_address(full)), "r"(at.col), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap &map, unsigned from, const Corner &at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(at.col), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}

// Loads `bytes` of contiguous memory, a multiple of 16, to shared memory.
__device__ __forceinline__ void bulk_load(unsigned to, const void *from, unsigned bytes,
                                          Barrier *full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(full))
      : "memory");
}

// ROWS x D elements of 16 bits in shared memory: one box per 64 columns, with rows of 128 bytes and
// the 128-byte swizzle. As an operand, k is either the columns (scores) or the rows (sums of
// values).
template <int ROWS, int D> struct Rows {
  static constexpr int kBox = ROWS * 128, kBoxes = D / 64, kBytes = kBox * kBoxes;

  static __device__ __forceinline__ void load(unsigned to, const TensorMap &map, Barrier *full,
                                              Corner at) {
#pragma unroll
    for (int i = 0; i < kBoxes; i++, at.col += 64) tma_load(to + i * kBox, map, full, at);
  }
  // The operand with k = columns from 16 i on, and the rows from `first` on as the width.
  static __device__ __forceinline__ unsigned long long columns(unsigned at, int first, int i) {
    return Operand<true>::descriptor(at + i / 4 * kBox + first * 128) + Operand<true>::step(i % 4);
  }
  // The operand with k = rows from 16 i on, and all columns as the width.
  static __device__ __forceinline__ unsigned long long rows(unsigned at, int i) {
    constexpr unsigned long long lead = kBox / 16, stride = 8 * 128 / 16;
    return ((1ull << 62) | (stride << 32) | (lead << 16) | ((at & 0x3ffff) >> 4)) + i * 128;
  }
};

// D (64 x N) += A (64 x 16, in registers) B (16 x N, with contiguous width, in shared memory). The
// registers of A hold row 16 (warp % 4) + lane / 4 and the row 8 further, columns 2 (lane % 4) and
// the next, in the order (row, column), (row + 8, column), (row, column + 8), (row + 8, column +
// 8).
template <typename T, int N> struct WgmmaRegisters;

#define KW_TEN(t)                                                                                  \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define KW_EIGHT(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KW_16(i) KW_EIGHT(i), KW_EIGHT(i + 8)
#define KW_WGMMA(TYPE, NAME, N, OUT, IN, ...)                                               \
  template <> struct WgmmaRegisters<TYPE, N> {                                              \
    static __device__ __forceinline__ void mma(float (&d)[N / 2], const unsigned *a,        \
                                               unsigned long long b) {                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" OUT \
                   "}, " IN ";"                                                             \
                   : __VA_ARGS__                                                            \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                   \
    }                                                                                       \
  };
#define KW_WGMMA_SIZES(TYPE, NAME)                                                             \
  KW_WGMMA(TYPE, NAME, 64, KW_TEN() KW_TEN(1) KW_TEN(2) "%30, %31",                            \
           "{%32, %33, %34, %35}, %36, 1, 1, 1, 1", KW_16(0), KW_16(16))                       \
  KW_WGMMA(TYPE, NAME, 128,                                                                    \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) "%60, %61, %62, %63",    \
           "{%64, %65, %66, %67}, %68, 1, 1, 1, 1", KW_16(0), KW_16(16), KW_16(32), KW_16(48)) \
  KW_WGMMA(TYPE, NAME, 256,                                                                    \
           KW_TEN() KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5) KW_TEN(6) KW_TEN(7)      \
               KW_TEN(8) KW_TEN(9) KW_TEN(10)                                                  \
                   KW_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127",                \
           "{%128, %129, %130, %131}, %132, 1, 1, 1, 1", KW_16(0), KW_16(16), KW_16(32),       \
           KW_16(48), KW_16(64), KW_16(80), KW_16(96), KW_16(112))
KW_WGMMA_SIZES(__nv_bfloat16, "bf16")
KW_WGMMA_SIZES(__half, "f16")
#undef KW_WGMMA_SIZES
#undef KW_WGMMA
#undef KW_16
#undef KW_EIGHT
#undef KW_TEN

}  // namespace kw
