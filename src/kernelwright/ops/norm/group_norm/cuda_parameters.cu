// The second step of gweight and gbias: the sums that warps or blocks have written, one row of
// channels each, are added in a fixed order, so that the result is deterministic.
//
// A block of (32, DOWN) threads adds 32 channels; the rows are distributed over threadIdx.y. The
// kernel starts before the first step ends, and waits.
#include "kw/launch.cuh"
#include "sets.cuh"

template <typename W, int DOWN>
__global__ void __launch_bounds__(32 * DOWN)
    group_norm_bwd_parameters(const kw::Sums *left, W *gw, W *gb, long long n_parts,
                              long long channels, int given) {
  __shared__ kw::Sums sums[DOWN][32];
  const long long channel = blockIdx.x * 32ll + threadIdx.x;
  kw::wait_for_launch_before();
  kw::Sums total = {0.0f, 0.0f};
  if (channel < channels)
#pragma unroll 4
    for (long long part = threadIdx.y; part < n_parts; part += DOWN) {
      const kw::Sums more = left[part * channels + channel];
      total.sum += more.sum, total.dot += more.dot;
    }
  sums[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= channels) return;
#pragma unroll
  for (int y = 1; y < DOWN; y++)
    total.sum += sums[y][threadIdx.x].sum, total.dot += sums[y][threadIdx.x].dot;
  if (given & kw::kWeight) gw[channel] = kw::from_float<W>(total.dot);
  if (given & kw::kBias) gb[channel] = kw::from_float<W>(total.sum);
}
