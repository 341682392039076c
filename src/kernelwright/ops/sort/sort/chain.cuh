// What lies before a tile, digit by digit, when each tile is a block of one launch: decoupled
// look-back (<kw/look_back.cuh>) of kDigits counts, one for each of a block's first threads.
//
// A word has its flag in its two upper bits: fresh, the tile's own count, or the count of all tiles
// up to it. At the end of a pass all words have the last flag, which is the next pass's fresh one:
// they are cleared once for all passes.
#pragma once
#include "tile.cuh"

namespace kw {

template <typename Word> struct Chain {
  static constexpr int SHIFT = 8 * sizeof(Word) - 2, AHEAD = 4;
  volatile Word *words;  // of the row's first tile, and of this thread's digit
  unsigned tile, fresh;

  __device__ __forceinline__ Chain(Word *of_row, unsigned tile, int pass)
      : words(of_row + threadIdx.x), tile(tile), fresh(pass % 2 * 2) {}

  __device__ __forceinline__ volatile Word &at(long long tile) const {
    return words[tile * kDigits];
  }
  __device__ __forceinline__ void publish(unsigned flag, Word count) const {
    at(tile) = Word(flag & 3) << SHIFT | count;
  }

  // As early as the tile's count is known. The first tile's is also that of all up to it.
  __device__ __forceinline__ void publish_own(Word count) const {
    publish(tile ? fresh + 1 : fresh + 2, count);
  }

  // The count of all tiles before this one; AHEAD reads are on their way together.
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
        if (seen[k] >> SHIFT == (fresh + 2) % 4) {  // the first tile has it at the latest
          publish(fresh + 2, sum + count);
          return sum;
        }
      }
    }
    return sum;
  }
};

}  // namespace kw
