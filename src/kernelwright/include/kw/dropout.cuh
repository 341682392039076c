// Dropout of 16 bytes of neighbours at a time: a piece, so that a warp's accesses lie side by side.
// Eight neighbours in row-major order, from a multiple of eight on, are an octet: their random
// words come from one Philox counter, and their mask is one byte. In 16-bit dtypes a piece is an
// octet; in float32 it is half of one, and two lanes draw the same words.
#pragma once
#include "kw/map.cuh"
#include "kw/math.cuh"
#include "kw/philox.cuh"

namespace kw {

// Where dropout's factors come from: nowhere (all are 1), a seed, or the bits of a stored mask.
enum class Draw { kNone, kSeed, kMask };

constexpr int kOctet = 8;

// Piece k of a tensor is its elements N k ... N k + N - 1, N = kVecWidth<T>: 16 bytes.
template <typename T> using Piece = Vec<T, kVecWidth<T>>;

// For element i of an octet word i / 2 of philox(seed, octet); where i is odd, with its halves
// exchanged. An odd piece of four takes the last two words.
template <int N>
__device__ __forceinline__ void piece_words(unsigned long long seed, unsigned long long piece,
                                            unsigned (&words)[N]) {
  const uint4 c = philox(seed, piece / (kOctet / N));
  const unsigned drawn[kOctet / 2] = {c.x, c.y, c.z, c.w};
  const bool odd = piece % (kOctet / N);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const unsigned word = odd ? drawn[(kOctet - N + i) / 2] : drawn[i / 2];
    words[i] = i % 2 ? word << 16 | word >> 16 : word;
  }
}

// Bit i of the result: element i of the piece is kept.
template <int N>
__device__ __forceinline__ unsigned piece_bits(const unsigned char *mask,
                                               unsigned long long piece) {
  constexpr int kPieces = kOctet / N;
  return mask[piece / kPieces] >> piece % kPieces * N & ((1u << N) - 1);
}

// Stores a piece's bits. Of two lanes that share a byte, 2 k and 2 k + 1 who come together, the
// first stores it. The last byte's thread clears those that fill its word up and stand for nothing.
template <int N, typename I>
__device__ __forceinline__ void keep_bits(unsigned char *mask, I piece, I pieces, unsigned bits) {
  constexpr int kPieces = kOctet / N;
  if constexpr (kPieces == 2) {
    bits |= __shfl_xor_sync(3u << (threadIdx.x & 30), bits, 1) << N;
    if (piece % 2) return;
  }
  mask[piece / kPieces] = bits;
  if (piece + kPieces == pieces)
    for (I rest = pieces / kPieces; rest % 4; ++rest) mask[rest] = 0;
}

// The words of a stored mask down a column of pieces, `across` in a row: 32 elements each.
template <Draw DRAW, int N> struct MaskWords {
  static constexpr bool kAny = DRAW == Draw::kMask;
  static constexpr unsigned kPieces = 32 / N;
  const unsigned char *mask;
  unsigned across, piece;

  __device__ __forceinline__ const unsigned *at(unsigned row) const {
    return reinterpret_cast<const unsigned *>(mask) + (row * across + piece) / kPieces;
  }
  // Of the row's piece: bit i, element i is kept.
  __device__ __forceinline__ unsigned bits(unsigned row, unsigned word) const {
    return word >> (row * across + piece) % kPieces * N & ((1u << N) - 1);
  }
};

// What one call's dropout is: `p` in float64, since 1 - p would lose its digits near 1.
template <Draw DRAW, int N> struct Dropout {
  unsigned long long seed = 0;
  unsigned threshold = 0;
  float scale = 1.0f;
  const unsigned char *mask = nullptr;

  __device__ __forceinline__ Dropout(const long long *seed_, const unsigned char *mask_, double p) {
    if constexpr (DRAW == Draw::kNone) return;
    scale = 1.0f / static_cast<float>(1.0 - p);
    if constexpr (DRAW == Draw::kMask) {
      mask = mask_;
    } else {
      seed = static_cast<unsigned long long>(*seed_);
      threshold = static_cast<unsigned>(ceil(p * 16777216.0));
    }
  }

  // Bit i: element i of the piece is kept. A word's upper 24 bits are compared, as integers.
  __device__ __forceinline__ unsigned bits(long long piece) const {
    if constexpr (DRAW == Draw::kNone) return (1u << N) - 1;
    if constexpr (DRAW == Draw::kMask) return piece_bits<N>(mask, piece);
    unsigned words[N], kept = 0;
    piece_words(seed, piece, words);
#pragma unroll
    for (int i = 0; i < N; ++i) kept |= (words[i] >> 8 >= threshold ? 1u : 0u) << i;
    return kept;
  }

  // What element i is multiplied with: times 0, not replaced by 0, so that a NaN stays one.
  __device__ __forceinline__ float factor(unsigned bits, int i) const {
    if constexpr (DRAW == Draw::kNone) return 1.0f;
    return bits >> i & 1 ? scale : 0.0f;
  }
};

