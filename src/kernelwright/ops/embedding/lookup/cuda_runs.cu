// Runs: where the positions of each row lie, without a sort. What `cuda_slots` adds along and
// `cuda_scatter` copies along.
//
// Idea: each position takes a slot of its row, by counting, and each row has a bucket for its first
// kShort positions (embedding_count): most rows need no more. The others are listed, and the block
// that counts last gives them room for all of their positions, cut into pieces of PIECE where there
// are more than WHOLE; embedding_place puts positions there. Runs, and the positions in a run, come
// in another order each time; embedding_order sorts the latter in listed runs where needed.
// Traffic: 16 bytes a position and 64 a row, in L2; 16 more a position of a listed run.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "runs.cuh"

// Whole buckets, so that L2 holds all of each before positions come one by one.
template <int BLOCK>
__global__ void embedding_clear(kw::Bucket *buckets, unsigned *cursors, int rows) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  constexpr int kParts = sizeof(kw::Bucket) / sizeof(int4);
  if (i / kParts < rows) reinterpret_cast<int4 *>(buckets)[i] = make_int4(0, 0, 0, 0);
  if (i <= kw::kArrived) cursors[i] = 0;
}

// listed: of each row with more than kShort positions its number, where it has room, how many they
// are and which piece is its first; places: room and first piece by row, of those alone.
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

// slots[i]: how many positions of the same row were counted before i. Lanes that share a row count
// together: many wait for the counter of a frequent one. ITEMS of a thread count at the same time.
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
  // Before the stores below, for which the last block need not wait.
  const bool last = kw::is_last_block(&cursors[kw::kArrived], gridDim.x);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned i = start + k * BLOCK;
    if (i < n) slots[i] = slot[k];
    if (slot[k] >= 0 && slot[k] < kw::kShort) buckets[row[k]].positions[slot[k]] = i;
  }
  if (last) make_room<WHOLE, PIECE>(buckets, cursors, listed, places, pieces);
}

// positions: those of the listed rows. What is in a bucket is copied.
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

// ordered: the positions of each listed run, a block a run. They are a set of numbers below n: a
// bit for each, kBits at a time, and each thread writes out the bits of its words.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_order(const unsigned *cursors, const int4 *listed, const int *positions, int *ordered,
                    int n) {
  kw::in_turn();
  constexpr int kEach = kBits / 32 / BLOCK;    // words of a thread
  __shared__ unsigned bits[BLOCK][kEach + 1];  // threads' words begin in banks of their own
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
