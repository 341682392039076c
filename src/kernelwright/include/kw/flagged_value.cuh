// Values that one block passes to another together with a ready flag, without a counter or a fence.
// An aligned 8-byte access is not split, so a block that reads the flag of a word also has its
// 32-bit value.
#pragma once

namespace kw {

using FlaggedValue = unsigned long long;
constexpr FlaggedValue kFlag = FlaggedValue(1) << 32;

__device__ __forceinline__ void publish(volatile FlaggedValue *at, float x) {
  at[0] = kFlag | __float_as_uint(x);
}
__device__ __forceinline__ void publish(volatile FlaggedValue *at, double x) {
  at[0] = kFlag | unsigned(__double2loint(x));
  at[1] = kFlag | unsigned(__double2hiint(x));
}

// Waits until a word is ready, returns its value and resets it to zero for the next launch.
__device__ __forceinline__ unsigned take_word(volatile FlaggedValue *at) {
  FlaggedValue word;
  do word = *at;
  while (word < kFlag);
  *at = 0;
  return unsigned(word);
}
// Waits for N words that are `apart` words from each other, polling all of them together.
template <int N>
__device__ __forceinline__ void take_all(volatile FlaggedValue *at, int apart, float (&x)[N]) {
  FlaggedValue words[N];
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
template <typename A> __device__ __forceinline__ A take(volatile FlaggedValue *at) {
  if constexpr (sizeof(A) == 4)
    return __uint_as_float(take_word(at));
  else
    return __hiloint2double(int(take_word(at + 1)), int(take_word(at)));
}

}  // namespace kw