// What a piece's elements are multiplied with: `Dropout::factor` of `Dropout::bits`, without the
// bits. Where all are dropped no word may be kept: `threshold` has 25 bits then, of which a word
// compares 24, and every factor is 0.
template <Draw DRAW, int N> struct Factors {
  unsigned long long seed;
  unsigned threshold;
  float scale;

  __device__ __forceinline__ Factors(const Dropout<DRAW, N> &dropout)
      : seed(dropout.seed),
        threshold(dropout.threshold << 8),
        scale(dropout.threshold >> 24 ? 0.0f : dropout.scale) {}

  __device__ __forceinline__ void get(long long piece, float (&factor)[N]) const {
    if constexpr (DRAW == Draw::kNone) {
#pragma unroll
      for (float &f : factor) f = 1.0f;
    } else {
      unsigned words[N];
      piece_words(seed, piece, words);
#pragma unroll
      for (int i = 0; i < N; ++i) factor[i] = words[i] >= threshold ? scale : 0.0f;
    }
  }
};

// Factors for a thread of many pieces, fewer than 2^32 in all: the seed is in registers of the
// warp, all of whose threads make this together. A bit says what is kept, for those who store it.
template <Draw DRAW, int N> struct WarpFactors {
  unsigned long long seed = 0;
  unsigned threshold = 0;
  float scale = 1.0f;
  const unsigned char *mask = nullptr;

  // That every factor is 0 where all are dropped, says a product: a choice would be made again for
  // each word.
  __device__ __forceinline__ WarpFactors(const long long *seed_, const unsigned char *mask_,
                                         double p) {
    if constexpr (DRAW == Draw::kNone) return;
    const unsigned dropped = static_cast<unsigned>(ceil(p * 16777216.0));
    const float kept = fmaxf(static_cast<float>(1.0 - p), 0x1p-24f);
    scale = normal_reciprocal(kept) * static_cast<float>(1 - (dropped >> 24));
    threshold = dropped << 8, mask = mask_;
    if constexpr (DRAW == Draw::kSeed) seed = uniform(static_cast<unsigned long long>(*seed_));
  }

  __device__ __forceinline__ unsigned get(unsigned piece, float (&factor)[N]) const {
    unsigned bits = 0;
    if constexpr (DRAW == Draw::kMask) bits = piece_bits<N>(mask, piece);
    return get(piece, bits, factor);
  }
  // `bits`: what a mask holds of the piece.
  __device__ __forceinline__ unsigned get(unsigned piece, unsigned bits, float (&factor)[N]) const {
    unsigned words[N];
    if constexpr (DRAW == Draw::kSeed) piece_words(seed, piece, words);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool kept =
          DRAW == Draw::kNone || (DRAW == Draw::kSeed ? words[i] >= threshold : bits >> i & 1);
      factor[i] = kept ? scale : 0.0f;
      bits |= unsigned(kept) << i;
    }
    return scale == 0.0f ? 0 : bits;
  }

  // x of a piece becomes 0 x where dropped, for callers that multiply with `scale` themselves:
  // some lanes skip a multiplication, where `get` chooses a factor and all multiply with it.
  __device__ __forceinline__ void drop(unsigned piece, float (&x)[N]) const {
    static_assert(DRAW != Draw::kMask, "a mask is read by get");
    if constexpr (DRAW == Draw::kSeed) {
      unsigned words[N];
      piece_words(seed, piece, words);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (words[i] < threshold) x[i] *= 0.0f;
    }
  }
};

}  // namespace kw
