// Columns: threads along the contiguous dimension, blocks along the summed one.
//
// Idea: a block is blockDim.x vectors wide and blockDim.y rows high, and processes its columns VECS
// rows at a time, so that a warp always reads contiguous memory. If the columns alone do not fill
// the GPU, gridDim.y blocks share them, and each takes every gridDim.y-th tile of rows; the last
// block to finish adds their partial sums in order, as in `cuda_last_block`.
// Traffic: x read once, y written once; the partial sums of shared columns stay in L2.
// Compared with one thread per column: any number of columns fills the GPU, and loads are 16 bytes
// wide.
// Limit: columns whose strides are not divisible by a vector are read in narrower accesses (WIDTH).
#include <kw/accumulate.cuh>
#include <kw/last_block.cuh>

// Adds WIDTH values per thread over threadIdx.y; threads with threadIdx.y == 0 receive the sums.
// Value w of all threads is contiguous in memory: neighboring threads access neighboring banks.
template <int BLOCK, int WIDTH, typename A>
__device__ __forceinline__ void add_down(A (&value)[WIDTH], A *shared) {
  const int tid = threadIdx.y * blockDim.x + threadIdx.x;
  __syncthreads();  // a second call must not overwrite values that threads still read
#pragma unroll
  for (int w = 0; w < WIDTH; ++w) shared[w * BLOCK + tid] = value[w];
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half)
#pragma unroll
      for (int w = 0; w < WIDTH; ++w)
        shared[w * BLOCK + tid] += shared[w * BLOCK + tid + half * blockDim.x];
  }
#pragma unroll
  for (int w = 0; w < WIDTH; ++w) value[w] = shared[w * BLOCK + tid];
}

// Grid: (outer * tiles, splits); a tile is blockDim.x * WIDTH columns. Block: (X, Y), both powers
// of two, X * Y == BLOCK. Strides in elements.
template <typename In, typename Out, int BLOCK, int WIDTH, int VECS>
__global__ void __launch_bounds__(BLOCK)
    sum_columns(const In *x, kw::acc_t<In> *partials, unsigned *arrived, Out *y, long long n,
                long long inner, long long tiles, long long x_outer, long long x_n,
                long long y_outer, long long y_inner) {
  using A = kw::acc_t<In>;
  __shared__ A shared[BLOCK * WIDTH];
  const long long outer = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const long long column = (tile * blockDim.x + threadIdx.x) * WIDTH;
  const bool inside = column < inner;  // WIDTH divides inner
  x += outer * x_outer + column;
  double total[WIDTH] = {};
  const long long step = (long long)gridDim.y * blockDim.y;
  const long long rows = inside ? n : 0;
#pragma unroll 1
  for (long long row = (long long)blockIdx.y * blockDim.y + threadIdx.y; row < rows;
       row += step * VECS) {
    kw::Vec<In, WIDTH> v[VECS];
    const In *from = x + row * x_n;
    if (row + (VECS - 1) * step < rows) {  // without bounds checks, loads stay together
#pragma unroll
      for (int k = 0; k < VECS; ++k) v[k] = kw::load<In, WIDTH>(from + k * step * x_n);
    } else {
#pragma unroll
      for (int k = 0; k < VECS; ++k)
        v[k] = row + k * step < rows ? kw::load<In, WIDTH>(from + k * step * x_n)
                                     : kw::Vec<In, WIDTH>{};
    }
#pragma unroll
    for (int w = 0; w < WIDTH; ++w) {
      A sum = kw::widen(v[0][w]);
#pragma unroll
      for (int k = 1; k < VECS; ++k) sum += kw::widen(v[k][w]);
      total[w] += sum;
    }
  }
  A value[WIDTH];
#pragma unroll
  for (int w = 0; w < WIDTH; ++w) value[w] = A(total[w]);
  add_down<BLOCK>(value, shared);
  if (gridDim.y > 1) {
    const long long width = (long long)blockDim.x * WIDTH;  // of a row of partials
    partials += (long long)blockIdx.x * gridDim.y * width + threadIdx.x;
    if (threadIdx.y == 0)
#pragma unroll
      for (int w = 0; w < WIDTH; ++w) partials[blockIdx.y * width + w * blockDim.x] = value[w];
    __syncthreads();
    if (!kw::is_last_block(arrived + blockIdx.x, gridDim.y)) return;
#pragma unroll
    for (int w = 0; w < WIDTH; ++w) value[w] = 0;
    for (unsigned i = threadIdx.y; i < gridDim.y; i += blockDim.y)
#pragma unroll
      for (int w = 0; w < WIDTH; ++w) value[w] += __ldcg(partials + i * width + w * blockDim.x);
    add_down<BLOCK>(value, shared);
  }
  if (threadIdx.y != 0 || !inside) return;
#pragma unroll
  for (int w = 0; w < WIDTH; ++w)
    y[outer * y_outer + (column + w) * y_inner] = kw::narrow<Out>(value[w]);
}
