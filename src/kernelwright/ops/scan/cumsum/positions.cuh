// Positions of rows in the kernels of this folder, counted in the direction of the scan.
#pragma once
#include <kw/accumulate.cuh>
#include <kw/scan.cuh>

namespace kw {

// The type in which totals are added within a tile, and that in which they are carried from tile to
// tile: it has twice the precision, so that the running total of a long row is accurate to that of
// float.
template <typename T> struct Precision {
  using Local = float;
  using Carried = double;
};
template <> struct Precision<double> {
  using Local = double;
  using Carried = double;
};
template <> struct Precision<long long> {
  using Local = long long;
  using Carried = long long;
};
template <typename T> using local_t = typename Precision<T>::Local;
template <typename T> using carried_t = typename Precision<T>::Carried;

template <typename L, typename T> __device__ __forceinline__ L as(T x) {
  if constexpr (sizeof(T) == 8)
    return L(x);
  else
    return L(to_float(x));
}
template <typename T, typename L> __device__ __forceinline__ T stored(L x) {
  if constexpr (sizeof(T) == 8)
    return T(x);
  else
    return from_float<T>(float(x));
}

// The result that corresponds to a running state.
template <typename S> __device__ __forceinline__ S value_of(S x) { return x; }
template <typename S> __device__ __forceinline__ S value_of(Segment<S> x) { return x.sum; }
// The same without its own element; nothing precedes the first element of a segment.
template <typename S> __device__ __forceinline__ S value_before(S x, S) { return x; }
template <typename S> __device__ __forceinline__ S value_before(Segment<S> x, Segment<S> own) {
  return own.begins != S(0) ? S(0) : x.sum;
}

// The memory position of position p of a row of n.
template <bool REVERSE> __device__ __forceinline__ long long place(long long p, long long n) {
  return REVERSE ? n - 1 - p : p;
}

// WIDTH elements from position p on, in the order of the scan. WIDTH must divide n if a vector may
// not extend past a row, that is, in reverse or if another row follows; elements past the end are
// 0.
template <bool REVERSE, int WIDTH, typename T>
__device__ __forceinline__ Vec<T, WIDTH> load_positions(const T *row, long long p, long long n) {
  Vec<T, WIDTH> v{};
  if (p + WIDTH <= n) {
    v = load<T, WIDTH>(row + (REVERSE ? n - WIDTH - p : p));
    if constexpr (REVERSE) {
      const Vec<T, WIDTH> turned = v;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[i] = turned[WIDTH - 1 - i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (p + i < n) v[i] = row[place<REVERSE>(p + i, n)];
  }
  return v;
}
template <bool REVERSE, int WIDTH, typename T>
__device__ __forceinline__ void store_positions(T *row, long long p, long long n, Vec<T, WIDTH> v) {
  if (p + WIDTH <= n) {
    if constexpr (REVERSE) {
      const Vec<T, WIDTH> turned = v;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[i] = turned[WIDTH - 1 - i];
    }
    store(row + (REVERSE ? n - WIDTH - p : p), v);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (p + i < n) row[place<REVERSE>(p + i, n)] = v[i];
  }
}

}  // namespace kw
