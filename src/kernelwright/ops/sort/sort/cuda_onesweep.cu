// A launch per digit: a tile learns from the tiles before it where its elements go.
//
// Idea: one read of x counts all digits of all passes, which says where each digit's elements
// begin. In a pass a block ranks a tile in shared memory, publishes its counts, adds up those of
// the tiles before it (decoupled look-back, chain.cuh), and writes its elements digit by digit.
// Traffic: x once for all counts; then each pass reads and writes keys and 32-bit places once. The
// first pass numbers the places, the last one widens them. Over `cuda_radix`: keys are read once in
// a pass, not twice, and a digit takes one launch, not three.
// Limit: DRAM, and ranking: eight votes for each element, and about six accesses of shared memory.
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

// counts[row][pass][digit]: how many elements have a smaller digit. `parts` blocks share a row.
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

// Tiles are numbered in the order in which blocks start: none waits for one that has not. The last
// one resets `ticket`. Without `places` they are numbered; `indices` is written by the last pass.
template <typename T, bool PAIRS, typename Word, bool MATCH, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    sort_onesweep(const kw::bits_t<T> *keys, const unsigned *places, kw::bits_t<T> *keys_out,
                  unsigned *places_out, long long *indices, const unsigned *counts, Word *words,
                  unsigned *ticket, long long n, unsigned tiles, long long stride, int pass,
                  int descending) {
  using Tile = kw::Tile<T, PAIRS, MATCH, ITEMS, BLOCK>;
  constexpr int PASSES = sizeof(T);
  extern __shared__ uint4 dynamic_shared[];
  Tile &tile = *reinterpret_cast<Tile *>(dynamic_shared);
  kw::wait_for_launch_before();
  if (threadIdx.x == 0) {
    tile.number = atomicAdd(ticket, 1u);
    if (tile.number == gridDim.x - 1) *ticket = 0;
  }
  __syncthreads();
  const long long row = tile.number / tiles;
  const unsigned number = tile.number % tiles;
  const long long first = (long long)number * Tile::SIZE;
  const unsigned count = min((long long)Tile::SIZE, n - first);

  kw::bits_t<T> own[ITEMS];
  unsigned ranks[ITEMS];
  tile.load(keys + row * stride + first, count, pass, descending, own, ranks);
  const kw::Chain<Word> chain(words + row * tiles * kw::kDigits, number, pass);
  const unsigned total = tile.total();
  if (threadIdx.x < kw::kDigits) chain.publish_own(total);
  const unsigned start = tile.rank(total, ranks);
  kw::let_next_launch_start();
  tile.exchange(places ? places + row * n + first : nullptr, first, count, own, ranks);
  if (threadIdx.x < kw::kDigits) {
    const unsigned before = counts[(row * PASSES + pass) * kw::kDigits + threadIdx.x];
    tile.bases[threadIdx.x] = before + unsigned(chain.before(total)) - start;
  }
  __syncthreads();
  tile.write(keys_out ? keys_out + row * n : nullptr, places_out ? places_out + row * n : nullptr,
             indices ? indices + row * n : nullptr, count, pass, descending);
}
