// Tensor cores for at most 64 rows; as many blocks as the GPU runs divide k.
//
// Idea: the weight is the left operand of mma.sync, 16 rows at a time, and x the right one, 8 rows
// at a time, so that few rows of x leave little of the tensor cores unused. A ring of slices is
// copied ahead by cp.async. All units of work are divided equally among the blocks, independent of
// tile boundaries; the last block of a shared tile adds the partial sums.
// Traffic: the weight once; x once per 128 rows of the weight, from L2; partial sums twice.
// Compared with `cuda_gemv_split`: no conversions, 1/16 of the multiply instructions, and every
// multiprocessor is busy until the end for any n and k.
// Limit: DRAM bandwidth; with 64 rows of x, shared memory, from which x is read once per 32 rows of
// the weight.
#include "few_rows.cuh"
#include "result.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, int BLOCKS, int STAGES, int RESIDENT>
__global__ void __launch_bounds__(few_rows::kThreads, RESIDENT)
    matmul_few_rows(const T *__restrict__ weight, const T *__restrict__ x, T *__restrict__ c,
                    float *partial, unsigned *arrived, int m, int n, int k, long long weight_line,
                    long long x_line, long long i_stride, long long r_stride) {
  few_rows::few_rows<T, few_rows::Dense<T>, BLOCKS, STAGES>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), partial,
      arrived, m, n, k, few_rows::Product<T>{c, i_stride, r_stride});
}

template <typename T, int BLOCKS, int STAGES, int RESIDENT, matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(few_rows::kThreads, RESIDENT)
    linear_few_rows(const T *__restrict__ x, const T *__restrict__ weight,
                    const T *__restrict__ bias, const T *__restrict__ gate,
                    const T *__restrict__ residual, T *__restrict__ y, T *__restrict__ z,
                    float *partial, unsigned *arrived, int m, int n, int k, long long x_line,
                    long long weight_line) {
  few_rows::few_rows<T, few_rows::Dense<T>, BLOCKS, STAGES>(
      {weight, weight_line, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), partial,
      arrived, m, n, k, few_rows::Linear<ACTIVATION, T>{{bias, gate, residual, z}, y});
}
