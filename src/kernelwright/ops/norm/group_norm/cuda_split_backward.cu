// Backward of a group split over blocks that do not wait for each other.
//
// Idea: as `cuda_split`. The first launch adds up g and g xhat of each piece, and the last block of
// a group adds those of the group; the second launch computes gx, from the end of the tensor to its
// start. Each warp writes the sums of its pieces for gweight and gbias.
// Traffic: gy and x read twice, gx written once; the second read comes in part from L2.
// Compared with `cuda_block`: many blocks per group, and 16 bytes per access.
// Limit: five accesses per element instead of the three of `cuda_cluster`.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "pieces.cuh"

// `total`: the means of g and g xhat of each set, times the weight. With PER_SET, gw and gb are
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

  // with PER_SET a thread sums all its vectors; otherwise a warp sums each piece, one vector per
  // lane
  kw::Sums mine = {0.0f, 0.0f};
  V gs[UNROLL], xs[UNROLL];
  const auto load = [&](int u, long long at, bool inside) {
    gs[u] = kw::load_or<typename N::T, VEC>(gy + base + at, inside, 0.0f);
    xs[u] = kw::load_or<typename N::T, VEC>(x + base + at, inside, 0.0f);
  };
  const auto add = [&](kw::Sums &sums, int u, int row) {
    const kw::Affine affine(w, b, given, sets.channel(set, row, N::kPerSet));
    float g[VEC], xhat[VEC];
    kw::gradients<N>(gs[u], xs[u], s, affine, g, xhat);
    sums.add(g, xhat);
  };
  if constexpr (N::kPerSet) {
    kw::for_each_vector<VEC, UNROLL, false>(sets, share, load,
                                            [&](int u, int row, long long) { add(mine, u, row); });
  } else {
    for (int i = share.first + threadIdx.x / 32; i < share.last; i += THREADS / 32) {
      const kw::Item item(sets, i);
      kw::Sums sums = {0.0f, 0.0f};
      for (int at = threadIdx.x % 32 * VEC; at < item.count; at += 32 * VEC * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
          load(u, item.at + at + u * 32 * VEC, at + u * 32 * VEC < item.count);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
          if (at + u * 32 * VEC < item.count) add(sums, u, item.row);
      }
      sums = {kw::warp_reduce<kw::Sum>(sums.sum), kw::warp_reduce<kw::Sum>(sums.dot)};
      if (threadIdx.x % 32 == 0) {
        kw::leave(left, sets, set, item, given, sums);
        const float weight =
            kw::Affine(w, b, given, sets.channel(set, item.row, N::kPerSet)).weight;
        mine.sum += weight * sums.sum, mine.dot += weight * sums.dot;
      }
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

// It starts before the first launch ends, and waits; therefore `total` is not __restrict__.
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

  V gs[UNROLL], xs[UNROLL];
  kw::for_each_vector<VEC, UNROLL, true>(
      sets, share,
      [&](int u, long long at, bool inside) {
        gs[u] = kw::load_or<typename N::T, VEC>(gy + base + at, inside, 0.0f);
        xs[u] = kw::load_or<typename N::T, VEC>(x + base + at, inside, 0.0f);
      },
      [&](int u, int row, long long at) {
        const kw::Affine affine(w, b, given, sets.channel(set, row, N::kPerSet));
        kw::store_whole(gx + base + at, true, kw::gradient<N>(gs[u], xs[u], s, affine, mean));
      });
  kw::let_next_launch_start();
}
