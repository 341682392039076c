// Tensor cores for up to 64 rows: k shared by a cluster, no barriers between a copy and its use.
//
// Idea: as `cuda_few_rows`, the weight is the left operand of mma.sync. Here a cluster's blocks
// share k, so each holds its part of x in shared memory for the whole launch. Each lane copies the
// 16-byte units that it multiplies into its own ring, so no warp waits for another within a tile.
// Sums go from registers to the block that owns their rows, through distributed shared memory.
// Traffic: the weight once; x once for each cluster; sums never leave the multiprocessors.
// Against `cuda_few_rows`: no barrier for each slice, x is not copied again for each tile, and a
// launch does not end with partial sums that are written, counted and read again.
// Limit: DRAM, and what it costs to start and end a launch.
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
