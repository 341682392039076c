// One launch per digit: a tile computes from the tiles before it where its elements go.
//
// Idea: one read of x counts the digits of all passes, which gives the position of each digit's
// first element. In a pass a block ranks a tile in shared memory, publishes its counts, adds up
// those of the tiles before it (decoupled look-back, chain.cuh), and writes its elements digit by
// digit.
// Traffic: x read once for all counts; each pass reads and writes keys and 32-bit positions once.
// The first pass generates the positions, the last one converts them to 64 bits.
// Compared with `cuda_radix`: keys are read once per pass instead of twice; one launch per digit
// instead of three.
// Limit: DRAM bandwidth, and ranking: eight votes and about six accesses to shared memory per
// element.
#include <kw/last_block.cuh>
#include <kw/launch.cuh>

#include "chain.cuh"

template <int BLOCK>
__global__ void sort_clear(unsigned *counts, long long many, unsigned *words, long long more) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < many) counts[i] = 0;
  if (i < more) words[i] = 0;
}

// counts[row][pass][digit]: number of elements with a smaller digit. `parts` blocks share a row.
template <typename T, int EACH, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 2048 / BLOCK)
    sort_histogram(const kw::bits_t<T> *x, unsigned *counts, unsigned *arrived, long long n,
                   unsigned parts, long long stride, int descending) {
  using Op = kw::Adding<unsigned>;
  constexpr int PASSES = sizeof(T);
  __shared__ unsigned seen[PASSES * kw::kDigits], of_warps[BLOCK / 32];
  const long long row = blockIdx.x / parts;
  x += row * stride, counts += row * PASSES * kw::kDigits;
  for (int i = threadIdx.x; i < PASSES * kw::kDigits; i += BLOCK) seen[i] = 0;
  __syncthreads();
  for (long long i = (long long)(blockIdx.x % parts) * (BLOCK * EACH) + threadIdx.x; i < n;
       i += (long long)parts * (BLOCK * EACH)) {
    kw::bits_t<T> found[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k)
      if (i + k * BLOCK < n) found[k] = x[i + k * BLOCK];
#pragma unroll
    for (int k = 0; k < EACH; ++k)
      if (i + k * BLOCK < n)
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
          atomicAdd(&seen[p * kw::kDigits + kw::digit_of<T>(found[k], p, descending)], 1u);
  }
  __syncthreads();
  kw::wait_for_launch_before();
  for (int i = threadIdx.x; i < PASSES * kw::kDigits; i += BLOCK)
    if (seen[i]) atomicAdd(&counts[i], seen[i]);
  kw::let_next_launch_start();
  __syncthreads();
  if (!kw::is_last_block(arrived + row, parts)) return;
  for (int p = 0; p < PASSES; ++p) {
    unsigned *of_pass = counts + p * kw::kDigits + threadIdx.x;
    const unsigned own = threadIdx.x < kw::kDigits ? __ldcg(of_pass) : 0;
    const unsigned inclusive = kw::warp_scan<Op>(own);
    unsigned total;
    const unsigned before =
        kw::before_warp<Op, BLOCK / 32>(kw::shuffle(inclusive, 31), of_warps, total);
    if (threadIdx.x < kw::kDigits) *of_pass = before + inclusive - own;
    __syncthreads();
  }
}

// Sorts a tile from `keys` and `places` into a row; `before`: the position of each digit's first
// element.
template <bool FULL, bool PREFETCH, typename Tile, typename U, typename Word>
__device__ __forceinline__ void sweep(Tile &tile, const kw::Chain<Word> &chain, const U *keys,
                                      const unsigned *places, U *keys_out, unsigned *places_out,
                                      long long *indices, const unsigned *before, unsigned first,
                                      unsigned count, int pass, bool descending) {
  if constexpr (Tile::WITH_PLACES && PREFETCH) tile.prefetch(places, count);
  U own[Tile::EACH];
  unsigned ranks[Tile::EACH];
  tile.template load<FULL>(keys, count, pass, descending, own, ranks);
  const unsigned total = tile.total();
  if (threadIdx.x < kw::kDigits) chain.publish_own(total);
  const unsigned start = tile.rank(total, ranks);
  kw::let_next_launch_start();
  tile.template exchange<FULL>(places, first, count, own, ranks);
  if (threadIdx.x < kw::kDigits)
    tile.bases[threadIdx.x] = before[threadIdx.x] + unsigned(chain.before(total)) - start;
  __syncthreads();
  tile.template write<FULL>(keys_out, places_out, indices, count, pass, descending);
}

// Tiles are numbered in the order in which blocks start, so that none waits for one that has not
// started. The last block resets `ticket`. Without `places`, positions are generated; the last pass
// writes `indices`.
template <typename T, bool PAIRS, typename Word, bool PREFETCH, bool MATCH, int ITEMS, int BLOCK,
          int RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    sort_onesweep(const kw::bits_t<T> *keys, const unsigned *places, kw::bits_t<T> *keys_out,
                  unsigned *places_out, long long *indices, const unsigned *counts, Word *words,
                  unsigned *ticket, long long n, unsigned tiles, long long stride, int pass,
                  int descending) {
  using Tile = kw::Tile<T, PAIRS, MATCH, ITEMS, BLOCK>;
  extern __shared__ uint4 dynamic_shared[];
  Tile &tile = *reinterpret_cast<Tile *>(dynamic_shared);
  kw::wait_for_launch_before();
  if (threadIdx.x == 0) {
    tile.number = atomicAdd(ticket, 1u);
    if (tile.number == gridDim.x - 1) *ticket = 0;
  }
  __syncthreads();
  const long long row = tile.number / tiles;
  const unsigned number = tile.number % tiles, first = number * Tile::SIZE;
  const kw::Chain<Word> chain(words + row * tiles * kw::kDigits, number, pass);
  keys += row * stride + first, counts += (row * sizeof(T) + pass) * kw::kDigits;
  if (keys_out) keys_out += row * n;
  if (places) places += row * n + first;
  if (places_out) places_out += row * n;
  if (indices) indices += row * n;
  if (n - first >= Tile::SIZE)
    sweep<true, PREFETCH>(tile, chain, keys, places, keys_out, places_out, indices, counts, first,
                          Tile::SIZE, pass, descending);
  else
    sweep<false, PREFETCH>(tile, chain, keys, places, keys_out, places_out, indices, counts, first,
                           unsigned(n - first), pass, descending);
}
