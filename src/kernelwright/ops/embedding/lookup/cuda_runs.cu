// Runs: the positions of each row, found without a sort, for `cuda_slots` and `cuda_scatter`.
//
// Idea: each position gets a slot in its row by counting, and each row has a bucket for its first
// kShort positions (embedding_count), which suffices for most rows. The other rows are listed, and
// the last block to count allocates room for all of their positions, in pieces of PIECE if there
// are more than WHOLE; embedding_place stores the positions there. The order of runs, and of the
// positions in a run, differs between runs of the program; embedding_order sorts the positions of
// listed runs if needed.
// Traffic: 16 bytes per position and 64 per row, in L2; 16 more per position of a listed run.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "runs.cuh"

// Clears whole buckets, so that L2 holds them completely before single positions are stored.
template <int BLOCK>
__global__ void embedding_clear(kw::Bucket *buckets, unsigned *cursors, int rows) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  constexpr int kParts = sizeof(kw::Bucket) / sizeof(int4);
  if (i / kParts < rows) reinterpret_cast<int4 *>(buckets)[i] = make_int4(0, 0, 0, 0);
  if (i <= kw::kArrived) cursors[i] = 0;
}

// listed: for each row with more than kShort positions: its number, the start of its room, the
// number of positions, and the index of its first piece. places: room and first piece by row, for
// these rows only.
template <int WHOLE, int PIECE>
__device__ __forceinline__ void make_room(const kw::Bucket *buckets, unsigned *cursors,
                                          int4 *listed, int2 *places, int2 *pieces) {
  const int many = cursors[kw::kListed];
  for (int k = threadIdx.x; k < many; k += blockDim.x) {
    const int row = listed[k].x, count = buckets[row].count;
    const int start = atomicAdd(&cursors[kw::kPlaced], unsigned(count));
    int first = 0;
    if (count > WHOLE) {
      const int parts = (count - 1) / PIECE + 1;
      first = atomicAdd(&cursors[kw::kPieces], unsigned(parts));
      for (int p = 0; p < parts; ++p)
        pieces[first + p] = make_int2(start + p * PIECE, min(count - p * PIECE, PIECE));
    }
    listed[k] = make_int4(row, start, count, first);
    places[row] = make_int2(start, first);
  }
}

// slots[i]: the number of positions of the same row counted before i. Lanes with the same row count
// together, because many would wait for the counter of a frequent row. A thread counts ITEMS at the
// same time.
template <typename Index, int WHOLE, int PIECE, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_count(const Index *indices, kw::Bucket *buckets, int *slots, unsigned *cursors,
                    int4 *listed, int2 *places, int2 *pieces, int n, long long rows,
                    long long padding) {
  kw::in_turn();
  const unsigned start = blockIdx.x * (BLOCK * ITEMS) + threadIdx.x, lane = threadIdx.x % 32;
  long long row[ITEMS];
  int slot[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned i = start + k * BLOCK;
    row[k] = i < n ? (long long)indices[i] : padding;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const bool inside = start + k * BLOCK < n, counted = inside && row[k] != padding;
    assert((!inside || (row[k] >= 0 && row[k] < rows)) && "indices: an index is out of range");
    const unsigned peers = __match_any_sync(0xffffffffu, counted ? int(row[k]) : -1);
    const int leader = __ffs(peers) - 1;
    int first = 0;
    if (counted && lane == leader) first = atomicAdd(&buckets[row[k]].count, __popc(peers));
    first = __shfl_sync(0xffffffffu, first, leader);
    slot[k] = counted ? first + __popc(peers & ((1u << lane) - 1)) : -1;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (slot[k] == kw::kShort) listed[atomicAdd(&cursors[kw::kListed], 1u)].x = int(row[k]);
  __syncthreads();
  // Called before the stores below, for which the last block need not wait.
  const bool last = kw::is_last_block(&cursors[kw::kArrived], gridDim.x);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned i = start + k * BLOCK;
    if (i < n) slots[i] = slot[k];
    if (slot[k] >= 0 && slot[k] < kw::kShort) buckets[row[k]].positions[slot[k]] = i;
  }
  if (last) make_room<WHOLE, PIECE>(buckets, cursors, listed, places, pieces);
}

// positions: those of the listed rows; the positions in buckets are copied.
template <typename Index, int BLOCK>
__global__ void embedding_place(const Index *indices, const kw::Bucket *buckets, const int *slots,
                                const unsigned *cursors, const int4 *listed, const int2 *places,
                                int *positions, int n) {
  kw::in_turn();
  const unsigned many = cursors[kw::kListed], i = blockIdx.x * BLOCK + threadIdx.x;
  if (many == 0 || i >= n) return;
  const int slot = slots[i];
  if (slot >= kw::kShort) positions[places[indices[i]].x + slot] = i;
  if (i >= many * kw::kShort) return;
  const int4 run = listed[i / kw::kShort];
  const int at = i % kw::kShort;
  positions[run.y + at] = buckets[run.x].positions[at];
}

constexpr int kBits = 1 << 18;  // positions that a block orders at a time

// ordered: the positions of each listed run, with one block per run. They are a set of numbers
// below n: one bit for each, kBits at a time; each thread writes the positions of the bits in its
// words.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_order(const unsigned *cursors, const int4 *listed, const int *positions, int *ordered,
                    int n) {
  kw::in_turn();
  constexpr int kEach = kBits / 32 / BLOCK;    // words per thread
  __shared__ unsigned bits[BLOCK][kEach + 1];  // threads' words begin in different banks
  __shared__ int sums[BLOCK / 32];
  unsigned *mine = bits[threadIdx.x];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, many = cursors[kw::kListed];
  for (int k = blockIdx.x; k < many; k += gridDim.x) {
    const int2 run = make_int2(listed[k].y, listed[k].z);
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
