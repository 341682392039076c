// Tensor cores for at most 64 rows: a cluster divides k, without barriers between a copy and its
// use.
//
// Idea: as in `cuda_few_rows`, the weight is the left operand of mma.sync. Here the blocks of a
// cluster divide k, so that each holds its part of x in shared memory for the whole launch. Each
// lane copies the 16-byte units that it multiplies to its own ring, so that warps do not wait for
// each other within a tile. Sums go from registers to the block that owns their rows, through
// distributed shared memory.
// Traffic: the weight once; x once per cluster; sums are not written to global memory.
// Compared with `cuda_few_rows`: no barrier per slice, x is not copied again for each tile, and no
// partial sums are written, counted and read at the end.
// Limit: DRAM bandwidth, and the cost of starting and ending a launch.
#include "clustered.cuh"
#include "result.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, class SPLIT, int RESIDENT>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    matmul_clustered(const T *__restrict__ weight, const T *__restrict__ x, T *__restrict__ c,
                     int rings, int boxed, int m, int n, int k, long long weight_line,
                     long long x_line, long long i_stride, long long r_stride) {
  few_rows::clustered<T, few_rows::DenseLanes<T>, SPLIT>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings,
      boxed, m, n, k, few_rows::Product<T>{c, i_stride, r_stride});
}

template <typename T, class SPLIT, int RESIDENT, matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    linear_clustered(const T *__restrict__ x, const T *__restrict__ weight,
                     const T *__restrict__ bias, const T *__restrict__ gate,
                     const T *__restrict__ residual, T *__restrict__ y, T *__restrict__ z,
                     int rings, int boxed, int m, int n, int k, long long x_line,
                     long long weight_line) {
  few_rows::clustered<T, few_rows::DenseLanes<T>, SPLIT>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings,
      boxed, m, n, k, few_rows::Linear<ACTIVATION, T>{{bias, gate, residual, z}, y});
}
