// One thread per result.
//
// Idea: the definition. A thread iterates along a row of the weight and one of x, by their strides.
// Traffic: a row of the weight is read once per row of x; the 32 threads of a warp read 32 rows, so
// each load accesses 32 sectors of 32 bytes and uses one element of each.
// Compared with `manual`: the products are not written to memory.
// Limit: L1. A sector is needed again for the next elements, but 32 rows of every warp compete for
// the cache, and few bytes are in flight at a time.
#include "kw/types.cuh"

constexpr int kChain = 64;

template <typename T>
__global__ void gemv_thread(const T *__restrict__ weight, const T *__restrict__ x,
                            T *__restrict__ c, int n, int k, long long weight_line,
                            long long weight_step, long long x_line, long long x_step,
                            long long i_stride, long long r_stride) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (i >= n) return;

  float total = 0.0f;
  for (int first = 0; first < k; first += kChain) {  // the error grows with a chain's length
    float sum = 0.0f;
    for (int j = first; j < min(first + kChain, k); j++)
      sum += kw::to_float(weight[i * weight_line + j * weight_step]) *
             kw::to_float(x[r * x_line + j * x_step]);
    total += sum;
  }
  c[i * i_stride + r * r_stride] = kw::from_float<T>(total);
}
