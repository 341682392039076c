// Tensor cores for up to 64 rows, a weight of 4 or 8 bits.
//
// Idea: the kernel for few rows with another weight: integers come into shared memory as they are,
// 4 or 8 bits each, and become 16-bit operands in the registers of the lane that multiplies them:
// a mask and an addition for two of 4 bits. Zero points are subtracted there, which is exact;
// scales multiply the sums of a group, in float32, once for 128 products.
// Traffic: a quarter or half of a 16-bit weight, and 4 bytes for each group.
// Against `cuda_warp`: tensor cores multiply, and x is read once for 128 rows of the weight.
// Limit: up to 16 rows DRAM, then conversions and, with 64 rows, shared memory.
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
