// Tensor cores for up to 64 rows, with k shared by as many blocks as the machine runs.
//
// Idea: the weight takes the place of the left operand of mma.sync, 16 rows at a time, and x that
// of the right one, 8 rows at a time, so that few rows of x leave few lanes of the tensor cores
// idle. A ring of slices is copied ahead by cp.async. Blocks share all units of work equally,
// wherever a tile begins; what they share of a tile, the last of them adds up.
// Traffic: the weight once; x once for 128 rows of the weight, from L2; partial sums twice.
// Against `cuda_gemv_split`: no conversions, 1/16 of the multiply instructions, every
// multiprocessor busy from the first byte to the last whatever n and k.
// Limit: DRAM; with 64 rows of x, shared memory, which x crosses once for 32 rows of the weight.
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
