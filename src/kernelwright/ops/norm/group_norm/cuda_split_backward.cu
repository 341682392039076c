// Backward of a group split over blocks that do not wait for each other.
//
// Idea: as `cuda_split`. The first launch adds up g and g xhat of each piece, and the last block of
// a group those of the group; the second computes gx, from the end of the tensor to its start. Each
// warp leaves the sums of its pieces for gweight and gbias.
// Traffic: gy and x read twice, gx written once, less what L2 keeps.
// Limit: five accesses, where `cuda_cluster` has three.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "sets.cuh"

// A warp's vectors of a piece, UNROLL of each tensor in flight: each(gy, x, their place).
template <int VEC, int UNROLL, typename T, typename Each>
__device__ __forceinline__ void for_each_vector(const T *gy, const T *x, int count,
                                                const Each &each) {
  for (int at = threadIdx.x % 32 * VEC; at < count; at += 32 * VEC * UNROLL) {
    kw::Vec<T, VEC> g[UNROLL], v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int here = at + u * 32 * VEC;
      g[u] = kw::load_or<T, VEC>(gy + here, here < count, 0.0f);
      v[u] = kw::load_or<T, VEC>(x + here, here < count, 0.0f);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (at + u * 32 * VEC < count) each(g[u], v[u], at + u * 32 * VEC);
  }
}

// `total`: of each set, the means of g and g xhat, times the weight. With PER_SET gw and gb are
// these sums.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_split(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ x,
                         const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                         const float *__restrict__ means, const float *__restrict__ rstds,
                         kw::Sums *partial, unsigned *arrived, kw::Sums *total, kw::Sums *left,
                         typename N::W *gw, typename N::W *gb, kw::Sets sets, int blocks,
                         int given) {
  using V = kw::Vec<typename N::T, VEC>;
  __shared__ float scratch[32];
  const long long set = blockIdx.x / blocks, base = sets.base(set);
  const kw::Share share(sets, blocks, static_cast<int>(blockIdx.x - set * blocks));
  const kw::Statistics s = {means[set], rstds[set]};

  kw::Sums mine = {0.0f, 0.0f};  // of lane 0's warp
  for (int i = share.first + threadIdx.x / 32; i < share.last; i += THREADS / 32) {
    const kw::Item item(sets, i);
    const kw::Affine affine(w, b, given, sets.channel(set, item.row, N::kPerSet));
    kw::Sums sums = {0.0f, 0.0f};
    for_each_vector<VEC, UNROLL>(gy + base + item.at, x + base + item.at, item.count,
                                 [&](const V &gy, const V &x, int) {
                                   float g[VEC], xhat[VEC];
                                   kw::gradients<N>(gy, x, s, affine, g, xhat);
                                   sums.add(g, xhat);
                                 });
    sums = {kw::warp_reduce<kw::Sum>(sums.sum), kw::warp_reduce<kw::Sum>(sums.dot)};
    if (threadIdx.x % 32 == 0) {
      if constexpr (!N::kPerSet) kw::leave(left, sets, set, item, given, sums);
      const float weight = N::kPerSet ? 1.0f : affine.weight;
      mine.sum += weight * sums.sum, mine.dot += weight * sums.dot;
    }
  }
  const auto of_block = [&](kw::Sums sums) {
    return kw::Sums{kw::block_reduce<kw::Sum>(sums.sum, scratch),
                    kw::block_reduce<kw::Sum>(sums.dot, scratch)};
  };
  mine = of_block(mine);
  if (threadIdx.x == 0) partial[blockIdx.x] = mine;
  if (!kw::is_last_block(arrived + set, blocks)) return;

  kw::Sums all = {0.0f, 0.0f};
  for (int i = threadIdx.x; i < blocks; i += THREADS) {
    const kw::Sums part = partial[set * blocks + i];
    all.sum += part.sum, all.dot += part.dot;
  }
  all = of_block(all);
  if (threadIdx.x > 0) return;
  float scale = 1.0f / static_cast<float>(sets.before(sets.items()));
  if constexpr (N::kPerSet) {
    if (given & kw::kWeight) gw[set] = kw::from_float<typename N::W>(all.dot);
    if (given & kw::kBias) gb[set] = kw::from_float<typename N::W>(all.sum);
    scale *= kw::Affine(w, b, given, static_cast<int>(set)).weight;
  }
  total[set] = {all.sum * scale, all.dot * scale};
}

// It starts before the first launch ends, and waits: `total` is not __restrict__.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_split_apply(const typename N::T *__restrict__ gy,
                               const typename N::T *__restrict__ x,
                               const typename N::W *__restrict__ w,
                               const typename N::W *__restrict__ b, const float *__restrict__ means,
                               const float *__restrict__ rstds, const kw::Sums *total,
                               typename N::T *__restrict__ gx, kw::Sets sets, int blocks,
                               int given) {
  using V = kw::Vec<typename N::T, VEC>;
  const long long which = gridDim.x - 1 - blockIdx.x, set = which / blocks, base = sets.base(set);
  const kw::Share share(sets, blocks, static_cast<int>(which - set * blocks));
  const kw::Statistics s = {means[set], rstds[set]};
  kw::wait_for_launch_before();
  const kw::Sums mean = total[set];

  for (int i = share.last - 1 - static_cast<int>(threadIdx.x / 32); i >= share.first;
       i -= THREADS / 32) {
    const kw::Item item(sets, i);
    const kw::Affine affine(w, b, given, sets.channel(set, item.row, N::kPerSet));
    typename N::T *const to = gx + base + item.at;
    for_each_vector<VEC, UNROLL>(
        gy + base + item.at, x + base + item.at, item.count, [&](const V &gy, const V &x, int at) {
          kw::store_whole(to + at, true, kw::gradient<N>(gy, x, s, affine, mean));
        });
  }
  kw::let_next_launch_start();
}
