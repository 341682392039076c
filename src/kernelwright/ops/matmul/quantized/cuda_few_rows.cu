// Tensor cores for at most 64 rows, with weights of 4 or 8 bits.
//
// Idea: the kernel for few rows with another type of weight: integers of 4 or 8 bits are copied to
// shared memory unchanged and converted to 16-bit operands in the registers of the lane that
// multiplies them: one mask and one addition per two 4-bit values. Zero points are subtracted
// there, which is exact; scales are applied to the sums of a group, in float32, once per 128
// products.
// Traffic: a quarter or half of a 16-bit weight, and 4 bytes per group.
// Compared with `cuda_warp`: tensor cores multiply, and x is read once per 128 rows of the weight.
// Limit: DRAM bandwidth up to 16 rows, then conversions and, with 64 rows, shared memory.
#include "../gemm/few_rows/few_rows.cuh"
#include "result.cuh"
#include "integers.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, int BITS, int BLOCKS, int STAGES, int RESIDENT>
__global__ void __launch_bounds__(few_rows::kThreads, RESIDENT)
    quantized_few_rows(const T *__restrict__ x, const unsigned char *__restrict__ packed,
                       const T *__restrict__ scales, const T *__restrict__ bias, T *__restrict__ y,
                       float *partial, unsigned *arrived, int m, int n, int k, long long x_line) {
  few_rows::few_rows<T, few_rows::Quantized<T, BITS>, BLOCKS, STAGES>(
      {packed, scales, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), partial, arrived,
      m, n, k, few_rows::Biased<T>{bias, y});
}
