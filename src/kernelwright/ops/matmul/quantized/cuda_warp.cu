// One warp per row of the weight, which is converted to float32 in registers.
//
// Idea: a lane loads 16 bytes of integers, 32 of 4 bits or 16 of 8, and multiplies each, minus its
// zero point, by the same position of every row of x. The sum of a group is scaled once.
// Traffic: the integers once, 512 contiguous bytes per load of a warp; x, which has four or eight
// times as many bytes, once per row of the weight, from L1.
// Compared with `native`: no 16-bit weight is written to memory and read again.
// Limit: instructions. Each integer is extracted from its word, converted and multiplied
// individually.
#include "../gemm/few_rows/dot.cuh"
#include "result.cuh"

constexpr int kWarps = 8, kGroup = 128;

// Value i of 16 bytes; weights.py defines the order of nibbles.
template <int BITS> __device__ __forceinline__ float value(const unsigned (&words)[4], int i) {
  if constexpr (BITS == 8) return static_cast<float>(words[i / 4] >> i % 4 * 8 & 255);
  return static_cast<float>(words[i / 8] >> (i % 8 / 2 * 4 + i % 2 * 16) & 15);
}

template <typename T, int BITS, int MOST>
__global__ void __launch_bounds__(32 * kWarps)
    quantized_warp(const T *__restrict__ x, const unsigned char *__restrict__ packed,
                   const T *__restrict__ scales, const T *__restrict__ bias, T *__restrict__ y,
                   int m, int n, int k, long long x_line) {
  constexpr int kEach = 128 / BITS, kVec = kw::kVecWidth<T>;
  const int i = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= n) return;

  float sums[MOST] = {};
  const unsigned char *row = packed + i * (static_cast<long long>(k) * BITS / 8);
  for (int j = lane * kEach; j < k; j += 32 * kEach) {
    unsigned words[4];
    const uint4 loaded = *reinterpret_cast<const uint4 *>(row + j * BITS / 8);
    memcpy(words, &loaded, 16);
    const T *of_group = scales + 2 * (j / kGroup * static_cast<long long>(n) + i);
    const float scale = kw::to_float(of_group[0]), zero = kw::to_float(of_group[1]);
#pragma unroll
    for (int r = 0; r < MOST; r++) {
      if (r >= m) continue;
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < kEach; e += kVec) {
        float of_x[kVec];
        kw::to_float(kw::load<T, kVec>(x + r * x_line + j + e), of_x);
#pragma unroll
        for (int s = 0; s < kVec; s++) sum = fmaf(value<BITS>(words, e + s) - zero, of_x[s], sum);
      }
      sums[r] = fmaf(scale, sum, sums[r]);
    }
  }
  const few_rows::Biased<T> store{bias, y};
#pragma unroll
  for (int r = 0; r < MOST; r++) {
    sums[r] = kw::warp_reduce<kw::Sum>(sums[r]);
    if (lane == 0 && r < m) store(sums[r], i, r, n);
  }
}
