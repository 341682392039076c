// FlashAttention-2 on tensor cores by their instructions (compute capability 8.0).
//
// Idea: each of four warps has 16 queries and every key (split-Q), so that warps exchange nothing.
// The scores that mma.sync computes have the layout of its left operand, so weights are rounded in
// place and multiply values directly from registers. cp.async copies tiles of keys and values while
// the previous tile is processed; 16-byte units are permuted by their row: no bank conflicts.
// Traffic: q and y once, k and v once per 64 queries, from L2.
// Compared with `cuda_tiled`: tensor cores, and the weights do not go through shared memory.
// Limit: mma.sync, and products that wait for the exponentials of their own warp.
#include "../../matmul/gemm/mma.cuh"
#include "call.cuh"
#include "kw/async.cuh"
#include "softmax.cuh"

constexpr int kThreads = 128, kRows = 64;

// ROWS x D elements in shared memory.
template <typename T, int ROWS, int D> struct Tile {
  static constexpr int kUnits = D / 8, kBytes = ROWS * D * 2;

  static __device__ __forceinline__ int place(int row, int unit) {
    return 2 * D * row + 16 * (unit ^ row % 8);
  }
  // Copies rows from `first` on, of `rows` x `wide` elements; zeros outside.
  static __device__ __forceinline__ void copy(char *shared, const T *from, long long next,
                                              int first, int rows, int wide) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * kUnits; i += kThreads) {
      const int row = i / kUnits, unit = i % kUnits;
      const bool inside = first + row < rows && 8 * unit < wide;
      matmul::copy_async_16(shared + place(row, unit),
                            inside ? from + (first + row) * next + 8 * unit : from,
                            inside ? 16 : 0);
    }
  }
  // Loads blocks of 8 x 8 at (row, unit), (row + 8, unit), (row, unit + 1), (row + 8, unit + 1), or
  // with the second and third exchanged if UNITS_FIRST.
  template <bool TURNED, bool UNITS_FIRST>
  static __device__ __forceinline__ void load(unsigned (&x)[4], const char *shared, int row,
                                              int unit) {
    const int lane = threadIdx.x % 32, second = lane / 8 % 2, third = lane / 16;
    row += lane % 8 + 8 * (UNITS_FIRST ? third : second);
    matmul::load_matrices<TURNED>(x, shared + place(row, unit + (UNITS_FIRST ? second : third)));
  }
};

template <typename T, int D, int COLS, bool CAUSAL>
__global__ void __launch_bounds__(kThreads)
    attention_mma(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                  T *__restrict__ y, float *__restrict__ lse, attention::Call c, float scale) {
  using Queries = Tile<T, kRows, D>;
  using Keys = Tile<T, COLS, D>;
  extern __shared__ uint4 dynamic_shared[];
  char *queries = reinterpret_cast<char *>(dynamic_shared), *ring = queries + Queries::kBytes;
  const int blocks = (c.length + kRows - 1) / kRows, block = blocks - 1 - blockIdx.x % blocks;
  const long long head = blockIdx.x / blocks;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_row = block * kRows;
  const int row = first_row + warp * 16 + lane / 4;
  q += c.q.at(head, c.heads, 1);
  k += c.k.at(head, c.heads, c.group);
  v += c.v.at(head, c.heads, c.group);
  y += c.y.at(head, c.heads, 1);

  const int tiles = (c.seen<CAUSAL>(first_row + kRows - 1) + COLS - 1) / COLS;
  const int whole = c.seen<CAUSAL>(first_row) / COLS;  // tiles that every query sees completely
  const auto copy = [&](int tile) {
    if (tile < tiles) {
      char *to = ring + tile % 2 * 2 * Keys::kBytes;
      Keys::copy(to, k, c.k.row, tile * COLS, c.s, c.d);
      Keys::copy(to + Keys::kBytes, v, c.v.row, tile * COLS, c.s, c.dv);
    }
    kw::copy_async_commit();
  };
  Queries::copy(queries, q, c.q.row, first_row, c.length, c.d);
  copy(0);
  copy(1);
  kw::copy_async_wait_all_but<1>();
  __syncthreads();

  unsigned of_q[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    Queries::template load<false, false>(of_q[i], queries, warp * 16, 2 * i);
  float sum[D / 8][4] = {}, fade[2];
  attention::OnlineSoftmax softmax{scale == 0.0f ? 1e-38f : scale * 1.4426950408889634f};

  for (int tile = 0; tile < tiles; tile++) {
    const char *keys = ring + tile % 2 * 2 * Keys::kBytes, *values = keys + Keys::kBytes;
    float s[COLS / 2] = {};
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int j = 0; j < COLS / 16; j++) {
        unsigned of_k[4];
        Keys::template load<false, true>(of_k, keys, 16 * j, 2 * i);
        matmul::multiply_add<T>(reinterpret_cast<float (&)[4]>(s[8 * j]), of_q[i], of_k[0],
                                of_k[1]);
        matmul::multiply_add<T>(reinterpret_cast<float (&)[4]>(s[8 * j + 4]), of_q[i], of_k[2],
                                of_k[3]);
      }
    if (tile >= whole) attention::hide<CAUSAL>(s, row, tile * COLS, c.s);
    softmax.add(s, fade);
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
      for (int r = 0; r < 4; r++) sum[i][r] *= fade[r / 2];
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
      unsigned weights[4];
#pragma unroll
      for (int r = 0; r < 4; r++)
        weights[r] = attention::pack<T>(s[8 * j + 2 * r], s[8 * j + 2 * r + 1]);
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        unsigned of_v[4];
        Keys::template load<true, false>(of_v, values, 16 * j, 2 * i);
        matmul::multiply_add<T>(sum[2 * i], weights, of_v[0], of_v[1]);
        matmul::multiply_add<T>(sum[2 * i + 1], weights, of_v[2], of_v[3]);
      }
    }
    __syncthreads();  // the tile has been read
    copy(tile + 2);
    kw::copy_async_wait_all_but<1>();
    __syncthreads();
  }

  softmax.finish();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int own = row + 8 * h;
    if (own >= c.length) continue;
    const float scale_of = softmax.scale(h);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      const int x = 8 * i + lane % 4 * 2;
      const unsigned pair =
          attention::pack<T>(sum[i][2 * h] * scale_of, sum[i][2 * h + 1] * scale_of);
      if (x < c.dv) *reinterpret_cast<unsigned *>(y + own * c.y.row + x) = pair;
    }
    if (lane % 4 == 0) lse[head * c.length + own] = softmax.lse(h);
  }
}
