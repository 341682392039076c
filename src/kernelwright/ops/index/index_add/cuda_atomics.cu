// Atomic additions in memory: the result is a copy of x, to which each thread adds.
//
// Idea: L2 performs the additions, so no thread needs to know which others add to its row. In
// float32 for any dtype, because 16-bit sums stop growing. With VEC 4, one instruction adds four
// floats (compute capability 9.0).
// Traffic: x read and copied, source read, and each of its elements reads and writes in L2, which
// reads and writes lines that it does not hold; in 16 bits the float32 copy is read once more.
// Compared with `manual`: no product is written to memory.
// Limit: the atomic units of L2, and rows to which many are added. The order of the additions, and
// so the last bits, differ between runs.
#include <kw/launch.cuh>
#include <kw/vec.cuh>

// Adds VEC floats to aligned memory.
template <int VEC> __device__ __forceinline__ void add_floats(float *to, const float (&x)[VEC]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (VEC == 4) {
    atomicAdd(reinterpret_cast<float4 *>(to), make_float4(x[0], x[1], x[2], x[3]));
    return;
  }
#endif
#pragma unroll
  for (int i = 0; i < VEC; ++i) atomicAdd(to + i, x[i]);
}

template <typename T, int VEC, int BLOCK>
__global__ void index_add_widen(const T *x, float *sum, long long rows, long long vectors,
                                long long stride) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= rows * vectors) return;
  float v[VEC];
  kw::to_float(kw::load<T, VEC>(x + i / vectors * stride + i % vectors * VEC), v);
  kw::Vec<float, VEC> out;
#pragma unroll
  for (int k = 0; k < VEC; ++k) out[k] = v[k];
  kw::store(sum + i * VEC, out);
}

template <typename T, typename Index, int VEC, int BLOCK>
__global__ void index_add_atomics(const Index *index, const T *source, float *sum, long long n,
                                  long long rows, long long vectors, long long stride,
                                  float alpha) {
  kw::in_turn();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n * vectors) return;
  const long long row = index[i / vectors];
  assert(row >= 0 && row < rows && "index: out of range");
  float v[VEC];
  kw::to_float(kw::load<T, VEC>(source + i / vectors * stride + i % vectors * VEC), v);
#pragma unroll
  for (int k = 0; k < VEC; ++k) v[k] *= alpha;
  add_floats(sum + (row * vectors + i % vectors) * VEC, v);
}

template <typename T, int BLOCK>
__global__ void index_add_narrow(const float *sum, T *y, long long n) {
  kw::wait_for_launch_before();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = kw::from_float<T>(sum[i]);
}
