// Weights of 4 and 8 bits for few_rows.cuh, in groups of 128 along k: a slice is one group.
//
// Shared memory holds the integers of a slice in the order of global memory, followed by the scale
// and the zero point of each row. A lane's 32 elements along k are adjacent, 8 for each of four
// steps, so x is read in this order. Values are converted to operands after subtraction of their
// zero point, which is exact in 16 bits; their sums are scaled.
#pragma once
#include "../gemm/few_rows/weights.cuh"
#include "kw/async.cuh"

namespace few_rows {

// Two 16-bit values in one register.
template <typename T> __device__ __forceinline__ unsigned bits_of(typename kw::Pair<T>::type pair) {
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
template <typename T> __device__ __forceinline__ typename kw::Pair<T>::type pair_of(unsigned bits) {
  typename kw::Pair<T>::type pair;
  memcpy(&pair, &bits, 4);
  return pair;
}

// x & mask | bits in one instruction, which can have only one constant.
__device__ __forceinline__ unsigned masked(unsigned x, unsigned mask, unsigned bits) {
#ifdef __CUDA_ARCH__
  unsigned y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
#else
  return (x & mask) | bits;
#endif
}

// Four pairs of 16-bit values, v0 v1, v2 v3, ..., from eight nibbles, minus the zero point.
template <typename T> struct FourBits {
  // A number with these bits and a small integer in the lowest ones is kOffset plus the integer.
  static constexpr unsigned kBits = matmul::kIsHalf<T> ? 0x64006400 : 0x43004300;
  typename kw::Pair<T>::type zero;

  // `meta`: scale and zero point. kBits is the offset itself; adding the zero point is exact.
  __device__ __forceinline__ explicit FourBits(unsigned meta)
      : zero(__hadd2(pair_of<T>(meta >> 16 | (meta & 0xffff0000u)), pair_of<T>(kBits))) {}
  __device__ __forceinline__ unsigned pair(unsigned word, int i) const {
    return bits_of<T>(__hsub2(pair_of<T>(masked(word >> 4 * i, 0x000f000f, kBits)), zero));
  }
  __device__ __forceinline__ uint4 eight(unsigned word) const {
    return {pair(word, 0), pair(word, 1), pair(word, 2), pair(word, 3)};
  }
};

// The same for eight bytes. In float32, since bfloat16 cannot represent an offset above 255.
template <typename T> struct EightBits {
  float zero;  // plus 2^23, whose bits are 0x4b000000

  __device__ __forceinline__ explicit EightBits(unsigned meta)
      : zero(8388608.0f + kw::to_float2(pair_of<T>(meta)).y) {}
  __device__ __forceinline__ float value(unsigned word, int i) const {
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540 + i)) - zero;
  }
  __device__ __forceinline__ unsigned pair(unsigned word, int i) const {
    return bits_of<T>(kw::Pair<T>::from(value(word, i), value(word, i + 1)));
  }
  __device__ __forceinline__ uint4 eight(unsigned low, unsigned high) const {
    return {pair(low, 0), pair(low, 2), pair(high, 0), pair(high, 2)};
  }
};

template <typename T, int BITS> struct Quantized {
  static constexpr bool kScaled = true;
  static constexpr int kRow = kSlice * BITS / 8, kUnits = kRow / 16, kIntegers = kRows * kRow;
  static constexpr int kBytes = kIntegers + kRows * 4;
  static_assert(sizeof(T) == 2, "a scale and a zero point are 4 bytes");
  const unsigned char *packed;
  const T *scales;  // shape (groups, n, 2)
  int n, k;

  static __device__ __forceinline__ int place(int row, int unit) {
    return row * kRow + 16 * (BITS == 8 ? unit ^ (row & 1) : unit);
  }
  static __device__ __forceinline__ int unit_of_x(int unit) { return unit % 4 * 4 + unit / 4; }

  // The data that a thread copies: a unit of every (kThreads / kUnits)-th row, slice after slice,
  // and the scale of one row.
  struct Cursor {
    const unsigned char *p;
    long long step;
    const unsigned *scale;
    int to, rows, n;
    bool scaled;  // whether its row's scale is inside

    __device__ __forceinline__ void copy(char *shared) const {
#pragma unroll
      for (int i = 0; i < kRows * kUnits / kThreads; i++)
        matmul::copy_async_16(shared + to + i * (kThreads / kUnits) * kRow, p + i * step,
                              i * (kThreads / kUnits) < rows ? 16 : 0);
      if (threadIdx.x >= kRows) return;
      auto *of_row = reinterpret_cast<unsigned *>(shared + kIntegers) + threadIdx.x;
      if (scaled)
        kw::copy_async(of_row, scale);
      else
        *of_row = 0;
    }
    __device__ __forceinline__ void next() { p += kRow, scale += n; }
  };
  __device__ __forceinline__ Cursor cursor(int top, int from) const {
    const int unit = threadIdx.x % kUnits, row = threadIdx.x / kUnits;
    const long long line = static_cast<long long>(k) * BITS / 8;
    const int own = top + threadIdx.x;
    return {packed + (top + row) * line + from * BITS / 8 + 16 * unit,
            kThreads / kUnits * line,
            reinterpret_cast<const unsigned *>(scales) + from / kSlice * static_cast<long long>(n) +
                own,
            kept(place(row, unit)),
            n - top - row,
            n,
            own < n};
  }

  // The data that a lane multiplies: of 32 rows from `row` on, and of half the slice.
  struct Lane {
    int at, meta;  // positions of its integers, and of its scale and zero point
    __device__ __forceinline__ Lane(int row, int half) {
      const int lane = threadIdx.x % 32, q = lane % 4;
      at = kept(place(row + lane / 4, BITS == 4 ? q : 2 * q + half) + (BITS == 4 ? 8 * half : 0));
      meta = kept(kIntegers + 4 * (row + lane / 4));
    }
    __device__ __forceinline__ unsigned of_row(const char *shared, int down) const {
      return *reinterpret_cast<const unsigned *>(shared + meta + 4 * down);
    }
    __device__ __forceinline__ float scale(const char *shared, int down) const {
      return kw::to_float2(pair_of<T>(of_row(shared, down))).x;
    }
    // Loads 16 rows, the first (t = 0) or the second (t = 1).
    __device__ __forceinline__ void load(Fragments &of, const char *shared, int t) const {
      steps(of.low, shared, 16 * t);
      steps(of.high, shared, 16 * t + 8);
    }
    __device__ __forceinline__ void steps(uint4 (&of)[2], const char *shared, int down) const {
      const char *from = shared + at + down * kRow;
      if constexpr (BITS == 4) {
        const FourBits<T> values(of_row(shared, down));
        const uint2 words = *reinterpret_cast<const uint2 *>(from);
        of[0] = values.eight(words.x), of[1] = values.eight(words.y);
      } else {
        const EightBits<T> values(of_row(shared, down));
        const uint4 words = *reinterpret_cast<const uint4 *>(from);
        of[0] = values.eight(words.x, words.y), of[1] = values.eight(words.z, words.w);
      }
    }
  };
};

}  // namespace few_rows
