// Backward with channels last: a slab of channels in the registers of a cluster.
//
// Idea: as `cuda_channels_registers`, with the vectors of x and gy. While the sums of the groups
// are on their way to the other blocks, each block adds up those of its channels, for gweight and
// gbias. Traffic: gy and x read once, gx written once, and a row of float32 sums per block.
// Compared with `cuda_channels`: no reads or writes of shared memory per element.
// Limit: the registers of eight multiprocessors for two tensors, 512 KiB of each per slab.
#include "kw/cluster.cuh"
#include "kw/launch.cuh"
#include "registers.cuh"

// `x_step`, `gy_step`: elements between rows; `channels`: of all slabs of a sample.
template <typename N, int VEC, int COLUMNS, int PER, int VECTORS, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(
    THREADS, (kw::resident_blocks<THREADS, 2 * VECTORS, sizeof(typename N::T) * VEC>()))
    group_norm_bwd_channels_registers(
        const typename N::T *__restrict__ gy, const typename N::T *__restrict__ x,
        const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
        const float *__restrict__ means, const float *__restrict__ rstds,
        typename N::T *__restrict__ gx, kw::Sums *__restrict__ left, typename N::W *__restrict__ gw,
        typename N::W *__restrict__ gb, int rows, long long x_step, long long gy_step, int channels,
        int given) {
  using T = typename N::T;
  using H = kw::Held<VEC, COLUMNS, PER, THREADS>;
  constexpr int kGroups = H::kGroups;
  __shared__ float lanes[2 * VEC * THREADS], total[kGroups], weights[kGroups];
  __shared__ kw::Sums parts[CLUSTER * kGroups], averages[kGroups];
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, lane = threadIdx.x % 32;
  const unsigned which = blockIdx.x / CLUSTER, of_sample = channels / H::kSlab;
  const unsigned sample = which / of_sample, slab = (which - sample * of_sample) * H::kSlab;
  const H held;
  const kw::Rows<CLUSTER> mine(rows, rank);
  const int count = held.row < H::kRows ? mine.count - held.row : 0;
  const long long first = sample * static_cast<long long>(rows) + mine.first + held.row;
  const int at = static_cast<int>(slab) + held.column * VEC, set = static_cast<int>(slab) / PER;
  const long long sets = static_cast<long long>(sample) * (channels / PER) + set;
  if constexpr (CLUSTER > 1) box.open(sizeof(parts));

  kw::Vec<T, VEC> values[VECTORS], grads[VECTORS];
  const T *from = x + first * x_step + at, *of_gy = gy + first * gy_step + at;
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    values[u] = kw::load_or<T, VEC>(from, u * H::kRows < count, 0.0f);
    grads[u] = kw::load_or<T, VEC>(of_gy, u * H::kRows < count, 0.0f);
    from += H::kRows * x_step, of_gy += H::kRows * gy_step;
  }
  float mean[VEC], rstd[VEC], weight[VEC], bias[VEC];
  kw::load_or(w + at, !N::kPerSet && given & kw::kWeight, 0.0f, 1.0f, weight);
  kw::load_or(b + at, N::kSilu && given & kw::kBias, 0.0f, 0.0f, bias);
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const int g = held.group() + held.part(i);
    mean[i] = means[sets + g], rstd[i] = rstds[sets + g];
  }
  const auto of_vector = [&](int u, float (&g)[VEC], float (&xhat)[VEC]) {
    kw::to_float(kw::opaque(grads[u]), g);
    kw::to_float(kw::opaque(values[u]), xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      xhat[i] = (xhat[i] - mean[i]) * rstd[i];
      if constexpr (N::kSilu)
        g[i] *= kw::silu_and_slope<T>(fmaf(xhat[i], weight[i], bias[i])).slope;
    }
  };

  float sum[VEC] = {}, dot[VEC] = {}, g[VEC], xhat[VEC];
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    if (u * H::kRows >= count) break;
    of_vector(u, g, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] += g[i], dot[i] = fmaf(g[i], xhat[i], dot[i]);
  }
#pragma unroll
  for (int i = 0; i < VEC; i++) g[i] = weight[i] * sum[i], xhat[i] = weight[i] * dot[i];
  held.add_groups(g, lanes, [&](int k, float of_group) {
    if (lane == 0) total[k] = of_group;
  });
  if constexpr (CLUSTER > 1) kw::Mailbox::ready();
  held.add_groups(xhat, lanes + VEC * THREADS, [&](int k, float of_group) {
    const kw::Sums both = {total[k], of_group};
    if constexpr (CLUSTER > 1) {
      if (lane < CLUSTER) box.send(&parts[rank * kGroups + k], both, lane);
    } else {
      if (lane == 0) parts[k] = both;
    }
  });

  if (!N::kPerSet && given) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      lanes[i * THREADS + threadIdx.x] = sum[i];
      lanes[(VEC + i) * THREADS + threadIdx.x] = dot[i];
    }
    __syncthreads();
    kw::Sums *const to = left + (static_cast<long long>(sample) * CLUSTER + rank) * channels + slab;
    for (int k = threadIdx.x; k < H::kSlab; k += THREADS) {
      const int i = k / COLUMNS, column = k - i * COLUMNS;
      kw::Sums of_channel = {0.0f, 0.0f};
#pragma unroll 4
      for (int row = 0; row < H::kRows; row++) {
        of_channel.sum += lanes[i * THREADS + row * COLUMNS + column];
        of_channel.dot += lanes[(VEC + i) * THREADS + row * COLUMNS + column];
      }
      to[column * VEC + i] = of_channel;
    }
  }
  const int k = threadIdx.x;  // the group that this thread merges
  const kw::Affine of_set(w, b, N::kPerSet && k < kGroups ? given : 0, set + k);
  if constexpr (CLUSTER > 1)
    box.wait();
  else
    __syncthreads();
  if (k < kGroups) {
    kw::Sums all = {0.0f, 0.0f};
#pragma unroll 4
    for (int r = 0; r < CLUSTER; r++) {
      const kw::Sums part = parts[r * kGroups + k];
      all.sum += part.sum, all.dot += part.dot;
    }
    const float scale = of_set.weight / (static_cast<float>(rows) * PER);
    averages[k] = {all.sum * scale, all.dot * scale};
    if constexpr (N::kPerSet) {
      weights[k] = of_set.weight;
      if (rank == 0 && (given & kw::kWeight)) gw[set + k] = kw::from_float<typename N::W>(all.dot);
      if (rank == 0 && (given & kw::kBias)) gb[set + k] = kw::from_float<typename N::W>(all.sum);
    }
  }
  __syncthreads();
  kw::let_next_launch_start();
  if (count <= 0) return;

#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const int group = held.group() + held.part(i);
    sum[i] = averages[group].sum, dot[i] = averages[group].dot;
    if constexpr (N::kPerSet) weight[i] = weights[group];
  }
  T *to = gx + first * channels + at;
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    if (u * H::kRows >= count) break;
    of_vector(u, g, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) g[i] = rstd[i] * (g[i] * weight[i] - sum[i] - xhat[i] * dot[i]);
    kw::store_whole(to, true, kw::from_float<T>(g));
    to += static_cast<long long>(H::kRows) * channels;
  }
}
