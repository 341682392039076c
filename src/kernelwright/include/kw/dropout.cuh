// Dropout in pieces of 16 bytes of adjacent elements, so that the accesses of a warp are
// contiguous. Eight elements that follow each other in row-major order, from a multiple of eight
// on, are an octet: their random words come from one Philox counter, and their mask is one byte. In
// 16-bit dtypes a piece is an octet; in float32 it is half an octet, and two lanes generate the
// same words.
#pragma once
#include "kw/map.cuh"
#include "kw/math.cuh"
#include "kw/philox.cuh"

namespace kw {

// The source of dropout's factors: none (all are 1), a seed, or the bits of a stored mask.
enum class Draw { kNone, kSeed, kMask };

constexpr int kOctet = 8;

// Piece k of a tensor consists of elements N k to N k + N - 1, N = kVecWidth<T>: 16 bytes.
template <typename T> using Piece = Vec<T, kVecWidth<T>>;

// The random words of a piece. Element i of an octet uses word i / 2 of philox(seed, octet); for
// odd i the two halves of the word are exchanged. An odd piece of four elements uses the last two
// words.
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

// Stores the bits of a piece. If two lanes share a byte, they are lanes 2 k and 2 k + 1, both
// active, and the first one stores it. The thread of the last byte also clears the unused bytes of
// its 32-bit word.
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

// The words of a stored mask for a column of pieces; a row has `across` words of 32 elements.
template <Draw DRAW, int N> struct MaskWords {
  static constexpr bool kAny = DRAW == Draw::kMask;
  static constexpr unsigned kPieces = 32 / N;
  const unsigned char *mask;
  unsigned across, piece;

  __device__ __forceinline__ const unsigned *at(unsigned row) const {
    return reinterpret_cast<const unsigned *>(mask) + (row * across + piece) / kPieces;
  }
  // The bits of the piece in row `row`: bit i is set if element i is kept.
  __device__ __forceinline__ unsigned bits(unsigned row, unsigned word) const {
    return word >> (row * across + piece) % kPieces * N & ((1u << N) - 1);
  }
};

// The dropout parameters of one call. `p` is float64, since 1 - p would lose precision near p = 1.
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

  // Bit i is set if element i of the piece is kept. The upper 24 bits of a word are compared as
  // integers.
  __device__ __forceinline__ unsigned bits(long long piece) const {
    if constexpr (DRAW == Draw::kNone) return (1u << N) - 1;
    if constexpr (DRAW == Draw::kMask) return piece_bits<N>(mask, piece);
    unsigned words[N], kept = 0;
    piece_words(seed, piece, words);
#pragma unroll
    for (int i = 0; i < N; ++i) kept |= (words[i] >> 8 >= threshold ? 1u : 0u) << i;
    return kept;
  }

  // The factor of element i. A dropped element is multiplied by 0 and not set to 0, so that NaN
  // remains NaN.
  __device__ __forceinline__ float factor(unsigned bits, int i) const {
    if constexpr (DRAW == Draw::kNone) return 1.0f;
    return bits >> i & 1 ? scale : 0.0f;
  }
};

// The factors of a piece's elements: `Dropout::factor` of `Dropout::bits`, without computing the
// bits. If all elements are dropped, `threshold` needs 25 bits, of which the comparison with a word
// uses 24 and might keep elements; therefore all factors are 0 in this case.
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

// Factors for a thread that processes many pieces, fewer than 2^32 in total. The seed is held in
// uniform registers, so all threads of a warp must construct this object together. `get` also
// returns the bits of the kept elements for callers that store them.
template <Draw DRAW, int N> struct WarpFactors {
  unsigned long long seed = 0;
  unsigned threshold = 0;
  float scale = 1.0f;
  const unsigned char *mask = nullptr;

  // A product makes every factor 0 if all elements are dropped: the compiler would evaluate a
  // conditional expression again for each word.
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
  // `bits`: the piece's bits from the stored mask.
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

  // Multiplies the dropped elements of a piece by 0, for callers that multiply by `scale`
  // themselves. Only lanes that drop an element execute this multiplication, whereas with `get`
  // every lane selects a factor and multiplies by it.
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
