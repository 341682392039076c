// A group split over blocks that do not wait for each other, in two launches.
//
// Idea: for groups that do not fit in a cluster. In the first launch each block computes the mean
// and squares of its part in one pass, relative to each thread's first element, and the last block
// of a group merges them. In the second launch blocks normalize their parts, from the end of the
// tensor to its start, because the data read last by the first launch is still in L2.
// Traffic: x read twice, y written once; the second read comes in part from L2.
// Compared with `cuda_block`: many blocks per group, and 16 bytes per access.
// Limit: three accesses per element instead of the two of `cuda_cluster`.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "pieces.cuh"

// `vars`: with PER_SET, the variance over `correction` fewer elements.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_split(const typename N::T *__restrict__ x, kw::Moments *partial,
                         unsigned *arrived, float *means, float *rstds, float *vars, kw::Sets sets,
                         int blocks, float eps, float correction) {
  __shared__ kw::Welford scratch[32];
  const long long set = blockIdx.x / blocks, base = sets.base(set);
  const int block = static_cast<int>(blockIdx.x - set * blocks);
  const kw::Share share(sets, blocks, block);

  kw::Shifted mine;
  kw::Vec<typename N::T, VEC> v[UNROLL];
  kw::for_each_vector<VEC, UNROLL, false>(
      sets, share,
      [&](int u, long long at, bool inside) {
        v[u] = kw::load_or<typename N::T, VEC>(x + base + at, inside, 0.0f);
      },
      [&](int u, int, long long) { mine.add(v[u]); });
  const kw::Welford own = kw::block_welford(mine.moments(), scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = {own.mean, own.squares};
  if (!kw::is_last_block(arrived + set, blocks)) return;

  kw::Welford all = {0.0f, 0.0f, 0.0f};
  for (int i = threadIdx.x; i < blocks; i += THREADS) {
    const kw::Moments part = partial[set * blocks + i];
    all.add({kw::Share(sets, blocks, i).count, part.mean, part.squares});
  }
  all = kw::block_welford(all, scratch);
  if (threadIdx.x > 0) return;
  means[set] = all.mean;
  rstds[set] = rsqrtf(all.squares / all.count + eps);
  if constexpr (N::kPerSet) vars[set] = all.squares / (all.count - correction);
}

// It starts before the first launch ends, and waits; therefore the statistics are not __restrict__.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_split_apply(const typename N::T *__restrict__ x,
                               const typename N::W *__restrict__ w,
                               const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                               const float *means, const float *rstds, kw::Sets sets, int blocks,
                               int given) {
  const long long which = gridDim.x - 1 - blockIdx.x, set = which / blocks, base = sets.base(set);
  const kw::Share share(sets, blocks, static_cast<int>(which - set * blocks));
  kw::wait_for_launch_before();
  const kw::Statistics s = {means[set], rstds[set]};

  kw::Vec<typename N::T, VEC> v[UNROLL];
  kw::for_each_vector<VEC, UNROLL, true>(
      sets, share,
      [&](int u, long long at, bool inside) {
        v[u] = kw::load_or<typename N::T, VEC>(x + base + at, inside, 0.0f);
      },
      [&](int u, int row, long long at) {
        const kw::Affine affine(w, b, given, sets.channel(set, row, N::kPerSet));
        kw::store_whole(y + base + at, true, kw::normalised<N>(v[u], s, affine));
      });
}
