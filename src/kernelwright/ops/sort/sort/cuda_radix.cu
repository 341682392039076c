// Three launches per digit, the lowest first: count, scan, scatter.
//
// Idea: stable sorts by each digit, from the lowest to the highest, sort the whole keys. A block
// processes a part of a row, tile by tile. radix_count counts its digits; one block per row scans
// the counts, by digit and then by part, which gives the position of each part's first element of
// each digit; radix_scatter ranks each tile in shared memory and writes elements with equal digits
// contiguously.
// Traffic: in each pass keys read twice, positions once, both written once.
// Compared with `cuda_bitonic`: rows of any length, and as many passes as an element has bytes.
// Limit: the second read of the keys, and three dependent launches.
#include "tile.cuh"

// counts[row][digit][part]
template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    radix_count(const kw::bits_t<T> *keys, unsigned *counts, long long n, unsigned parts,
                long long length, long long stride, int pass, int descending) {
  __shared__ unsigned seen[kw::kDigits];
  const long long row = blockIdx.x / parts, part = blockIdx.x % parts;
  keys += row * stride;
  if (threadIdx.x < kw::kDigits) seen[threadIdx.x] = 0;
  __syncthreads();
  const long long last = min(n, (part + 1) * length);
  for (long long i = part * length + threadIdx.x; i < last; i += BLOCK)
    atomicAdd(&seen[kw::digit_of<T>(keys[i], pass, descending)], 1u);
  __syncthreads();
  if (threadIdx.x < kw::kDigits)
    counts[(row * kw::kDigits + threadIdx.x) * parts + part] = seen[threadIdx.x];
}

// In place: the sum of the counts before each of a row's counts.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) radix_scan(unsigned *counts, long long many) {
  using Op = kw::Adding<unsigned>;
  __shared__ unsigned of_warps[BLOCK / 32];
  counts += blockIdx.x * many;
  unsigned carried = 0;
  for (long long i = threadIdx.x; i - threadIdx.x < many; i += BLOCK) {
    const unsigned own = i < many ? counts[i] : 0, inclusive = kw::warp_scan<Op>(own);
    unsigned total;
    const unsigned before =
        kw::before_warp<Op, BLOCK / 32>(kw::shuffle(inclusive, 31), of_warps, total);
    if (i < many) counts[i] = carried + before + inclusive - own;
    carried += total;
    __syncthreads();
  }
}

// Without `places`, positions are generated; the last pass writes `indices`.
template <typename T, bool PAIRS, bool MATCH, int ITEMS, int BLOCK, int RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    radix_scatter(const kw::bits_t<T> *keys, const unsigned *places, kw::bits_t<T> *keys_out,
                  unsigned *places_out, long long *indices, const unsigned *counts, long long n,
                  unsigned parts, long long length, long long stride, int pass, int descending) {
  using Tile = kw::Tile<T, PAIRS, MATCH, ITEMS, BLOCK>;
  extern __shared__ uint4 dynamic_shared[];
  Tile &tile = *reinterpret_cast<Tile *>(dynamic_shared);
  const long long row = blockIdx.x / parts, part = blockIdx.x % parts;
  unsigned base = 0;  // the position of the next element of digit threadIdx.x
  if (threadIdx.x < kw::kDigits) base = counts[(row * kw::kDigits + threadIdx.x) * parts + part];
  const long long last = min(n, (part + 1) * length);
  for (long long first = part * length; first < last; first += Tile::SIZE) {
    const unsigned count = min((long long)Tile::SIZE, last - first);
    kw::bits_t<T> own[ITEMS];
    unsigned ranks[ITEMS];
    tile.template load<false>(keys + row * stride + first, count, pass, descending, own, ranks);
    const unsigned total = tile.total(), start = tile.rank(total, ranks);
    tile.template exchange<false>(places ? places + row * n + first : nullptr, first, count, own,
                                  ranks);
    if (threadIdx.x < kw::kDigits) tile.bases[threadIdx.x] = base - start, base += total;
    __syncthreads();
    tile.template write<false>(keys_out + row * n, places_out ? places_out + row * n : nullptr,
                               indices ? indices + row * n : nullptr, count, pass, descending);
    __syncthreads();
  }
}
