// A row in the registers of a block.
//
// Idea: as `cuda_warp`, but the warps of a block share a row. Each warp scales its exponentials by
// its own maximum, so that maximum and sum are exchanged together, with one barrier per row. Little
// is kept between the two passes (kw::Passes; the backward keeps gy in shared memory, to which
// cp.async copies it without registers), so that several blocks fit on a multiprocessor and the
// loads of one overlap with the reductions of another.
// Traffic: x read once, y written once, also for rows that do not fit in a warp's registers.
// Compared with `cuda_online`: one read instead of two.
// Limit: the register file of one multiprocessor.
#include "kw/async.cuh"
#include "kw/softmax.cuh"

template <typename T, int VEC, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    softmax_fwd_block(const T *__restrict__ x, T *__restrict__ y, int n_cols, long long x_stride) {
  __shared__ kw::MaxSum parts[THREADS / 32];
  x += blockIdx.x * x_stride;
  y += static_cast<long long>(blockIdx.x) * n_cols;

  kw::Vec<T, VEC> kept[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + threadIdx.x) * VEC;
    kept[v] = kw::load_or<T, VEC>(x + col, col < n_cols, -kw::kInfinity);
  }

  const kw::MaxSum part = kw::Passes<T>::first(kept);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  const kw::MaxSum row = kw::reduce_parts<THREADS / 32>(parts);

  const float scale = kw::Passes<T>::scale(part, row);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + threadIdx.x) * VEC;
    kw::store_if(y + col, col < n_cols, kw::Passes<T>::second(kept[v], row, scale));
  }
}

template <typename T, int VEC, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    softmax_bwd_block(const T *__restrict__ gy, const T *__restrict__ y, T *__restrict__ gx,
                      int n_cols, long long gy_stride, long long y_stride) {
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[THREADS / 32];
  gy += blockIdx.x * gy_stride;
  y += blockIdx.x * y_stride;
  gx += static_cast<long long>(blockIdx.x) * n_cols;

  // no barrier is needed: a thread reads only elements that it has copied itself
  auto *kept_g = reinterpret_cast<kw::Vec<T, VEC> *>(dynamic_shared) + threadIdx.x;
  kw::Vec<T, VEC> kept_y[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + threadIdx.x) * VEC;
    if (col < n_cols)
      kw::copy_async(kept_g + v * THREADS, reinterpret_cast<const kw::Vec<T, VEC> *>(gy + col));
    kept_y[v] = kw::load_or<T, VEC>(y + col, col < n_cols, 0.0f);
  }
  kw::copy_async_wait();

  float dot = 0.0f;
#pragma unroll
  for (int v = 0; v < VECS; v++)
    if ((v * THREADS + threadIdx.x) * VEC < n_cols) dot += kw::dot(kept_g[v * THREADS], kept_y[v]);
  dot = kw::warp_reduce<kw::Sum>(dot);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = dot;
  __syncthreads();
  dot = kw::reduce_parts<THREADS / 32>(parts);

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + threadIdx.x) * VEC;
    kw::store_if(gx + col, col < n_cols,
                 kw::gradient(kept_g[v * THREADS], kw::opaque(kept_y[v]), dot));
  }
}
