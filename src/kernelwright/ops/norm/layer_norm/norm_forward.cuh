// Shared by the forward kernels whose blocks loop over rows: rows prefetched by asynchronous copies
// while others are computed, and the parameters of a thread's columns.
#pragma once
#include "../norm.cuh"

namespace kw {

// The rows that a forward reads (x and, with kAdd, a residual) and the sum h that it writes.
template <typename N> struct Rows {
  const typename N::T *x, *r;
  typename N::T *h;
  long long x_stride, r_stride, n_rows;
  int n_cols;
};

// A block's THREADS threads hold ROWS rows in flight. cp.async copies a thread's elements to shared
// memory slots that only this thread uses, so no barrier is needed; a slot is refilled as soon as
// the thread has read it.
template <typename N, int VEC, int VECS, int THREADS, int ROWS> struct Arrivals {
  using T = typename N::T;
  using V = Vec<T, VEC>;
  static constexpr int kStreams = N::kAdd ? 2 : 1;

  V *const slots;
  const int first, n_cols;  // the thread's first vector; columns of the row

  __device__ __forceinline__ Arrivals(void *shared, int first, int n_cols)
      : slots(static_cast<V *>(shared) + threadIdx.x), first(first), n_cols(n_cols) {
    // slots past the row's end are never copied to: they hold zeros
#pragma unroll
    for (int v = 0; v < VECS; v++)
      if (column(v) >= n_cols)
        for (int i = 0; i < ROWS * kStreams; i++) slots[(i * VECS + v) * THREADS] = V{};
  }

  __device__ __forceinline__ int column(int v) const { return (v * THREADS + first) * VEC; }
  // Vector v of the i-th row in flight: x, or after `take` the vector that is normalized.
  __device__ __forceinline__ V &slot(int i, int v, int stream = 0) const {
    return slots[((i * kStreams + stream) * VECS + v) * THREADS];
  }

  // Starts the copies of row `row` into the i-th row in flight.
  __device__ __forceinline__ void start(const Rows<N> &from, int i, long long row) const {
    if (row < from.n_rows) {
      const T *const x = from.x + row * from.x_stride + column(0);
      const T *const r = from.r + row * from.r_stride + column(0);
#pragma unroll
      for (int v = 0; v < VECS; v++) {
        if (column(v) >= n_cols) continue;
        copy_async(&slot(i, v), reinterpret_cast<const V *>(x) + v * THREADS);
        if constexpr (N::kAdd)
          copy_async(&slot(i, v, 1), reinterpret_cast<const V *>(r) + v * THREADS);
      }
    }
    copy_async_commit();
  }

  // Reads row `row` from the i-th slots. With a residual it is x + r, rounded, and also stored.
  __device__ __forceinline__ void take(V (&out)[VECS], const Rows<N> &from, int i,
                                       long long row) const {
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      out[v] = slot(i, v);
      if constexpr (N::kAdd) {
        float a[VEC], b[VEC];
        to_float(out[v], a);
        to_float(slot(i, v, 1), b);
#pragma unroll
        for (int k = 0; k < VEC; k++) a[k] += b[k];
        slot(i, v) = out[v] = from_float<T>(a);
        store_if(from.h + row * n_cols + column(v), column(v) < n_cols, out[v]);
      }
    }
  }
};

// Weight and bias of a thread's columns, kept for all its rows: as floats or in their own dtype
// where 64 registers are enough, else loaded again for each row.
template <typename N, int VEC, int VECS> struct Parameters {
  static constexpr bool kFloats = VECS * VEC <= 32;
  static constexpr bool kRaw = !kFloats && VECS * VEC * sizeof(typename N::W) <= 128;
  const typename N::W *const w, *const b;
  const int given, n_cols;
  const float offset;
  float weight[kFloats ? VECS : 1][VEC], bias[kFloats && N::kCenter ? VECS : 1][VEC];
  Raw<typename N::W, VEC> raw_weight[kRaw ? VECS : 1], raw_bias[kRaw && N::kCenter ? VECS : 1];

  __device__ __forceinline__ void hold(int v, int col) {
    if constexpr (kFloats) {
      parameters<N>(w, b, given, col, n_cols, offset, weight[v], bias[N::kCenter ? v : 0]);
    } else if constexpr (kRaw) {
      raw_weight[v].read(w + col, (given & kWeight) && col < n_cols);
      if constexpr (N::kCenter) raw_bias[v].read(b + col, (given & kBias) && col < n_cols);
    }
  }
  // y for x, vector v of a row.
  __device__ __forceinline__ Vec<typename N::T, VEC> normalise(const Vec<typename N::T, VEC> &x,
                                                               Statistics s, int v, int col) const {
    if constexpr (kFloats) {
      return kw::normalise<N>(x, s, weight[v], bias[N::kCenter ? v : 0]);
    } else {
      float wf[VEC], bf[VEC];
      if constexpr (kRaw) {
        raw_weight[v].get(given & kWeight, offset, 1.0f, wf);
        if constexpr (N::kCenter) raw_bias[v].get(given & kBias, 0.0f, 0.0f, bf);
      } else {
        parameters<N>(w, b, given, col, n_cols, offset, wf, bf);
      }
      return kw::normalise<N>(x, s, wf, bf);
    }
  }
};

}  // namespace kw
