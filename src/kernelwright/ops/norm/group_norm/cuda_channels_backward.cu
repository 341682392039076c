// Backward with channels last: a slab of channels in the shared memory of a cluster.
//
// Idea: as `cuda_channels`. A thread adds up g and g xhat of its columns; the blocks of a cluster
// exchange the sums of each group, and write those of each channel for gweight and gbias.
// Traffic: gy and x read once, gx written once, and a row of float32 sums per block.
// Compared with `cuda_channels_split`: one read of each operand instead of two.
// Limit: two tensors in the shared memory of sixteen multiprocessors.
#include "kw/cluster.cuh"
#include "kw/launch.cuh"
#include "room.cuh"

template <typename N, int VEC, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_channels(const typename N::T *__restrict__ gy,
                            const typename N::T *__restrict__ x,
                            const typename N::W *__restrict__ w,
                            const typename N::W *__restrict__ b, const float *__restrict__ means,
                            const float *__restrict__ rstds, typename N::T *__restrict__ gx,
                            kw::Sums *__restrict__ left, typename N::W *__restrict__ gw,
                            typename N::W *__restrict__ gb, kw::Slabs slabs, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, groups = slabs.groups();
  const int of_sample = slabs.channels / slabs.slab;
  const long long which = blockIdx.x / CLUSTER, sample = which / of_sample;
  const int slab = static_cast<int>(which - sample * of_sample) * slabs.slab;
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, CLUSTER, rank), most(slabs.rows, CLUSTER, 0);
  const int turns = static_cast<int>((most.last - most.first + column.rows - 1) / column.rows);
  V *const slots = reinterpret_cast<V *>(dynamic_shared) + threadIdx.x;
  V *const grads = slots + turns * THREADS;
  const kw::Room room(grads - threadIdx.x + turns * THREADS, slabs, CLUSTER, column.rows);
  if constexpr (CLUSTER > 1) box.open(CLUSTER * groups * sizeof(kw::Sums));

  const long long first = column.live ? range.first + column.row : range.last;
  const long long start = sample * slabs.rows, offset = slab + column.first;
  int at = 0;
  for (long long row = first; row < range.last; row += column.rows, at += THREADS) {
    const long long i = start + row;
    kw::copy_async(slots + at, reinterpret_cast<const V *>(x + i * slabs.x_step + offset));
    kw::copy_async(grads + at, reinterpret_cast<const V *>(gy + i * slabs.gy_step + offset));
  }
  const long long set = sample * (slabs.channels / slabs.per) + slab / slabs.per;
  const kw::ColumnAffine<VEC> affine(w, b, given, slab, column, slabs.per, [&](int g) {
    return kw::Statistics{means[set + g], rstds[set + g]};
  });
  kw::copy_async_wait();

  float sum[VEC] = {}, dot[VEC] = {};
  at = 0;
  for (long long row = first; row < range.last; row += column.rows, at += THREADS) {
    float g[VEC], xhat[VEC];
    affine.template gradients<N>(grads[at], slots[at], g, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] += g[i], dot[i] = fmaf(g[i], xhat[i], dot[i]);
  }
  const auto weighted = [&](int channel) {
    const bool weighs = !N::kPerSet && (given & kw::kWeight);
    const float weight = weighs ? kw::to_float(w[slab + channel]) : 1.0f;
    return weight * room.lanes[channel];
  };
  kw::add_columns(sum, column, slabs.slab, room.lanes);
  for (int k = threadIdx.x; k < slabs.slab; k += THREADS) room.kept[k] = room.lanes[k];
  kw::add_groups(slabs, room.total, weighted);
  kw::add_columns(dot, column, slabs.slab, room.lanes);
  if (!N::kPerSet && given)
    for (int k = threadIdx.x; k < slabs.slab; k += THREADS)
      left[(sample * CLUSTER + rank) * slabs.channels + slab + k] = {room.kept[k], room.lanes[k]};
  kw::add_groups(slabs, room.squares, weighted);

  if constexpr (CLUSTER > 1) {
    kw::Mailbox::ready();
    for (int k = threadIdx.x; k < groups * CLUSTER; k += THREADS) {
      const int g = k / CLUSTER;
      box.send(&room.parts[rank * groups + g], kw::Sums{room.total[g], room.squares[g]},
               k % CLUSTER);
    }
    box.wait();
  }
  const float count = static_cast<float>(slabs.rows) * slabs.per;
  for (int g = threadIdx.x; g < groups; g += THREADS) {
    kw::Sums all = {room.total[g], room.squares[g]};
    if constexpr (CLUSTER > 1) {
      all = {0.0f, 0.0f};
      for (int r = 0; r < CLUSTER; r++) {
        const kw::Sums part = room.parts[r * groups + g];
        all.sum += part.sum, all.dot += part.dot;
      }
    }
    float scale = 1.0f / count;
    if constexpr (N::kPerSet) {
      if (rank == 0 && (given & kw::kWeight)) gw[set + g] = kw::from_float<typename N::W>(all.dot);
      if (rank == 0 && (given & kw::kBias)) gb[set + g] = kw::from_float<typename N::W>(all.sum);
      scale *= kw::Affine(w, b, given, static_cast<int>(set) + g).weight;
    }
    room.means[g] = {all.sum * scale, all.dot * scale};
  }
  __syncthreads();
  kw::let_next_launch_start();

  kw::Sums of[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++)
    of[i] = column.live ? room.means[(column.first + i) / slabs.per] : kw::Sums{0.0f, 0.0f};
  at = 0;
  for (long long row = first; row < range.last; row += column.rows, at += THREADS)
    kw::store_whole(gx + (start + row) * slabs.channels + offset, true,
                    affine.template gradient<N>(grads[at], slots[at], of));
}
