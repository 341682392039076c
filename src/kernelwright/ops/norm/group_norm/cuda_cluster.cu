// A group in the shared memory of a cluster.
//
// Idea: the blocks of a cluster share the pieces of a group. Each copies its own to shared memory,
// by 16-byte asynchronous copies that are all in flight together, computes their mean and then the
// squared deviations from it, and sends both to the other blocks (distributed shared memory). Every
// block merges what it receives and normalizes its pieces. The backward holds x and gy, and sends
// the two sums of the group; each warp writes the sums of its pieces for gweight and gbias.
// Traffic: forward: x read once, y written once; backward: gy and x read once, gx written once.
// Compared with `cuda_split`: one read of each operand instead of two.
// Limit: the shared memory of sixteen multiprocessors; more than one needs compute capability 9.0.
#include "kw/cluster.cuh"
#include "kw/launch.cuh"
#include "sets.cuh"

// Calls each(item, vector of the item, slot) for a thread's vectors of the block's pieces. The
// thread has copied them itself, so that no barrier is needed.
template <int VEC, typename Each>
__device__ __forceinline__ void for_each_vector(const kw::Sets &sets, const kw::Item &item,
                                                int number, const Each &each) {
  const int width = sets.piece / VEC;  // slots per piece
  for (int v = threadIdx.x % 32; v < item.count / VEC; v += 32) each(v * VEC, number * width + v);
}

template <typename N, int VEC, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_cluster(const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                           const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                           float *__restrict__ means, float *__restrict__ rstds,
                           float *__restrict__ vars, kw::Sets sets, float eps, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  constexpr int kWarps = THREADS / 32;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float scratch[32];
  __shared__ kw::Moments parts[CLUSTER];
  __shared__ kw::Mailbox box;
  V *const slots = reinterpret_cast<V *>(dynamic_shared);
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, warp = threadIdx.x / 32;
  const long long set = blockIdx.x / CLUSTER, base = sets.base(set);
  const kw::Share share(sets, CLUSTER, rank);
  if constexpr (CLUSTER > 1) box.open(sizeof(parts));

  for (int i = share.first + warp; i < share.last; i += kWarps) {
    const kw::Item item(sets, i);
    for_each_vector<VEC>(sets, item, i - share.first, [&](int at, int slot) {
      kw::copy_async(slots + slot, reinterpret_cast<const V *>(x + base + item.at + at));
    });
  }
  kw::copy_async_wait();

  float sum = 0.0f;
  for (int i = share.first + warp; i < share.last; i += kWarps)
    for_each_vector<VEC>(sets, kw::Item(sets, i), i - share.first, [&](int, int slot) {
      const V v[1] = {slots[slot]};
      sum += kw::sum_of(v);
    });
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  const float own = share.count > 0.0f ? sum / share.count : 0.0f;
  float squares = 0.0f;
  for (int i = share.first + warp; i < share.last; i += kWarps)
    for_each_vector<VEC>(sets, kw::Item(sets, i), i - share.first, [&](int, int slot) {
      float f[VEC], of_vector = 0.0f;
      kw::to_float(slots[slot], f);
#pragma unroll
      for (int k = 0; k < VEC; k++) of_vector = fmaf(f[k] - own, f[k] - own, of_vector);
      squares += of_vector;
    });
  squares = kw::block_reduce<kw::Sum>(squares, scratch);

  kw::Welford all = {share.count, own, squares};
  if constexpr (CLUSTER > 1) {
    kw::Mailbox::ready();
    if (threadIdx.x < CLUSTER)
      box.send(&parts[rank], kw::Moments{own, squares}, static_cast<int>(threadIdx.x));
    box.wait();
    all = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < CLUSTER; r++)
      all.add({kw::Share(sets, CLUSTER, r).count, parts[r].mean, parts[r].squares});
  }
  const kw::Statistics s = {all.mean, rsqrtf(all.squares / all.count + eps)};
  if (rank == 0 && threadIdx.x == 0) {
    means[set] = s.mean, rstds[set] = s.rstd;
    if constexpr (N::kPerSet) vars[set] = all.squares / (all.count - 1.0f);
  }

  for (int i = share.first + warp; i < share.last; i += kWarps) {
    const kw::Item item(sets, i);
    const kw::Affine affine(w, b, given, sets.channel(set, item.row, N::kPerSet));
    for_each_vector<VEC>(sets, item, i - share.first, [&](int at, int slot) {
      kw::store_whole(y + base + item.at + at, true, kw::normalised<N>(slots[slot], s, affine));
    });
  }
}

