// Up to 64 rows of x on Hopper's tensor cores: one warp streams the weight by the copy engine.
//
// Idea: 64 rows of the weight are the left operand of wgmma, and the rows of x its width. One warp
// keeps a ring of stages full, each one copy of up to 256 rows of the weight and one of x; up to
// four warp groups multiply. A tile is a block's, or a cluster divides its k.
// Traffic: the weight once; x once per tile, from L2; a cluster's sums through its shared memory.
// Compared with `cuda_few_rows_wgmma`: up to 200 KiB in flight per multiprocessor independently of
// the warps that multiply, no registers for the weight, and no sums sent if the tiles fill the
// machine.
// Limit: DRAM bandwidth, and the start and end of a launch.
#include "../few_rows/result.cuh"
#include "dense.cuh"

extern __shared__ unsigned char unaligned[];

template <typename T, class SHAPE, int RESIDENT>
__global__ void __launch_bounds__(SHAPE::kThreads, RESIDENT)
    matmul_stream(const __grid_constant__ kw::TensorMap weight,
                  const __grid_constant__ kw::TensorMap x, T *__restrict__ c, int bytes, int steps,
                  int m, int n, long long i_stride, long long r_stride) {
  stream::multiply<SHAPE>(stream::Dense<T, SHAPE>{weight, x, bytes}, unaligned, steps, m, n,
                          few_rows::Product<T>{c, i_stride, r_stride});
}

template <typename T, class SHAPE, int RESIDENT, matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(SHAPE::kThreads, RESIDENT)
    linear_stream(const __grid_constant__ kw::TensorMap weight,
                  const __grid_constant__ kw::TensorMap x, const T *__restrict__ bias,
                  const T *__restrict__ gate, const T *__restrict__ residual, T *__restrict__ y,
                  T *__restrict__ z, int bytes, int steps, int m, int n) {
  stream::multiply<SHAPE>(stream::Dense<T, SHAPE>{weight, x, bytes}, unaligned, steps, m, n,
                          few_rows::Linear<ACTIVATION, T>{{bias, gate, residual, z}, y});
}
