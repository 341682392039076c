// One block per row of any length.
//
// Idea: a thread iterates over its part of the row with a running maximum and sum; when a chunk
// raises the maximum, the sum is rescaled (Milakov and Gimelshein 2018), so that maximum and sum
// take one read together. The second pass runs from the end of the row to its start, so that it
// begins with the part that is still in L2; its stores carry an evict-first hint.
// Traffic: x read twice, y written once; the second read comes from L2 as far as its capacity
// reaches.
// Compared with `cuda_naive`: two reads instead of three, and coalesced.
// Limit: the second read.
#include "kw/softmax.cuh"

constexpr int kThreads = 512;

template <typename T, int VEC, int VECS>
__global__ void __launch_bounds__(kThreads)
    softmax_fwd_online(const T *__restrict__ x, T *__restrict__ y, long long n_cols,
                       long long x_stride) {
  constexpr int kChunk = kThreads * VECS * VEC;
  __shared__ kw::MaxSum parts[kThreads / 32];
  x += blockIdx.x * x_stride;
  y += blockIdx.x * n_cols;

  kw::MaxSum part = {-kw::kInfinity, 0.0f};
  for (long long start = 0; start < n_cols; start += kChunk) {
    kw::Vec<T, VEC> chunk[VECS];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      chunk[v] = kw::load_or<T, VEC>(x + col, col < n_cols, -kw::kInfinity);
    }
    const kw::MaxSum next = {kw::max_nan(part.max, kw::max_of(chunk)), 0.0f};
    part = {next.max, part.sum * part.rescale(next.max) + kw::sum_of_exp(chunk, next.base())};
  }
  part = kw::warp_reduce<32>(part);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  const kw::MaxSum row = kw::reduce_parts<kThreads / 32>(parts);

  const float scale = kw::reciprocal<T>(row.sum);
  for (long long start = (n_cols - 1) / kChunk * kChunk; start >= 0; start -= kChunk) {
    kw::Vec<T, VEC> chunk[VECS];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      chunk[v] = kw::load_or<T, VEC>(x + col, col < n_cols, -kw::kInfinity);
    }
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      float e[VEC];
      kw::to_float(chunk[v], e);
#pragma unroll
      for (int i = 0; i < VEC; i++) e[i] = kw::exp_scaled<T>(e[i] - row.max) * scale;
      kw::store_streaming_if(y + col, col < n_cols, kw::from_float<T>(e));
    }
  }
}

template <typename T, int VEC, int VECS>
__global__ void __launch_bounds__(kThreads)
    softmax_bwd_online(const T *__restrict__ gy, const T *__restrict__ y, T *__restrict__ gx,
                       long long n_cols, long long gy_stride, long long y_stride) {
  constexpr int kChunk = kThreads * VECS * VEC;
  __shared__ float parts[kThreads / 32];
  gy += blockIdx.x * gy_stride;
  y += blockIdx.x * y_stride;
  gx += blockIdx.x * n_cols;

  float dot = 0.0f;
  for (long long start = 0; start < n_cols; start += kChunk) {
    kw::Vec<T, VEC> chunk_g[VECS], chunk_y[VECS];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      chunk_g[v] = kw::load_or<T, VEC>(gy + col, col < n_cols, 0.0f);
      chunk_y[v] = kw::load_or<T, VEC>(y + col, col < n_cols, 0.0f);
    }
#pragma unroll
    for (int v = 0; v < VECS; v++) dot += kw::dot(chunk_g[v], chunk_y[v]);
  }
  dot = kw::warp_reduce<kw::Sum>(dot);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = dot;
  __syncthreads();
  dot = kw::reduce_parts<kThreads / 32>(parts);

  for (long long start = (n_cols - 1) / kChunk * kChunk; start >= 0; start -= kChunk) {
    kw::Vec<T, VEC> chunk_g[VECS], chunk_y[VECS];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      chunk_g[v] = kw::load_or<T, VEC>(gy + col, col < n_cols, 0.0f);
      chunk_y[v] = kw::load_or<T, VEC>(y + col, col < n_cols, 0.0f);
    }
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + (v * kThreads + threadIdx.x) * VEC;
      kw::store_streaming_if(gx + col, col < n_cols, kw::gradient(chunk_g[v], chunk_y[v], dot));
    }
  }
}
