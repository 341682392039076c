// A row in the registers of a cluster of blocks.
//
// Idea: as `cuda_block`, but CLUSTER blocks on as many multiprocessors share a row. Each warp sends
// its maximum and sum to the shared memory of every block of the cluster, and each block reduces
// all parts itself as soon as they have arrived.
// Traffic: x read once, y written once, for rows that do not fit on one multiprocessor.
// Compared with `cuda_online`: one read instead of two.
// Limit: the registers of eight multiprocessors; compute capability 9.0 is required.
#include "kw/async.cuh"
#include "kw/cluster.cuh"
#include "kw/softmax.cuh"

template <typename T, int VEC, int VECS, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    softmax_fwd_cluster(const T *__restrict__ x, T *__restrict__ y, int n_cols,
                        long long x_stride) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  __shared__ kw::MaxSum parts[kParts];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  box.open(sizeof(parts));
  x += blockIdx.x / CLUSTER * x_stride;
  y += static_cast<long long>(blockIdx.x / CLUSTER) * n_cols;

  kw::Vec<T, VEC> kept[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = ((rank * VECS + v) * THREADS + threadIdx.x) * VEC;
    kept[v] = kw::load_or<T, VEC>(x + col, col < n_cols, -kw::kInfinity);
  }

  const kw::MaxSum part = kw::Passes<T>::first(kept);
  box.ready();
  if (lane < CLUSTER) box.send(&parts[rank * kWarps + warp], part, lane);
  box.wait();
  const kw::MaxSum row = kw::reduce_parts<kParts>(parts);

  const float scale = kw::Passes<T>::scale(part, row);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = ((rank * VECS + v) * THREADS + threadIdx.x) * VEC;
    kw::store_if(y + col, col < n_cols, kw::Passes<T>::second(kept[v], row, scale));
  }
}

template <typename T, int VEC, int VECS, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    softmax_bwd_cluster(const T *__restrict__ gy, const T *__restrict__ y, T *__restrict__ gx,
                        int n_cols, long long gy_stride, long long y_stride) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[kParts];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  box.open(sizeof(parts));
  gy += blockIdx.x / CLUSTER * gy_stride;
  y += blockIdx.x / CLUSTER * y_stride;
  gx += static_cast<long long>(blockIdx.x / CLUSTER) * n_cols;

  // no barrier is needed: a thread reads only elements that it has copied itself
  auto *kept_g = reinterpret_cast<kw::Vec<T, VEC> *>(dynamic_shared) + threadIdx.x;
  kw::Vec<T, VEC> kept_y[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = ((rank * VECS + v) * THREADS + threadIdx.x) * VEC;
    if (col < n_cols)
      kw::copy_async(kept_g + v * THREADS, reinterpret_cast<const kw::Vec<T, VEC> *>(gy + col));
    kept_y[v] = kw::load_or<T, VEC>(y + col, col < n_cols, 0.0f);
  }
  kw::copy_async_wait();

  float dot = 0.0f;
#pragma unroll
  for (int v = 0; v < VECS; v++)
    if (((rank * VECS + v) * THREADS + threadIdx.x) * VEC < n_cols)
      dot += kw::dot(kept_g[v * THREADS], kept_y[v]);
  dot = kw::warp_reduce<kw::Sum>(dot);
  box.ready();
  if (lane < CLUSTER) box.send(&parts[rank * kWarps + warp], dot, lane);
  box.wait();
  dot = kw::reduce_parts<kParts>(parts);

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = ((rank * VECS + v) * THREADS + threadIdx.x) * VEC;
    kw::store_if(gx + col, col < n_cols,
                 kw::gradient(kept_g[v * THREADS], kw::opaque(kept_y[v]), dot));
  }
}
