// Tiles with rows of 128 bytes, moved by 16-byte vectors, without padding.
//
// Idea: vector j of row r is stored at position j ^ (r / W) of its row, where W elements are 16
// bytes. The 8 vectors from which a quarter of a warp gathers a column are then in different banks,
// and rows stay aligned for 16-byte accesses, which padding would prevent.
// Traffic: as `cuda_padded`.
// Compared with `cuda_padded`: 16 bytes per memory access in both directions, so that 16-bit types
// have as many bytes in flight as float32.
// Limit: DRAM bandwidth. Sizes and strides must be multiples of 16 bytes; others use `cuda_padded`.
#include <kw/vec.cuh>

#include "places.cuh"

template <int BYTES, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    permute_swizzled(const void *x, void *y, long long rows, long long row_stride,
                     long long columns, long long column_stride, long long across, long long tiles,
                     kw::Outer outer) {
  using T = typename kw::Element<BYTES>::type;
  constexpr int W = 16 / BYTES, SIDE = 8 * W, VECTORS = 8 * SIDE;
  __shared__ kw::Vec<T, W> tile[SIDE][8];
  long long matrix = kw::block_number(), from = 0, to = 0;
  long long row = kw::divide(matrix, tiles);
  const long long column = kw::divide(row, across) * SIDE;
  row *= SIDE;
  if (!kw::outer_place(outer, matrix, from, to)) return;
  const T *in = static_cast<const T *>(x) + from + row * row_stride + column;
  T *out = static_cast<T *>(y) + to + column * column_stride + row;
  constexpr int EACH = (VECTORS + BLOCK - 1) / BLOCK;
  kw::Vec<T, W> v[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int i = threadIdx.x + k * BLOCK, r = i / 8, c = i % 8 * W;
    if (i < VECTORS && row + r < rows && column + c < columns)
      v[k] = kw::load<T, W>(in + r * row_stride + c);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int i = threadIdx.x + k * BLOCK, r = i / 8;
    if (i < VECTORS && row + r < rows && column + i % 8 * W < columns)
      tile[r][i % 8 ^ (r / W)] = v[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int i = threadIdx.x + k * BLOCK, c = i / 8, r = i % 8 * W;
    if (i >= VECTORS || column + c >= columns || row + r >= rows) continue;
    kw::Vec<T, W> u;
#pragma unroll
    for (int j = 0; j < W; ++j) u[j] = tile[r + j][c / W ^ (r / W)][c % W];
    kw::store_streaming(out + c * column_stride + r, u);  // one store; a plain one is split
  }
}
