// Online softmax of a warp group's 64 rows of scores, in the register layout of wgmma: register 4 j
// + 2 h + i of a thread is row lane / 4 + 8 h of its warp's 16 rows and column 8 j + 2 (lane % 4) +
// i. The four threads of a row share its maximum; each keeps the sum of its own columns.
#pragma once
#include "kw/math.cuh"
#include "kw/reduce.cuh"
#include "kw/types.cuh"

namespace attention {

// Two 16-bit values in a register.
template <typename T> __device__ __forceinline__ unsigned pack(float a, float b) {
  const auto pair = kw::Pair<T>::from(a, b);
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// Sets scores of keys that a query does not see to -inf: those from `keys` on and, if CAUSAL, those
// after the query. `row` is the thread's first row, `first` the key of column 0.
template <bool CAUSAL, int N>
__device__ __forceinline__ void hide(float (&s)[N], int row, int first, int keys) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int col = first + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    const int end = CAUSAL ? min(keys, row + i % 4 / 2 * 8 + 1) : keys;
    if (col >= end) s[i] = -kw::kInfinity;
  }
}

struct OnlineSoftmax {
  float factor;  // factor of the scores, to base 2
  float top[2] = {-kw::kInfinity, -kw::kInfinity}, total[2] = {};

  // Converts scores to weights relative to the running maximum; `fade` corrects values that are
  // relative to the previous maximum.
  template <int N> __device__ __forceinline__ void add(float (&s)[N], float (&fade)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float higher = fmaxf(top[h], s[2 * h]);
#pragma unroll
      for (int j = 0; j < N; j += 4) higher = fmaxf(higher, fmaxf(s[j + 2 * h], s[j + 2 * h + 1]));
      higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
      higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
      const float base = higher == -kw::kInfinity ? 0.0f : higher * factor;
      fade[h] = kw::fast_exp2(fmaf(top[h], factor, -base));
      top[h] = higher;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < N; j += 4)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float &x = s[j + 2 * h + i];
          x = kw::fast_exp2(fmaf(x, factor, -base));
          sum += x;
        }
      total[h] = fmaf(total[h], fade[h], sum);
    }
  }

  // Called after the last key: computes the sum of a row over all of its threads.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    }
  }
  __device__ __forceinline__ float lse(int h) const {
    return (top[h] * factor + log2f(total[h])) * 0.6931471805599453f;
  }
  // The factor of a row of sums; a row without keys has sum 0 and result 0.
  __device__ __forceinline__ float scale(int h) const {
    return 1.0f / (total[h] == 0.0f ? 1.0f : total[h]);
  }
};

}  // namespace attention
