// A row in the registers and the shared memory of a cluster, as in `cuda_cluster`, with one vector
// more in registers, so that shared memory has room for a histogram. A pass is one loop without
// copies of its body: it rotates the vectors in registers, so that the next is always in the same.
#pragma once
#include "cuda_shared_best.cu"

namespace kw {
// load_logits for vectors that are not loaded in one instruction.
template <typename T>
__noinline__ __device__ Vec<T, kVecWidth<T>> load_slowly(const T *row, int col, int columns) {
  return load_logits(row, col, columns, false);
}
}  // namespace kw

template <typename T, int VECS, int THREADS, int BLOCKS> struct HeldRow {
  static constexpr int kWidth = kw::kVecWidth<T>;
  static constexpr int kFew = VECS < 3 ? VECS : 3;
  static constexpr int kInFlight = 4;
  using Piece = kw::Vec<T, kWidth>;
  using Values = const float (&)[kWidth];
  const T *row;
  Piece *rest;  // the thread's vectors in shared memory
  Piece kept[kFew];

  // Returns the largest of this thread's logits.
  __device__ __forceinline__ float load(int columns, bool aligned) {
    float most = load_some(0, kept, columns, aligned);
#pragma unroll 1
    for (int v = kFew; v < VECS; v += kInFlight) {
      Piece some[kInFlight];
      most = fmaxf(most, load_some(v, some, columns, aligned));
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        if (v + i < VECS) rest[(v + i - kFew) * THREADS] = some[i];
    }
    return most;
  }
  // Calls f(vector, column, logits) for each of this thread's vectors, by increasing column.
  template <typename F> __device__ __forceinline__ void each(const F &f) {
    pieces([&](int v, const Piece &piece) {
      float x[kWidth];
      kw::to_float(piece, x);
      f(v, place(v), x);
    });
  }
  // 16-bit types are compared in pairs, giving 1 or 0 each; their sums are exact up to 256.
  template <int N>
  __device__ __forceinline__ void count(const float (&pivot)[N], unsigned (&found)[N]) {
    if constexpr (sizeof(T) == 2) {
      using Two = typename kw::Pair<T>::type;
      Two least[N], sum[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        least[j].x = least[j].y = kw::not_below<T>(pivot[j]);
        sum[j] = kw::Pair<T>::from(0.0f, 0.0f);
      }
      pieces([&](int, const Piece &piece) {
#pragma unroll
        for (int i = 0; i < kWidth; i += 2) {
          Two x;
          memcpy(&x, &piece.v[i], 4);
#pragma unroll
          for (int j = 0; j < N; ++j) sum[j] = __hadd2(sum[j], __hge2(x, least[j]));
        }
      });
#pragma unroll
      for (int j = 0; j < N; ++j)
        found[j] += unsigned(kw::to_float(sum[j].x) + kw::to_float(sum[j].y));
    } else {
      each([&](int, int, Values x) {
        for (const float one : x)
#pragma unroll
          for (int j = 0; j < N; ++j) found[j] += one >= pivot[j];
      });
    }
  }
  __device__ __forceinline__ float at(unsigned col) const {
    return kw::logit(kw::to_float(row[col]));
  }
  __device__ __forceinline__ void keep_infinities() {
#pragma unroll
    for (Piece &piece : kept) only_infinities(piece);
#pragma unroll 1
    for (int v = kFew; v < VECS; ++v) only_infinities(rest[(v - kFew) * THREADS]);
  }

 private:
  static __device__ __forceinline__ int place(int v) {
    return ((blockIdx.x % BLOCKS * VECS + v) * THREADS + threadIdx.x) * kWidth;
  }
  // Loads N vectors from vector v on, NaN as -infinity; returns their maximum.
  template <int N>
  __device__ __forceinline__ float load_some(int v, Piece (&some)[N], int columns, bool aligned) {
    float most = -kw::kInfinity;
    const auto whole = [&](int col) { return aligned && col + kWidth <= columns; };
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (whole(place(v + i))) some[i] = kw::load<T, kWidth>(row + place(v + i));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (v + i >= VECS) break;
      if (!whole(place(v + i))) some[i] = kw::load_slowly(row, place(v + i), columns);
      float x[kWidth];
      kw::to_float(some[i], x);
#pragma unroll
      for (float &one : x) one = kw::logit(one), most = fmaxf(most, one);
      some[i] = kw::from_float<T, kWidth>(x);
    }
    return most;
  }
  static __device__ __forceinline__ void only_infinities(Piece &piece) {
    float x[kWidth];
    kw::to_float(piece, x);
#pragma unroll
    for (float &one : x) one = one == kw::kInfinity ? 0.0f : -kw::kInfinity;
    piece = kw::from_float<T, kWidth>(x);
  }
  template <typename F> __device__ __forceinline__ void pieces(const F &f) {
#pragma unroll 1
    for (int v = 0; v < VECS; ++v) {
      Piece piece;
      if (v < kFew) {
        piece = kept[0];
#pragma unroll
        for (int i = 0; i + 1 < kFew; ++i) kept[i] = kept[i + 1];
        kept[kFew - 1] = piece;
      } else {
        piece = rest[(v - kFew) * THREADS];
      }
      f(v, piece);
    }
  }
};