template <typename N, int VEC, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_cluster(const typename N::T *__restrict__ gy,
                           const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                           const typename N::W *__restrict__ b, const float *__restrict__ means,
                           const float *__restrict__ rstds, typename N::T *__restrict__ gx,
                           kw::Sums *__restrict__ left, typename N::W *__restrict__ gw,
                           typename N::W *__restrict__ gb, kw::Sets sets, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  constexpr int kWarps = THREADS / 32;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float scratch[32];
  __shared__ kw::Sums parts[CLUSTER];
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, warp = threadIdx.x / 32;
  const long long set = blockIdx.x / CLUSTER, base = sets.base(set);
  const kw::Share share(sets, CLUSTER, rank), most(sets, CLUSTER, 0);
  V *const slots = reinterpret_cast<V *>(dynamic_shared);
  V *const grads = slots + (most.last - most.first) * (sets.piece / VEC);
  if constexpr (CLUSTER > 1) box.open(sizeof(parts));

  for (int i = share.first + warp; i < share.last; i += kWarps) {
    const kw::Item item(sets, i);
    for_each_vector<VEC>(sets, item, i - share.first, [&](int at, int slot) {
      kw::copy_async(slots + slot, reinterpret_cast<const V *>(x + base + item.at + at));
      kw::copy_async(grads + slot, reinterpret_cast<const V *>(gy + base + item.at + at));
    });
  }
  const kw::Statistics s = {means[set], rstds[set]};
  kw::copy_async_wait();

  kw::Sums mine = {0.0f, 0.0f};  // of the warp; valid in lane 0
  for (int i = share.first + warp; i < share.last; i += kWarps) {
    const kw::Item item(sets, i);
    const int channel = sets.channel(set, item.row, N::kPerSet);
    const kw::Affine affine(w, b, given, channel);
    kw::Sums of_item = {0.0f, 0.0f};
    for_each_vector<VEC>(sets, item, i - share.first, [&](int, int slot) {
      float g[VEC], xhat[VEC];
      kw::gradients<N>(grads[slot], slots[slot], s, affine, g, xhat);
      of_item.add(g, xhat);
    });
    of_item = {kw::warp_reduce<kw::Sum>(of_item.sum), kw::warp_reduce<kw::Sum>(of_item.dot)};
    if (threadIdx.x % 32 == 0) {
      if constexpr (!N::kPerSet) kw::leave(left, sets, set, item, given, of_item);
      const float weight = N::kPerSet ? 1.0f : affine.weight;
      mine.sum += weight * of_item.sum, mine.dot += weight * of_item.dot;
    }
  }
  kw::Sums all = {kw::block_reduce<kw::Sum>(mine.sum, scratch),
                  kw::block_reduce<kw::Sum>(mine.dot, scratch)};
  if constexpr (CLUSTER > 1) {
    kw::Mailbox::ready();
    if (threadIdx.x < CLUSTER) box.send(&parts[rank], all, static_cast<int>(threadIdx.x));
    box.wait();
    all = {0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < CLUSTER; r++) all.sum += parts[r].sum, all.dot += parts[r].dot;
  }
  float scale = 1.0f / static_cast<float>(sets.before(sets.items()));
  if constexpr (N::kPerSet) {
    if (rank == 0 && threadIdx.x == 0) {
      if (given & kw::kWeight) gw[set] = kw::from_float<typename N::W>(all.dot);
      if (given & kw::kBias) gb[set] = kw::from_float<typename N::W>(all.sum);
    }
    scale *= kw::Affine(w, b, given, static_cast<int>(set)).weight;
  }
  const kw::Sums mean = {all.sum * scale, all.dot * scale};
  kw::let_next_launch_start();  // the next launch adds the warps' sums

  for (int i = share.first + warp; i < share.last; i += kWarps) {
    const kw::Item item(sets, i);
    const kw::Affine affine(w, b, given, sets.channel(set, item.row, N::kPerSet));
    for_each_vector<VEC>(sets, item, i - share.first, [&](int at, int slot) {
      kw::store_whole(gx + base + item.at + at, true,
                      kw::gradient<N>(grads[slot], slots[slot], s, affine, mean));
    });
  }
}
