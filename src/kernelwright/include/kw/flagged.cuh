// Values that carry their own flag from block to block: no counter, no fence. 8 aligned bytes are
// written and read whole, so who sees the flag in a word has the 32 bits beside it.
#pragma once

namespace kw {

using Flagged = unsigned long long;
constexpr Flagged kFlag = Flagged(1) << 32;

__device__ __forceinline__ void publish(volatile Flagged *at, float x) {
  at[0] = kFlag | __float_as_uint(x);
}
__device__ __forceinline__ void publish(volatile Flagged *at, double x) {
  at[0] = kFlag | unsigned(__double2loint(x));
  at[1] = kFlag | unsigned(__double2hiint(x));
}

// Waits for a word and sets it back to zero for the next launch.
__device__ __forceinline__ unsigned take_word(volatile Flagged *at) {
  Flagged word;
  do word = *at;
  while (word < kFlag);
  *at = 0;
  return unsigned(word);
}
// N words, `apart` from each other, all of them looked at together.
template <int N>
__device__ __forceinline__ void take_all(volatile Flagged *at, int apart, float (&x)[N]) {
  Flagged words[N];
  bool there;
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = at[i * apart];
#pragma unroll
    for (int i = 0; i < N; ++i) there &= words[i] >= kFlag;
  } while (!there);
#pragma unroll
  for (int i = 0; i < N; ++i) at[i * apart] = 0, x[i] = __uint_as_float(unsigned(words[i]));
}
template <typename A> __device__ __forceinline__ A take(volatile Flagged *at) {
  if constexpr (sizeof(A) == 4)
    return __uint_as_float(take_word(at));
  else
    return __hiloint2double(int(take_word(at + 1)), int(take_word(at)));
}

}  // namespace kw
