// Runs: where the positions of each row lie, without a sort. What `cuda_slots` adds along and
// `cuda_scatter` copies along.
//
// Idea: each position takes a slot of its row, by counting (embedding_count), each row a place for
// its run, wherever one is free (embedding_starts), and positions go there (embedding_place). Runs,
// and the positions in a run, come in another order each time; embedding_order mends the latter,
// for who wants it, in runs of more than SHORT. Runs longer than PIECE are cut. Traffic: 24 bytes a
// position and 20 a row, out of L2.

// Cursors: positions that have a place, runs that are listed, pieces.
enum { kPlaced, kListed, kPieces };

template <int BLOCK> __global__ void embedding_clear(int *counts, int *cursors, int rows) {
  const int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row < rows) counts[row] = 0;
  if (row <= kPieces) cursors[row] = 0;
}

// slots[i]: how many positions of the same row were counted before i. Lanes that share a row count
// together: many wait for the counter of a frequent one.
template <typename Index, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_count(const Index *indices, int *counts, int *slots, int n, long long rows,
                    long long padding) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32;
  const long long row = i < n ? (long long)indices[i] : padding;
  assert((i >= n || (row >= 0 && row < rows)) && "indices: an index is out of range");
  const bool counted = i < n && row != padding;
  const unsigned peers = __match_any_sync(0xffffffffu, counted ? int(row) : -1);
  const int leader = __ffs(peers) - 1;
  int first = 0;
  if (counted && lane == leader) first = atomicAdd(&counts[row], __popc(peers));
  first = __shfl_sync(0xffffffffu, first, leader);
  if (counted) slots[i] = first + __popc(peers & ((1u << lane) - 1));
}

// runs[row]: where its positions begin, and how many there are. Runs of more than SHORT
// are listed; of one that is cut, `counts` says from here on which piece is its first.
template <int SHORT, int PIECE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_starts(int *counts, int *cursors, int2 *runs, int *listed, int2 *pieces, int rows) {
  __shared__ int sums[BLOCK / 32];
  __shared__ int base;
  const int row = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32;
  const int count = row < rows ? counts[row] : 0;
  int sum = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int left = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int w = 0; w < threadIdx.x / 32; ++w) sum += sums[w];
  if (threadIdx.x == BLOCK - 1) base = sum ? atomicAdd(&cursors[kPlaced], sum) : 0;
  __syncthreads();
  if (row >= rows) return;
  const int start = base + sum - count;
  runs[row] = make_int2(start, count);
  if (count > SHORT) listed[atomicAdd(&cursors[kListed], 1)] = row;
  if (count > PIECE) {
    const int many = (count - 1) / PIECE + 1, first = atomicAdd(&cursors[kPieces], many);
    counts[row] = first;
    for (int k = 0; k < many; ++k)
      pieces[first + k] = make_int2(start + k * PIECE, min(count - k * PIECE, PIECE));
  }
}

template <typename Index, int BLOCK>
__global__ void embedding_place(const Index *indices, const int *slots, const int2 *runs,
                                int *positions, int n, long long padding) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const long long row = indices[i];
  if (row != padding) positions[runs[row].x + slots[i]] = i;
}

constexpr int kBits = 1 << 18;  // positions that a block orders at a time

// ordered: the positions of each long run, a block a run. They are a set of numbers below n: a bit
// for each, kBits at a time, and each thread writes out the bits of its words.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_order(const int *cursors, const int2 *runs, const int *listed, const int *positions,
                    int *ordered, int n) {
  constexpr int kEach = kBits / 32 / BLOCK;    // words of a thread
  __shared__ unsigned bits[BLOCK][kEach + 1];  // threads' words begin in banks of their own
  __shared__ int sums[BLOCK / 32];
  unsigned *mine = bits[threadIdx.x];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, many = cursors[kListed];
  for (int k = blockIdx.x; k < many; k += gridDim.x) {
    const int2 run = runs[listed[k]];
    int to = run.x;
    for (int low = 0; low < n; low += kBits) {
      for (int w = 0; w < kEach; ++w) mine[w] = 0;
      __syncthreads();
      for (int j = threadIdx.x; j < run.y; j += BLOCK) {
        const unsigned at = positions[run.x + j] - low;
        if (at < kBits) atomicOr(&bits[at / 32 / kEach][at / 32 % kEach], 1u << at % 32);
      }
      __syncthreads();
      int count = 0;
      for (int w = 0; w < kEach; ++w) count += __popc(mine[w]);
      int sum = count;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += left;
      }
      if (lane == 31) sums[warp] = sum;
      __syncthreads();
      int at = to + sum - count;
      for (int w = 0; w < BLOCK / 32; ++w) {
        if (w < warp) at += sums[w];
        to += sums[w];
      }
      for (int w = 0; w < kEach; ++w)
        for (unsigned left = mine[w]; left; left &= left - 1)
          ordered[at++] = low + (threadIdx.x * kEach + w) * 32 + __ffs(left) - 1;
    }
  }
}
