// What a norm's forward shares that walks over rows: rows on their way while others are in work,
// and the parameters of a thread's columns.
#pragma once
#include "../norm.cuh"

namespace kw {

// The rows that a forward reads, x and where kAdd a residual, and the sum of both that it writes.
template <typename N> struct Rows {
  const typename N::T *x, *r;
  typename N::T *h;
  long long x_stride, r_stride, n_rows;
  int n_cols;
};

// ROWS rows of a block's THREADS threads. cp.async brings a thread's elements to slots of its own
// in shared memory, so that no barrier is due; a slot is filled again as soon as its only reader is
// done with it.
template <typename N, int VEC, int VECS, int THREADS, int ROWS> struct Arrivals {
  using T = typename N::T;
  using V = Vec<T, VEC>;
  static constexpr int kStreams = N::kAdd ? 2 : 1;

  V *const slots;
  const int first, n_cols;  // the thread's first vector; columns of the row

  __device__ __forceinline__ Arrivals(void *shared, int first, int n_cols)
      : slots(static_cast<V *>(shared) + threadIdx.x), first(first), n_cols(n_cols) {
    // what no copy fills, past the row's end, counts as zeros
#pragma unroll
    for (int v = 0; v < VECS; v++)
      if (column(v) >= n_cols)
        for (int i = 0; i < ROWS * kStreams; i++) slots[(i * VECS + v) * THREADS] = V{};
  }

  __device__ __forceinline__ int column(int v) const { return (v * THREADS + first) * VEC; }
  // Vector v of the i-th row: x, or once it is taken what is normalised.
  __device__ __forceinline__ V &slot(int i, int v, int stream = 0) const {
    return slots[((i * kStreams + stream) * VECS + v) * THREADS];
  }

  // Start the copies of row `row` into the i-th.
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

  // Row `row`, which has come as the i-th. With a residual, x + r, rounded, which is also stored.
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

// Weight and bias of a thread's columns, for all rows that it meets: in registers as far as 64 of
// them reach, as floats or else as they lie in memory; beyond, from there for each row.
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
  // y of x, vector v of a row.
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
