// A tile of a row in a block: its elements are sorted by one digit, stably, in shared memory, and
// written from there digit by digit, contiguously.
#pragma once
#include <kw/scan.cuh>

#include "order.cuh"

namespace kw {

constexpr int kDigits = 256;  // values of a digit; one thread for each

template <typename T>
__device__ __forceinline__ unsigned digit_of(bits_t<T> x, int pass, bool descending) {
  const unsigned digit = unsigned(order_of<T>(x) >> (8 * pass)) & (kDigits - 1);
  return digit ^ (descending ? kDigits - 1 : 0);
}

// The lanes whose bit equals this lane's: in PTX, because the compiler would test the bit twice.
__device__ __forceinline__ unsigned lanes_of_bit(unsigned digit, unsigned bit) {
  unsigned lanes;
#ifdef __CUDA_ARCH__
  asm volatile(
      "{\n"
      ".reg .pred set;\n"
      "and.b32 %0, %1, %2;\n"
      "setp.ne.u32 set, %0, 0;\n"
      "vote.sync.ballot.b32 %0, set, 0xffffffff;\n"
      "@!set not.b32 %0, %0;\n"
      "}"
      : "=r"(lanes)
      : "r"(digit), "r"(bit));
#else
  lanes = __ballot_sync(0xffffffffu, digit & bit);
  if (!(digit & bit)) lanes = ~lanes;
#endif
  return lanes;
}

// The lanes with the same digit: by one instruction, or by one vote per bit.
template <bool MATCH> __device__ __forceinline__ unsigned peers_of(unsigned digit) {
  if constexpr (MATCH) {
    return __match_any_sync(0xffffffffu, digit);
  } else {
    unsigned peers = lanes_of_bit(digit, 1);
#pragma unroll
    for (unsigned bit = 2; bit < kDigits; bit *= 2) peers &= lanes_of_bit(digit, bit);
    return peers;
  }
}

// Stored in dynamic shared memory. PAIRS: a key is moved together with its position. A warp has 32
// * ITEMS consecutive elements, of which a thread has every 32nd.
template <typename T, bool PAIRS, bool MATCH, int ITEMS, int BLOCK> struct Tile {
  using U = bits_t<T>;
  static constexpr int WARPS = BLOCK / 32, EACH = ITEMS, SIZE = ITEMS * BLOCK;
  static constexpr bool WITH_PLACES = PAIRS;
  static_assert(BLOCK >= kDigits && SIZE < 65536, "a thread for each digit; ranks of 16 bits");
  struct Elements {
    U keys[SIZE];
    unsigned places[PAIRS ? SIZE : 1];
  };
  unsigned bases[kDigits];  // a digit's position in the row minus its position in the tile
  unsigned of_warps[WARPS];
  unsigned number;
  union {
    unsigned counts[WARPS][kDigits];
    Elements sorted;
  };

  // The position of a thread's i-th element in the tile.
  static __device__ __forceinline__ unsigned place(int i) {
    return threadIdx.x / 32 * (32 * ITEMS) + i * 32 + threadIdx.x % 32;
  }

  // Loads the positions of `count` elements to L2 while their keys are ranked.
  static __device__ __forceinline__ void prefetch(const unsigned *places, unsigned count) {
    static_assert(ITEMS <= 32, "a line of 32 places for each thread");
#ifdef __CUDA_ARCH__
    if (places && threadIdx.x * 32 < count)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(places + threadIdx.x * 32));
#endif
  }

  // Element i is number ranks[i] & 65535 among the elements of its warp with its digit, ranks[i] >>
  // 16. Positions past the end of a row get the last digit and come after all others. FULL: there
  // are none.
  template <bool FULL>
  __device__ __forceinline__ void load(const U *from, unsigned count, int pass, bool descending,
                                       U (&keys)[ITEMS], unsigned (&ranks)[ITEMS]) {
    unsigned *own = counts[threadIdx.x / 32];
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (FULL || place(i) < count) keys[i] = from[place(i)];
#pragma unroll
    for (int d = 0; d < kDigits; d += 32) own[d + lane] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      unsigned digit = kDigits - 1;
      if (FULL || place(i) < count) digit = digit_of<T>(keys[i], pass, descending);
      const unsigned peers = peers_of<MATCH>(digit);
      const unsigned lower = __popc(peers & ((1u << lane) - 1)), before = own[digit];
      __syncwarp();
      if (lower == 0) own[digit] = before + __popc(peers);
      __syncwarp();
      ranks[i] = digit << 16 | (before + lower);
    }
    __syncthreads();
  }

  // The number of elements with digit threadIdx.x.
  __device__ __forceinline__ unsigned total() const {
    unsigned sum = 0;
    if (threadIdx.x < kDigits)
#pragma unroll
      for (int w = 0; w < WARPS; ++w) sum += counts[w][threadIdx.x];
    return sum;
  }

  // Converts ranks to positions in the sorted tile; returns the first position of digit
  // threadIdx.x.
  __device__ __forceinline__ unsigned rank(unsigned total, unsigned (&ranks)[ITEMS]) {
    const unsigned inclusive = warp_scan<Adding<unsigned>>(total);
    unsigned all;
    const unsigned start =
        before_warp<Adding<unsigned>, WARPS>(shuffle(inclusive, 31), of_warps, all) + inclusive -
        total;
    if (threadIdx.x < kDigits) {
      unsigned next = start;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const unsigned own = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = next;
        next += own;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      ranks[i] = counts[threadIdx.x / 32][ranks[i] >> 16] + (ranks[i] & 65535);
    __syncthreads();  // counts have been read: elements overwrite them
    return start;
  }

  // Writes elements to their positions in the tile. Without `places`, positions count from `first`.
  template <bool FULL>
  __device__ __forceinline__ void exchange(const unsigned *places, unsigned first, unsigned count,
                                           const U (&keys)[ITEMS], const unsigned (&ranks)[ITEMS]) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (FULL || place(i) < count) sorted.keys[ranks[i]] = keys[i];
    if constexpr (PAIRS) {
      unsigned found[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) found[i] = first + place(i);
      if (places)
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
          if (FULL || place(i) < count) found[i] = places[place(i)];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
        if (FULL || place(i) < count) sorted.places[ranks[i]] = found[i];
    }
  }

  // Writes to a row, at the base of each element's digit; in the last pass to `indices` instead of
  // `places`, and the keys may be omitted.
  template <bool FULL>
  __device__ __forceinline__ void write(U *keys, unsigned *places, long long *indices,
                                        unsigned count, int pass, bool descending) const {
    unsigned to[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const unsigned at = i * BLOCK + threadIdx.x;
      if (FULL || at < count) {
        const U key = sorted.keys[at];
        to[i] = bases[digit_of<T>(key, pass, descending)] + at;
        if (!PAIRS || keys) keys[to[i]] = key;
      }
    }
    if constexpr (PAIRS) {
      if (indices)
        write_places<FULL>(indices, count, to);
      else
        write_places<FULL>(places, count, to);
    }
  }

 private:
  template <bool FULL, typename P>
  __device__ __forceinline__ void write_places(P *places, unsigned count,
                                               const unsigned (&to)[ITEMS]) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const unsigned at = i * BLOCK + threadIdx.x;
      if (FULL || at < count) places[to[i]] = sorted.places[at];
    }
  }
};

}  // namespace kw
