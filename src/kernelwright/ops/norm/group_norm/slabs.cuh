// Shared by norms with contiguous channels (NHWC): a slab of channels, which consists of whole
// groups, is a matrix of rows (positions) and columns (channels), VEC of which belong to a thread.
#pragma once
#include "sets.cuh"

namespace kw {

struct Slabs {
  long long rows, x_step, gy_step;  // positions per sample; elements between them
  int channels, slab, per;          // per sample, per slab, per group

  __device__ __forceinline__ int groups() const { return slab / per; }
};

// A thread's columns and its first row: the threads of a block process `rows` rows at a time.
template <int VEC> struct Column {
  int first, row, rows;
  bool live;  // false in threads without columns

  __device__ __forceinline__ Column(const Slabs &slabs) {
    const int columns = slabs.slab / VEC;
    rows = blockDim.x / columns, row = threadIdx.x / columns;
    first = (threadIdx.x - row * columns) * VEC;
    live = row < rows;
  }
};

// The positions that one of a sample's `blocks` blocks processes.
struct Range {
  long long first, last;
  __device__ __forceinline__ Range(long long rows, int blocks, int block) {
    const long long each = (rows + blocks - 1) / blocks;
    first = min(block * each, rows), last = min(first + each, rows);
  }
  __device__ __forceinline__ float count() const { return static_cast<float>(last - first); }
};

// The part of x that a block processes: its sample, the first channel of its slab, and its index
// among the `blocks` blocks of that slab.
struct Place {
  long long sample;
  int slab, block;
  __device__ __forceinline__ Place(const Slabs &slabs, int blocks, long long which) {
    const int of_sample = slabs.channels / slabs.slab;
    const long long slab_ = which / blocks;
    block = static_cast<int>(which - slab_ * blocks);
    sample = slab_ / of_sample;
    slab = static_cast<int>(slab_ - sample * of_sample) * slabs.slab;
  }
  // The index of the first group.
  __device__ __forceinline__ long long group(const Slabs &slabs) const {
    return sample * (slabs.channels / slabs.per) + slab / slabs.per;
  }
};

// Adds over the rows of threads: the total of each channel, in `lanes`, for the whole block. The
// order of the steps is fixed; each step writes only elements that the same thread reads.
template <int VEC>
__device__ __forceinline__ void add_columns(const float (&mine)[VEC], const Column<VEC> &c,
                                            int slab, float *lanes) {
  const int threads = blockDim.x, down = min(max(threads / slab, 1), c.rows);
  if (c.live)
#pragma unroll
    for (int i = 0; i < VEC; i++) lanes[c.row * slab + c.first + i] = mine[i];
  __syncthreads();
  for (int k = threadIdx.x; k < down * slab; k += threads) {
    float sum = lanes[k];
    for (int r = k + down * slab; r < c.rows * slab; r += down * slab) sum += lanes[r];
    lanes[k] = sum;
  }
  __syncthreads();
  for (int k = threadIdx.x; k < slab; k += threads) {
    float sum = lanes[k];
    for (int j = 1; j < down; j++) sum += lanes[j * slab + k];
    lanes[k] = sum;
  }
  __syncthreads();
}

// total[g] = the sum of of(channel) over the channels of a group, for the whole block.
template <typename Of>
__device__ __forceinline__ void add_groups(const Slabs &slabs, float *total, const Of &of) {
  for (int g = threadIdx.x; g < slabs.groups(); g += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 4
    for (int k = 0; k < slabs.per; k++) sum += of(g * slabs.per + k);
    total[g] = sum;
  }
  __syncthreads();
}

// Loads that a thread of the last block has in flight when it merges the parts of all blocks.
constexpr int kPartsInFlight = 16;

// Statistics of the groups, weight and bias of a thread's columns.
template <int VEC> struct ColumnAffine {
  float mean[VEC], rstd[VEC], weight[VEC], bias[VEC];

  // stats(g): the statistics of group g of the slab. `slab`: the first channel of the slab.
  template <typename W, typename Of>
  __device__ __forceinline__ ColumnAffine(const W *w, const W *b, int given, int slab,
                                          const Column<VEC> &c, int per, const Of &stats) {
    load_or(w + slab + c.first, given & kWeight && c.live, 0.0f, 1.0f, weight);
    load_or(b + slab + c.first, given & kBias && c.live, 0.0f, 0.0f, bias);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const Statistics s = c.live ? stats((c.first + i) / per) : Statistics{0.0f, 0.0f};
      mean[i] = s.mean, rstd[i] = s.rstd;
    }
  }

  template <typename N>
  __device__ __forceinline__ Vec<typename N::T, VEC> normalised(
      const Vec<typename N::T, VEC> &x) const {
    float y[VEC];
    to_float(x, y);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      y[i] = fmaf(y[i] - mean[i], rstd[i] * weight[i], bias[i]);
      if constexpr (N::kSilu) y[i] = silu<typename N::T>(y[i]);
    }
    return from_float<typename N::T>(y);
  }

  // The gradient of the input of silu, and the normalised x.
  template <typename N>
  __device__ __forceinline__ void gradients(const Vec<typename N::T, VEC> &gy,
                                            const Vec<typename N::T, VEC> &x, float (&g)[VEC],
                                            float (&xhat)[VEC]) const {
    to_float(gy, g);
    to_float(x, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      xhat[i] = (xhat[i] - mean[i]) * rstd[i];
      if constexpr (N::kSilu)
        g[i] *= silu_and_slope<typename N::T>(fmaf(xhat[i], weight[i], bias[i])).slope;
    }
  }

  // gx, from the means of g and g xhat over the group, both times the weight.
  template <typename N>
  __device__ __forceinline__ Vec<typename N::T, VEC> gradient(const Vec<typename N::T, VEC> &gy,
                                                              const Vec<typename N::T, VEC> &x,
                                                              const Sums (&means)[VEC]) const {
    float g[VEC], xhat[VEC];
    gradients<N>(gy, x, g, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++)
      g[i] = rstd[i] * (g[i] * weight[i] - means[i].sum - xhat[i] * means[i].dot);
    return from_float<typename N::T>(g);
  }
};

}  // namespace kw
