// Hopper's tensor cores for at most 64 rows; a cluster divides k.
//
// Idea: as `cuda_few_rows_cluster`, with wgmma: 64 rows of the weight, in the registers of four
// warps, are the left operand; x is the right operand, which the tensor cores read from shared
// memory.
// Traffic: as before; x is read from shared memory once per 64 rows of the weight, not 16 or 32.
// Compared with `cuda_few_rows_cluster`: tensor cores at their full rate, no loads of x to
// registers.
// Limit: shared memory, which must hold an eighth of x.
#include "hopper/clustered_wgmma.cuh"
#include "result.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, class SPLIT, int RESIDENT>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    matmul_wgmma_rows(const T *__restrict__ weight, const T *__restrict__ x, T *__restrict__ c,
                      int rings, int boxed, int m, int n, int k, long long weight_line,
                      long long x_line, long long i_stride, long long r_stride) {
  few_rows::clustered_wgmma<T, few_rows::DenseLanes<T>, SPLIT>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings,
      boxed, m, n, k, few_rows::Product<T>{c, i_stride, r_stride});
}

template <typename T, class SPLIT, int RESIDENT, matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    linear_wgmma_rows(const T *__restrict__ x, const T *__restrict__ weight,
                      const T *__restrict__ bias, const T *__restrict__ gate,
                      const T *__restrict__ residual, T *__restrict__ y, T *__restrict__ z,
                      int rings, int boxed, int m, int n, int k, long long x_line,
                      long long weight_line) {
  few_rows::clustered_wgmma<T, few_rows::DenseLanes<T>, SPLIT>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings,
      boxed, m, n, k, few_rows::Linear<ACTIVATION, T>{{bias, gate, residual, z}, y});
}
