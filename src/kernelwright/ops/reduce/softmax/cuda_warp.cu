// A warp, or part of a warp, per row.
//
// Idea: WIDTH lanes hold a row in registers and reduce it by shuffles, without shared memory or
// barriers. Each lane moves 16-byte vectors and starts the loads of ROWS rows before it uses the
// first.
// Traffic: x read once, y written once, coalesced.
// Compared with `cuda_naive`: one read instead of three, and all bytes of a sector are used.
// Limit: the registers of a lane, which hold VECS * VEC elements of ROWS rows.
#include "kw/softmax.cuh"

constexpr int kThreads = 128;

template <typename T, int VEC, int VECS, int WIDTH, int ROWS>
__global__ void __launch_bounds__(kThreads)
    softmax_fwd_warp(const T *__restrict__ x, T *__restrict__ y, long long n_rows, int n_cols,
                     long long x_stride) {
  const int lane = threadIdx.x % WIDTH;
  const long long first =
      (blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x) / WIDTH * ROWS;

  // lanes past the last row or column do not exit: all lanes of a warp take part in a shuffle
  kw::Vec<T, VEC> raw[ROWS][VECS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = (v * WIDTH + lane) * VEC;
      const bool inside = first + r < n_rows && col < n_cols;
      raw[r][v] = kw::load_or<T, VEC>(x + (first + r) * x_stride + col, inside, -kw::kInfinity);
    }

#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const float max = kw::warp_reduce<kw::Max, WIDTH>(kw::max_of(raw[r]));
    float e[VECS][VEC], sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float of_vector = 0.0f;
      kw::to_float(raw[r][v], e[v]);
#pragma unroll
      for (int i = 0; i < VEC; i++) of_vector += e[v][i] = kw::exp_scaled<T>(e[v][i] - max);
      sum += of_vector;
    }
    const float scale = kw::reciprocal<T>(kw::warp_reduce<kw::Sum, WIDTH>(sum));

#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = (v * WIDTH + lane) * VEC;
#pragma unroll
      for (int i = 0; i < VEC; i++) e[v][i] *= scale;
      kw::store_if(y + (first + r) * n_cols + col, first + r < n_rows && col < n_cols,
                   kw::from_float<T>(e[v]));
    }
  }
}

template <typename T, int VEC, int VECS, int WIDTH, int ROWS>
__global__ void __launch_bounds__(kThreads)
    softmax_bwd_warp(const T *__restrict__ gy, const T *__restrict__ y, T *__restrict__ gx,
                     long long n_rows, int n_cols, long long gy_stride, long long y_stride) {
  const int lane = threadIdx.x % WIDTH;
  const long long first =
      (blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x) / WIDTH * ROWS;

  kw::Vec<T, VEC> raw_g[ROWS][VECS], raw_y[ROWS][VECS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = (v * WIDTH + lane) * VEC;
      const bool inside = first + r < n_rows && col < n_cols;
      raw_g[r][v] = kw::load_or<T, VEC>(gy + (first + r) * gy_stride + col, inside, 0.0f);
      raw_y[r][v] = kw::load_or<T, VEC>(y + (first + r) * y_stride + col, inside, 0.0f);
    }

#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float dot = 0.0f;
#pragma unroll
    for (int v = 0; v < VECS; v++) dot += kw::dot(raw_g[r][v], raw_y[r][v]);
    dot = kw::warp_reduce<kw::Sum, WIDTH>(dot);

#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = (v * WIDTH + lane) * VEC;
      if (first + r < n_rows && col < n_cols)
        kw::store(gx + (first + r) * n_cols + col,
                  kw::gradient(kw::opaque(raw_g[r][v]), kw::opaque(raw_y[r][v]), dot));
    }
  }
}
