// A row's gradient by atomic additions in float32, after adding within a tile of positions.
//
// Idea: a block processes TILE positions. The first of the positions that share a row adds all of
// them in registers, and L2 adds the result to the row in memory. Without this, a row of a thousand
// look-ups would take a chain of a thousand dependent additions, where a tree takes ten.
// Traffic: the table zeroed, gy read, up to N rows added in L2 (which reads and writes lines that
// it does not hold); in 16 bits the float32 table is read once more, and the result written.
// Compared with `triton_rows`: four additions per instruction (compute capability 9.0).
// Limit: the atomic units of L2. The order of the additions, and so the last bits, differ between
// runs.
#include "kw/launch.cuh"
#include "table.cuh"

// Adds 4 floats to 16 aligned bytes.
__device__ __forceinline__ void add_vector(float *to, const float *x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4 *>(to), make_float4(x[0], x[1], x[2], x[3]));
#else
  for (int i = 0; i < 4; ++i) atomicAdd(to + i, x[i]);
#endif
}

template <int BLOCK> __global__ void embedding_zero(float *sum, long long n) {
  kw::let_next_launch_start();
  const long long i = ((long long)blockIdx.x * BLOCK + threadIdx.x) * 4;
  if (i + 4 <= n) {
    kw::store(sum + i, kw::Vec<float, 4>{});
  } else {
    for (long long j = i; j < n; ++j) sum[j] = 0;
  }
}

// next[i]: the index in the tile of the next position with the row of position i, TILE if there is
// none; first[i]: whether no earlier position has this row.
template <int TILE>
__device__ __forceinline__ void link(const long long (&row)[TILE], int (&next)[TILE],
                                     bool (&first)[TILE], int place) {
  int later = TILE;
  bool earlier = false;
  for (int j = TILE - 1; j >= 0; --j) {
    if (row[j] != row[place]) continue;
    if (j > place) later = j;
    if (j < place) earlier = true;
  }
  next[place] = later;
  first[place] = !earlier && row[place] >= 0;
}

// blockIdx.x: a tile; blockIdx.y: `chunk` vectors of its rows.
template <typename T, typename Index, int VEC, int TILE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_bwd_atomics(const T *gy, const Index *indices, float *sum, long long n, int vectors,
                          int chunk, long long rows, long long stride, long long padding) {
  static_assert(TILE <= BLOCK, "a thread a position");
  kw::in_turn();
  __shared__ long long row[TILE];
  __shared__ int next[TILE];
  __shared__ bool first[TILE];
  const long long start = (long long)blockIdx.x * TILE;
  if (threadIdx.x < TILE) {
    const bool inside = start + threadIdx.x < n;
    const long long index = inside ? (long long)indices[start + threadIdx.x] : padding;
    assert((!inside || (index >= 0 && index < rows)) && "indices: an index is out of range");
    row[threadIdx.x] = inside && index != padding ? index : -1;
  }
  __syncthreads();
  if (threadIdx.x < TILE) link(row, next, first, threadIdx.x);
  __syncthreads();
  const int column = blockIdx.y * chunk, width = min(chunk, vectors - column);
  for (int item = threadIdx.x; item < TILE * width; item += BLOCK) {
    const int place = item / width, vector = column + item % width;
    if (!first[place]) continue;
    float sums[VEC] = {};
    for (int i = place; i < TILE; i = next[i]) {
      float v[VEC];
      kw::to_float(kw::load<T, VEC>(gy + (start + i) * stride + vector * VEC), v);
#pragma unroll
      for (int k = 0; k < VEC; ++k) sums[k] += v[k];
    }
    float *to = sum + (row[place] * vectors + vector) * VEC;
    if constexpr (VEC % 4 == 0) {
#pragma unroll
      for (int k = 0; k < VEC; k += 4) add_vector(to + k, sums + k);
    } else {
#pragma unroll
      for (int k = 0; k < VEC; ++k) atomicAdd(to + k, sums[k]);
    }
  }
}

template <typename T, int BLOCK>
__global__ void embedding_narrow(const float *sum, T *gweight, long long n) {
  kw::wait_for_launch_before();
  const long long i = ((long long)blockIdx.x * BLOCK + threadIdx.x) * 4;
  if (i + 4 <= n) {
    float v[4];
    kw::to_float(kw::load<float, 4>(sum + i), v);
    kw::store(gweight + i, kw::from_float<T, 4>(v));
  } else {
    for (long long j = i; j < n; ++j) gweight[j] = kw::from_float<T>(sum[j]);
  }
}
