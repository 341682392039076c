// The second step of a parameter's gradient: the partial sums that blocks have written are added in
// a fixed order, so that the result is deterministic.
//
// The warps of a block take turns in adding the partial sums for 32 vectors of columns, with BATCH
// of them in flight at a time; the warps' sums are combined in shared memory. blockIdx.y selects
// the parameter. The kernel starts before the first step ends, and waits. The partial sums are
// written in the meantime, so their pointers are not __restrict__: data read through the texture
// path must not change while a kernel runs.
#include "kw/launch.cuh"
#include "kw/vec.cuh"

template <typename W, int VEC, int BATCH>
__global__ void __launch_bounds__(1024)
    norm_bwd_parts(const float *first_parts, const float *last_parts, W *first_sum, W *last_sum,
                   long long n_parts, long long n_cols) {
  __shared__ kw::Vec<float, VEC> sums[32][32];
  const float *const parts = blockIdx.y ? last_parts : first_parts;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const long long col = (blockIdx.x * 32ll + lane) * VEC;

  kw::wait_for_launch_before();  // for the partial sums
  kw::Vec<float, VEC> total{};
  if (col < n_cols) {
    for (long long part = warp; part < n_parts; part += warps * BATCH) {
      kw::Vec<float, VEC> more[BATCH]{};
#pragma unroll
      for (int j = 0; j < BATCH; j++)
        if (part + j * warps < n_parts)
          more[j] = kw::load<float, VEC>(parts + (part + j * warps) * n_cols + col);
#pragma unroll
      for (int j = 0; j < BATCH; j++)
#pragma unroll
        for (int i = 0; i < VEC; i++) total[i] += more[j][i];
    }
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || col >= n_cols) return;
#pragma unroll 8
  for (int other = 1; other < warps; other++)
#pragma unroll
    for (int i = 0; i < VEC; i++) total[i] += sums[other][lane][i];
  W *const sum = blockIdx.y ? last_sum : first_sum;
#pragma unroll
  for (int i = 0; i < VEC; i++) sum[col + i] = kw::from_float<W>(total[i]);
}
