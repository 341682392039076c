// A row's gradient by atomic additions to float32.
//
// Idea: every vector of gy is added to its row where the row lies, in memory: L2 does the
// additions. 16-bit gradients are summed in a float32 table and converted at the end. Traffic: the
// table zeroed, gy read, N rows added in L2 (which reads and writes lines that it does not hold);
// 16 bits: the float32 table read once more, and the result written. Over `triton_atomics`: four
// additions an instruction (compute capability 9.0). Limit: L2's atomic units; rows that many
// look-ups share wait for each other. The order of the additions, and so the last bits, differ from
// run to run.
#include "kw/table.cuh"

// Adds 4 floats to 16 aligned bytes.
__device__ __forceinline__ void add_vector(float *to, const float *x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4 *>(to), make_float4(x[0], x[1], x[2], x[3]));
#else
  for (int i = 0; i < 4; ++i) atomicAdd(to + i, x[i]);
#endif
}

template <int BLOCK> __global__ void embedding_zero(float *sum, long long n) {
  const long long i = ((long long)blockIdx.x * BLOCK + threadIdx.x) * 4;
  if (i + 4 <= n) {
    kw::store(sum + i, kw::Vec<float, 4>{});
  } else {
    for (long long j = i; j < n; ++j) sum[j] = 0;
  }
}

template <typename T, typename Index, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_bwd_atomics(const T *gy, const Index *indices, float *sum, long long n, int vectors,
                          int chunk, long long rows, long long stride, long long padding) {
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, n);
  if (!at.inside) return;
  const long long row = indices[at.row];
  assert(row >= 0 && row < rows && "indices: an index is out of range");
  if (row == padding) return;
  float v[VEC];
  kw::to_float(kw::load<T, VEC>(gy + at.row * stride + at.vector * VEC), v);
  float *to = sum + (row * vectors + at.vector) * VEC;
  if constexpr (VEC % 4 == 0) {
#pragma unroll
    for (int i = 0; i < VEC; i += 4) add_vector(to + i, v + i);
  } else {
#pragma unroll
    for (int i = 0; i < VEC; ++i) atomicAdd(to + i, v[i]);
  }
}

template <typename T, int BLOCK>
__global__ void embedding_narrow(const float *sum, T *gweight, long long n) {
  const long long i = ((long long)blockIdx.x * BLOCK + threadIdx.x) * 4;
  if (i + 4 <= n) {
    float v[4];
    kw::to_float(kw::load<float, 4>(sum + i), v);
    kw::store(gweight + i, kw::from_float<T, 4>(v));
  } else {
    for (long long j = i; j < n; ++j) gweight[j] = kw::from_float<T>(sum[j]);
  }
}
