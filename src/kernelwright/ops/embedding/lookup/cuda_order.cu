// Positions in the order of their indices, which `cuda_sorted` uses: a stable radix sort with BITS
// bits per pass, and the start of each row's run.
//
// Idea: a pass counts each digit in each tile of keys (embedding_count), converts the counts of a
// digit to positions by tile (embedding_scan), and moves keys there (embedding_place). The rank of
// a key among equal digits of its tile depends only on its position: lanes of a warp find equal
// digits by match, warps add in order. Nothing depends on the distribution of the data or the order
// of blocks.
// Traffic: 8 bytes per key read twice and written once per pass, which is little compared with gy.
#include <kw/launch.cuh>
#include <kw/reduce.cuh>

using Pair = unsigned long long;  // an index in the upper half, its position in the lower

// The key of element i. The first pass reads the indices.
template <typename In>
__device__ __forceinline__ Pair pair_at(const In *in, unsigned i, long long rows) {
  if constexpr (sizeof(In) == 8 && In(-1) > In(0)) {
    return in[i];
  } else {
    const long long index = in[i];
    assert(index >= 0 && index < rows && "indices: an index is out of range");
    return Pair(index) << 32 | i;
  }
}
template <int BITS> __device__ __forceinline__ unsigned digit_of(Pair pair, int shift) {
  return unsigned(pair >> (32 + shift)) & ((1u << BITS) - 1);
}

// counts[digit][tile]; a tile has BLOCK * ITEMS keys.
template <typename In, int BITS, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_count(const In *in, int *counts, int n, int shift, long long rows) {
  kw::in_turn();
  __shared__ int found[1 << BITS];
  for (int d = threadIdx.x; d < 1 << BITS; d += BLOCK) found[d] = 0;
  __syncthreads();
  const unsigned first = blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned i = first + k * BLOCK;
    if (i < n) atomicAdd(&found[digit_of<BITS>(pair_at(in, i, rows), shift)], 1);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < 1 << BITS; d += BLOCK)
    counts[d * gridDim.x + blockIdx.x] = found[d];
}

// In place, one warp per digit: the number of keys of the digit in earlier tiles. totals[digit]: in
// all tiles.
template <int BLOCK> __global__ void embedding_scan(int *counts, int *totals, int tiles) {
  kw::in_turn();
  const int digit = (blockIdx.x * BLOCK + threadIdx.x) / 32, lane = threadIdx.x % 32;
  counts += (long long)digit * tiles;
  int before = 0;
  for (int first = 0; first < tiles; first += 32) {
    const int own = first + lane < tiles ? counts[first + lane] : 0;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int left = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += left;
    }
    if (first + lane < tiles) counts[first + lane] = before + sum - own;
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) totals[digit] = before;
}

// Moves the keys of a tile to their positions. A warp processes ITEMS * 32 consecutive keys.
template <typename In, int BITS, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_place(const In *in, const int *counts, const int *totals, Pair *out, int n, int shift,
                    long long rows) {
  kw::in_turn();
  constexpr int DIGITS = 1 << BITS, WARPS = BLOCK / 32;
  static_assert(DIGITS <= BLOCK, "a thread a digit");
  __shared__ int place[WARPS][DIGITS];
  __shared__ int of_warp[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int d = lane; d < DIGITS; d += 32) place[warp][d] = 0;
  __syncwarp();
  Pair pair[ITEMS];
  int rank[ITEMS];
  const unsigned first = (blockIdx.x * WARPS + warp) * (ITEMS * 32) + lane;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned i = first + k * 32;
    pair[k] = i < n ? pair_at(in, i, rows) : 0;
    const unsigned digit = i < n ? digit_of<BITS>(pair[k], shift) : DIGITS;
    const unsigned peers = __match_any_sync(0xffffffffu, digit);
    const int ahead = __popc(peers & ((1u << lane) - 1));
    const int before = i < n ? place[warp][digit] : 0;
    __syncwarp();
    if (i < n && ahead == 0) place[warp][digit] = before + __popc(peers);
    __syncwarp();
    rank[k] = before + ahead;
  }
  // one thread per digit: adds smaller digits, earlier tiles, then the warps of this tile
  const int digit = threadIdx.x;
  const int total = digit < DIGITS ? totals[digit] : 0;
  int sum = total;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int left = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += of_warp[w];
  if (digit < DIGITS) {
    int next = sum - total + counts[digit * gridDim.x + blockIdx.x];
    for (int w = 0; w < WARPS; ++w) {
      const int many = place[w][digit];
      place[w][digit] = next;
      next += many;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * 32 < n) out[place[warp][digit_of<BITS>(pair[k], shift)] + rank[k]] = pair[k];
}

// starts[r]: the number of pairs with an index below r, for r from 0 to `rows`.
template <int BLOCK>
__global__ void embedding_starts(const Pair *pairs, int *starts, int n, int rows) {
  kw::in_turn();
  const int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row > rows) return;
  int low = 0, high = n;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (unsigned(pairs[middle] >> 32) < unsigned(row))
      low = middle + 1;
    else
      high = middle;
  }
  starts[row] = low;
}
