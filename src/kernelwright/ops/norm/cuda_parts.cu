// The second step of a parameter's gradient: the parts that blocks have left are added in an order
// that never changes, so that the result has the same bits every time.
//
// A warp adds a part in turn with the block's other warps, for 32 vectors of columns; the warps
// meet in shared memory. blockIdx.y: which parameter.
#include "kw/vec.cuh"

template <typename W, int VEC>
__global__ void __launch_bounds__(1024)
    norm_bwd_parts(const float *__restrict__ first_parts, const float *__restrict__ last_parts,
                   W *__restrict__ first_sum, W *__restrict__ last_sum, long long n_parts,
                   long long n_cols) {
  __shared__ kw::Vec<float, VEC> sums[32][32];
  const float *const parts = blockIdx.y ? last_parts : first_parts;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const long long col = (blockIdx.x * 32ll + lane) * VEC;

  kw::Vec<float, VEC> total{};
  if (col < n_cols) {
#pragma unroll 4
    for (long long part = warp; part < n_parts; part += warps) {
      const auto more = kw::load<float, VEC>(parts + part * n_cols + col);
#pragma unroll
      for (int i = 0; i < VEC; i++) total[i] += more[i];
    }
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || col >= n_cols) return;
  for (int other = 1; other < warps; other++)
#pragma unroll
    for (int i = 0; i < VEC; i++) total[i] += sums[other][lane][i];
  W *const sum = blockIdx.y ? last_sum : first_sum;
#pragma unroll
  for (int i = 0; i < VEC; i++) sum[col + i] = kw::from_float<W>(total[i]);
}
