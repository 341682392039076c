// Weights of 4 and 8 bits for few_rows.cuh, in groups of 128 along k: a slice is one group.
//
// Shared memory holds a slice's integers as they lie in memory, then each row's scale and zero
// point. A lane's 32 of k are neighbours, 8 for each of four steps, so x is taken in that order.
// Values become operands less their zero point, which is exact in 16 bits; their sums are scaled.
#pragma once
#include "../gemm/few_rows/weights.cuh"
#include "kw/async.cuh"

namespace few_rows {

// Four pairs of 16-bit values, v0 v1, v2 v3, ..., of eight nibbles; less the zero point.
template <typename T> struct FourBits {
  using Pair = typename kw::Pair<T>::type;
  // These bits and a small integer in the lowest ones are kOffset more than the integer.
  static constexpr unsigned kBits = matmul::kIsHalf<T> ? 0x64006400 : 0x43004300;
  static constexpr float kOffset = matmul::kIsHalf<T> ? 1024.0f : 128.0f;
  Pair zero;

  __device__ __forceinline__ explicit FourBits(float z)
      : zero(kw::Pair<T>::from(kOffset + z, kOffset + z)) {}
  __device__ __forceinline__ unsigned pair(unsigned word, int i) const {
    const unsigned bits = (word >> 4 * i & 0x000f000f) | kBits;
    Pair v;
    memcpy(&v, &bits, 4);
    v = __hsub2(v, zero);
    unsigned out;
    memcpy(&out, &v, 4);
    return out;
  }
  __device__ __forceinline__ uint4 eight(unsigned word) const {
    return {pair(word, 0), pair(word, 1), pair(word, 2), pair(word, 3)};
  }
};

// The same of eight bytes. In float32, since bfloat16 has no room for an offset above 255.
template <typename T> struct EightBits {
  static constexpr float kOffset = 8388608.0f;  // 2^23: 0x4b000000
  float zero;

  __device__ __forceinline__ explicit EightBits(float z) : zero(kOffset + z) {}
  __device__ __forceinline__ float value(unsigned word, int i) const {
    return __uint_as_float(0x4b000000u | (word >> 8 * i & 255)) - zero;
  }
  __device__ __forceinline__ unsigned pair(unsigned word, int i) const {
    const auto v = kw::Pair<T>::from(value(word, i), value(word, i + 1));
    unsigned out;
    memcpy(&out, &v, 4);
    return out;
  }
  __device__ __forceinline__ uint4 eight(unsigned low, unsigned high) const {
    return {pair(low, 0), pair(low, 2), pair(high, 0), pair(high, 2)};
  }
};

template <typename T, int BITS> struct Quantized {
  static constexpr bool kScaled = true;
  static constexpr int kRow = kSlice * BITS / 8, kIntegers = kRows * kRow;
  static constexpr int kBytes = kIntegers + kRows * 2 * sizeof(T);
  const unsigned char *packed;
  const T *scales;  // of (groups, n, 2)
  int n, k;

  static __device__ __forceinline__ int place(int row, int unit) {
    return row * kRow + 16 * (BITS == 8 ? unit ^ (row & 1) : unit);
  }
  static __device__ __forceinline__ int unit_of_x(int unit) { return unit % 4 * 4 + unit / 4; }

  __device__ __forceinline__ void copy(char *shared, int top, int from) const {
    constexpr int kUnits = kRow / 16;
    const int unit = threadIdx.x % kUnits, row = threadIdx.x / kUnits;
    const long long line = static_cast<long long>(k) * BITS / 8;
    const unsigned char *p = packed + (top + row) * line + from * BITS / 8 + 16 * unit;
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / kUnits)
      matmul::copy_async_16(shared + place(row + i, unit), p + i * line,
                            top + row + i < n ? 16 : 0);
    if (threadIdx.x < kRows) {
      auto *to = reinterpret_cast<unsigned *>(shared + kIntegers) + threadIdx.x;
      const int at = top + threadIdx.x;
      if (at < n)
        kw::copy_async(to, reinterpret_cast<const unsigned *>(scales) +
                               from / kSlice * static_cast<long long>(n) + at);
      else
        *to = 0;
    }
  }
  static __device__ __forceinline__ float scale(const char *shared, int row) {
    return kw::to_float(reinterpret_cast<const T *>(shared + kIntegers)[2 * row]);
  }
  static __device__ __forceinline__ float zero(const char *shared, int row) {
    return kw::to_float(reinterpret_cast<const T *>(shared + kIntegers)[2 * row + 1]);
  }
  static __device__ __forceinline__ void row_of(uint4 (&steps)[2], const char *shared, int row,
                                                int half) {
    const int q = threadIdx.x % 4;
    if constexpr (BITS == 4) {
      const FourBits<T> values(zero(shared, row));
      const uint2 words = *reinterpret_cast<const uint2 *>(shared + place(row, q) + 8 * half);
      steps[0] = values.eight(words.x), steps[1] = values.eight(words.y);
    } else {
      const EightBits<T> values(zero(shared, row));
      const uint4 words = *reinterpret_cast<const uint4 *>(shared + place(row, 2 * q + half));
      steps[0] = values.eight(words.x, words.y), steps[1] = values.eight(words.z, words.w);
    }
  }
  static __device__ __forceinline__ void load(Fragments &of, const char *shared, int row,
                                              int half) {
    const int lane = threadIdx.x % 32;
    row_of(of.low, shared, row + lane / 4, half);
    row_of(of.high, shared, row + lane / 4 + 8, half);
  }
};

}  // namespace few_rows
