// The operands of stream.cuh with weights of 4 or 8 bits: a stage is a group of 128 elements along
// k, 64 or 128 bytes of each row of the weight, swizzled by as many, the scale and zero point of
// each row, and 256 bytes of each row of x as two operands of 64 elements.
//
// The weight goes through registers. In an instruction of 16 elements along k, the four lanes of a
// row hold elements 2 q, 2 q + 1, 2 q + 8 and 2 q + 9; they read the same words and select theirs.
// Values are converted after subtraction of their zero point, which is exact in 16 bits; the sums
// of a group are scaled. While one warp group waits for its products, the others convert.
#pragma once
#include "../gemm/few_rows/hopper/warpgroup.cuh"
#include "../gemm/stream/stream.cuh"
#include "integers.cuh"
#include "kw/hopper/wgmma.cuh"

namespace stream {

__device__ __forceinline__ uint4 load_16(unsigned shared) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared)
               : "memory");
  return v;
}
__device__ __forceinline__ unsigned load_4(unsigned shared) {
  unsigned v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared) : "memory");
  return v;
}

// The left operand of COUNT instructions of a stage, from instruction FIRST on: register h + 2 u of
// instruction i holds lane q's pair of unit 2 i + u (8 elements) of row lane / 4 + 8 h.
template <typename T, int BITS, int COUNT> struct Left {
  unsigned a[COUNT][4];

  // `at`: address of row h = 0 of this lane, whose swizzle is that of row h = 1.
  __device__ __forceinline__ void load(unsigned at, int first, const unsigned (&meta)[2]) {
    const int lane = threadIdx.x % 32, q = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if constexpr (BITS == 4) {
        const few_rows::FourBits<T> values(meta[h]);
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
          const int unit = (first + i) / 2 ^ (lane / 8);
          const uint4 v = load_16(at + h * 8 * 64 + unit * 16);
          a[i][h] = values.pair(v.x, q), a[i][h + 2] = values.pair(v.y, q);
          a[i + 1][h] = values.pair(v.z, q), a[i + 1][h + 2] = values.pair(v.w, q);
        }
      } else {
        const few_rows::EightBits<T> values(meta[h]);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
          const unsigned unit = at + h * 8 * 128 + ((first + i) ^ (lane / 4)) * 16 + q / 2 * 4;
          a[i][h] = values.pair(load_4(unit), q % 2 * 2);
          a[i][h + 2] = values.pair(load_4(unit + 8), q % 2 * 2);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
  }
};

template <typename T, int BITS, class SHAPE> struct Integers {
  static constexpr int kRow = 16 * BITS, kOfWeight = SHAPE::kRows * kRow;
  static constexpr int kOperand = SHAPE::kColumns * 128, kOfX = 2 * kOperand;
  static constexpr int kScales = SHAPE::kRows > 128 ? 2 : 1;  // copies, of at most 256 elements
  static constexpr int kOfScales = SHAPE::kRows * 4;
  static constexpr int kStage = (kOfWeight + kOfX + kOfScales + 1023) / 1024 * 1024;
  // Instructions whose left operands are in registers at once: 17 warps leave 96 for each.
  static constexpr int kAtOnce = SHAPE::kBlocks <= 4 ? 8 : 2;
  const kw::TensorMap &weight, &scales, &x;
  int bytes;  // that a stage receives: fewer than it holds if a matrix has fewer rows

  __device__ __forceinline__ void load(unsigned to, kw::Barrier *full, int top, int step) const {
    kw::tma_load(to, weight, full, kRow * step, top, 0);
#pragma unroll
    for (int i = 0; i < 2; i++)
      kw::tma_load(to + kOfWeight + i * kOperand, x, full, 128 * step + 64 * i, 0, 0);
#pragma unroll
    for (int i = 0; i < kScales; i++)
      kw::tma_load(to + kOfWeight + kOfX + i * (kOfScales / kScales), scales, full,
                   2 * (top + i * (SHAPE::kRows / kScales)), step, 0);
  }
  __device__ __forceinline__ void multiply(Sums<SHAPE> &sums, unsigned stage) const {
    using Operand = kw::Operand<true>;
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    unsigned meta[2];
#pragma unroll
    for (int h = 0; h < 2; h++) meta[h] = load_4(stage + kOfWeight + kOfX + 4 * (row + 8 * h));
    const auto b = Operand::descriptor(stage + kOfWeight);
    float d[SHAPE::kSums];
    Left<T, BITS, kAtOnce> left;
#pragma unroll
    for (int first = 0; first < 8; first += kAtOnce) {
      left.load(stage + row * kRow, first, meta);
      kw::wgmma_fence();
#pragma unroll
      for (int i = first; i < first + kAtOnce; i++)
        few_rows::WarpgroupMma<T, SHAPE::kColumns>::mma(
            d, left.a[i - first], b + (i / 4) * (kOperand / 16) + Operand::step(i % 4), i > 0);
      kw::wgmma_commit();
      kw::wgmma_wait<0>();
      kw::pin(d);
    }
#pragma unroll
    for (int i = 0; i < SHAPE::kSums; i++) {
      const float by = kw::to_float2(few_rows::pair_of<T>(meta[i / 2 % 2])).x;
      sums[i] = fmaf(by, d[i], sums[i]);
    }
  }
};

}  // namespace stream
