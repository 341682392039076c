// The counts of all tiles before a tile, for each digit, where each tile is one block of a launch:
// decoupled look-back (<kw/look_back.cuh>) on kDigits counts, one for each of a block's first
// threads.
//
// The two upper bits of a word are a flag: fresh, the tile's own count, or the count of all tiles
// up to it. At the end of a pass all words have the last flag, which is "fresh" in the next pass,
// so that they are cleared only once for all passes.
#pragma once
#include "tile.cuh"

namespace kw {

template <typename Word> struct Chain {
  static constexpr int SHIFT = 8 * sizeof(Word) - 2, AHEAD = 4;
  volatile Word *words;  // of the row's first tile, for this thread's digit
  unsigned tile, fresh;

  __device__ __forceinline__ Chain(Word *of_row, unsigned tile, int pass)
      : words(of_row + threadIdx.x), tile(tile), fresh(pass % 2 * 2) {}

  __device__ __forceinline__ volatile Word &at(long long tile) const {
    return words[tile * kDigits];
  }
  __device__ __forceinline__ void publish(unsigned flag, Word count) const {
    at(tile) = Word(flag & 3) << SHIFT | count;
  }

  // Called as soon as the tile's count is known. For the first tile it is also the count up to it.
  __device__ __forceinline__ void publish_own(Word count) const {
    publish(tile ? fresh + 1 : fresh + 2, count);
  }

  // The count of all tiles before this one; AHEAD reads are in flight together.
  __device__ __forceinline__ Word before(Word count) const {
    Word sum = 0;
    for (long long last = (long long)tile - 1; last >= 0; last -= AHEAD) {
      Word seen[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k)
        if (last >= k) seen[k] = at(last - k);
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        while (seen[k] >> SHIFT == fresh) seen[k] = at(last - k);
        sum += seen[k] & ((Word(1) << SHIFT) - 1);
        if (seen[k] >> SHIFT == (fresh + 2) % 4) {  // reached at the first tile at the latest
          publish(fresh + 2, sum + count);
          return sum;
        }
      }
    }
    return sum;
  }
};

}  // namespace kw
