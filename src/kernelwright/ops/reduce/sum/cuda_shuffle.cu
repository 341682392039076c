// Warp shuffles: lanes read each other's registers.
//
// Idea: __shfl_xor_sync moves a register between the lanes of a warp in one instruction. Five of
// them sum over a warp; one value per warp goes through shared memory, and one more warp reduction
// completes the sum. The mask names the lanes that must take part, so that no __syncwarp is needed.
// Traffic: as before.
// Compared with `cuda_grid_stride`: two barriers per block instead of one per halving, 32 words of
// shared memory instead of one per thread.
// Limit: a load moves 2 or 4 bytes. With the four loads that the compiler unrolls, 8 or 16 bytes
// per thread are in flight, which does not hide the latency of memory.
#include <kw/accumulate.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK>
__global__ void __launch_bounds__(BLOCK) sum_shuffle(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const long long stride = (long long)gridDim.x * BLOCK;
  A sum = 0;
  for (long long i = (long long)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
    sum += kw::widen(x[i]);
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (threadIdx.x == 0) y[blockIdx.x] = kw::narrow<Out>(sum);
}
