// Parameters of columns that start off a 16-byte boundary, for rows moved through superset.cuh.
#pragma once
#include "kw/superset.cuh"
#include "../norm.cuh"

namespace kw {

// Moves the words of `words` down by `elements` elements of SIZE bytes, 0 to 16 / SIZE - 1 of them.
template <int SIZE, int WORDS>
__device__ __forceinline__ void shift_down(unsigned (&words)[WORDS], int elements) {
  const int by_words = elements * SIZE / 4;
#pragma unroll
  for (int step = 2; step > 0; step /= 2)
    if (by_words & step)
#pragma unroll
      for (int i = 0; i + step < WORDS; i++) words[i] = words[i + step];
  if constexpr (SIZE == 2)
    if (elements & 1)
#pragma unroll
      for (int i = 0; i + 1 < WORDS; i++) words[i] = words[i] >> 16 | words[i + 1] << 16;
}

// The parameters of the N columns from `col` on, as floats with `offset` added; `other` if the
// parameter is missing. The aligned vectors around them are loaded and shifted, by the same
// distance in all threads of a row. `p` starts on a 16-byte boundary; nothing is loaded for columns
// outside the row.
template <int N, typename W>
__device__ __forceinline__ void load_shifted(const W *p, bool given, float offset, float other,
                                             int col, int n_cols, float (&out)[N]) {
  constexpr int kPiece = kVecWidth<W>, kPieces = N / kPiece + 1;
#pragma unroll
  for (int i = 0; i < N; i++) out[i] = other;
  if (!given) return;
  const int by = col & (kPiece - 1), start = col - by;
  Vec<W, kPiece> pieces[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; i++) {
    const int at = start + i * kPiece;
    const bool wanted = at >= 0 && (by > 0 || i + 1 < kPieces);
    pieces[i] = load_or<W, kPiece>(p + at, wanted && at <= n_cols - kPiece, 0.0f);
    if (wanted && at < n_cols && at > n_cols - kPiece) {
#pragma unroll
      for (int k = 0; k < kPiece; k++)
        if (at + k < n_cols) pieces[i][k] = p[at + k];
    }
  }
  unsigned words[4 * kPieces];
  memcpy(words, pieces, sizeof(words));
  shift_down<sizeof(W)>(words, by);
  memcpy(pieces, words, sizeof(words));
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    float f[kPiece];
    to_float(pieces[i / kPiece], f);
#pragma unroll
    for (int k = 0; k < kPiece; k++) out[i + k] = f[k] + offset;
  }
}

}  // namespace kw
