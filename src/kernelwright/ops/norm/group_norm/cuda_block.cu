// One block reads its group twice.
//
// Idea: one block per group. Its threads compute mean and squared deviations by Welford's update,
// merge them, and read the group again to normalize it, from L2 if it is still there. The backward
// processes one channel after another; the two sums of a channel are its part of gbias and gweight.
// Traffic: forward: x read twice, y written once; backward: gy and x read twice, gx written once.
// Compared with `manual`: two reads of x instead of one per operation.
// Limit: one element per thread and iteration; there may be fewer groups than multiprocessors, and
// one block per group reads it twice in sequence.
#include "kw/launch.cuh"
#include "sets.cuh"

template <typename N, int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_block(const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                         const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                         float *__restrict__ means, float *__restrict__ rstds, int groups,
                         int channels, int length, float eps, int given) {
  __shared__ kw::Welford scratch[32];
  const long long group = blockIdx.x, n = channels * static_cast<long long>(length);
  x += group * n, y += group * n;

  kw::Welford all = {0.0f, 0.0f, 0.0f};
  for (long long i = threadIdx.x; i < n; i += THREADS) all.add({1.0f, kw::to_float(x[i]), 0.0f});
  all = kw::block_welford(all, scratch);
  const kw::Statistics s = {all.mean, rsqrtf(all.squares / all.count + eps)};
  if (threadIdx.x == 0) means[group] = s.mean, rstds[group] = s.rstd;

  for (long long i = threadIdx.x; i < n; i += THREADS) {
    const int channel = static_cast<int>(group % groups * channels + i / length);
    const kw::Vec<typename N::T, 1> v = {x[i]};
    y[i] = kw::normalised<N>(v, s, kw::Affine(w, b, given, channel))[0];
  }
}

template <typename N, int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_block(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ x,
                         const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                         const float *__restrict__ means, const float *__restrict__ rstds,
                         typename N::T *__restrict__ gx, kw::Sums *__restrict__ left, int groups,
                         int channels, int length, int given) {
  __shared__ float scratch[32];
  const long long group = blockIdx.x, n = channels * static_cast<long long>(length);
  const kw::Statistics s = {means[group], rstds[group]};
  gy += group * n, x += group * n, gx += group * n;

  kw::Sums mean = {0.0f, 0.0f};
  for (int c = 0; c < channels; c++) {
    const kw::Affine affine(w, b, given, static_cast<int>(group % groups) * channels + c);
    kw::Sums sums = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < length; i += THREADS) {
      const kw::Vec<typename N::T, 1> g = {gy[c * static_cast<long long>(length) + i]};
      const kw::Vec<typename N::T, 1> v = {x[c * static_cast<long long>(length) + i]};
      float gf[1], xhat[1];
      kw::gradients<N>(g, v, s, affine, gf, xhat);
      sums.add(gf, xhat);
    }
    sums = {kw::block_reduce<kw::Sum>(sums.sum, scratch),
            kw::block_reduce<kw::Sum>(sums.dot, scratch)};
    if (threadIdx.x == 0 && given) left[group * channels + c] = sums;
    mean.sum += affine.weight * sums.sum / n, mean.dot += affine.weight * sums.dot / n;
  }
  for (long long i = threadIdx.x; i < n; i += THREADS) {
    const int channel = static_cast<int>(group % groups * channels + i / length);
    const kw::Vec<typename N::T, 1> g = {gy[i]}, v = {x[i]};
    gx[i] = kw::gradient<N>(g, v, s, kw::Affine(w, b, given, channel), mean)[0];
  }
  kw::let_next_launch_start();
}
