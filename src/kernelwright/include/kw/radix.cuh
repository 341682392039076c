// Order-preserving conversion of numbers to unsigned integers, and radix selection of such keys.
#pragma once
#include "kw/types.cuh"

namespace kw {

// The order of PyTorch's sort: -0.0 equals 0.0; all NaNs are equal and greater than any number.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  if (bits == 0x80000000u) return 0x80000000u;
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
// The float that corresponds to an ordered integer.
__device__ __forceinline__ float from_ordered(unsigned x) {
  return __uint_as_float(x ^ (x >> 31 ? 0x80000000u : 0xffffffffu));
}
__device__ __forceinline__ unsigned ordered(__half x) { return ordered(to_float(x)); }
__device__ __forceinline__ unsigned ordered(__nv_bfloat16 x) { return ordered(to_float(x)); }

// The key of an element in a row: its ordered value, then its index. Every key occurs once. Keys
// are selected from the largest down; of equal values the first in the row has the largest key. No
// element has key 0.
using Key = unsigned long long;
__device__ __forceinline__ Key key_of(unsigned ordered, unsigned index) {
  return Key(ordered) << 32 | (0xffffffffu - index);
}
__device__ __forceinline__ unsigned index_of(Key key) { return 0xffffffffu - unsigned(key); }

// Called by one warp: returns the digit (0 to 255) of the `left`-th largest key, given how often
// each digit occurs; `left` becomes the rank of that key among the keys with this digit.
__device__ __forceinline__ int find_digit(const unsigned *counts, unsigned &left) {
  const int lane = threadIdx.x % 32;
  unsigned mine = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) mine += counts[255 - (lane * 8 + i)];
  unsigned sum = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const unsigned before = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += before;
  }
  const unsigned reached = __ballot_sync(0xffffffffu, sum >= left);
  const int at = __ffs(int(reached)) - 1;
  int digit = 0;
  unsigned rest = left - (sum - mine);
  if (lane == at) {
    digit = 255 - lane * 8;
    while (counts[digit] < rest) rest -= counts[digit--];
  }
  left = __shfl_sync(0xffffffffu, rest, at);
  return __shfl_sync(0xffffffffu, digit, at);
}

// Collects in shared memory the largest of the keys that a block offers. There is room for ROOM
// keys; when it is full, at most the `wanted` largest are kept.
template <int BLOCK, int ROOM> struct Largest {
  Key keys[ROOM];
  unsigned counts[256];
  unsigned count, valid;  // positions given out; positions filled, if some keys were refused
  unsigned digit, left;
  Key limit;  // keys up to this value are not among the largest

  __device__ __forceinline__ void open() {
    if (threadIdx.x == 0) count = 0, valid = ROOM, limit = 0;
    __syncthreads();
  }

  // Sets a first limit from one key per thread: the `wanted`-th largest of these is a lower bound
  // for the `wanted`-th largest of all keys. It needs at least `wanted` threads.
  __device__ __forceinline__ void set_limit(Key largest, unsigned wanted) {
    keys[threadIdx.x] = largest;
    __syncthreads();
    const Key least = select(BLOCK, wanted);
    if (threadIdx.x == 0) limit = least ? least - 1 : 0;
    __syncthreads();
  }

  // Offers the keys `make(i)`, i < N, whose bit in `offered` is set. All threads must call it.
  template <int N, typename Make>
  __device__ __forceinline__ void offer(unsigned offered, unsigned wanted, const Make &make) {
    static_assert(N <= 32, "a bit for each");
    unsigned pending = above<N>(offered, make);
    for (;;) {
      if (pending) {
        const unsigned many = __popc(pending), at = atomicAdd(&count, many);
        if (at + many <= ROOM) {
          unsigned to = at;
#pragma unroll
          for (int i = 0; i < N; ++i)
            if (pending >> i & 1) keys[to++] = make(i);
          pending = 0;
        } else {
          atomicMin(&valid, at);
        }
      }
      if (!__syncthreads_or(pending)) return;
      keep(min(valid, unsigned(ROOM)), wanted);
      pending = above<N>(pending, make);
    }
  }

  // Keeps the `wanted` largest of the first `many` keys.
  __device__ __forceinline__ void keep(unsigned many, unsigned wanted) {
    const Key least = many > wanted ? select(many, wanted) : 1;
    __syncthreads();
    if (threadIdx.x == 0) count = 0, valid = ROOM, limit = least - 1;
    for (unsigned first = 0; first < many; first += BLOCK) {
      const unsigned at = first + threadIdx.x;
      const Key mine = at < many ? keys[at] : 0;
      __syncthreads();  // the positions that are overwritten next have been read
      if (mine >= least) keys[atomicAdd(&count, 1u)] = mine;
    }
    __syncthreads();
  }

  // Called after the last offer: stores the `wanted` largest keys in descending order, followed by
  // zeros up to SIZE, a power of two.
  template <int SIZE> __device__ __forceinline__ void close(unsigned wanted) {
    __syncthreads();
    keep(min(count, valid), wanted);
    for (unsigned i = count + threadIdx.x; i < SIZE; i += BLOCK) keys[i] = 0;
    for (int width = 2; width <= SIZE; width *= 2)  // bitonic: no two threads share a key
      for (int step = width / 2; step > 0; step /= 2) {
        __syncthreads();
        for (int i = threadIdx.x; i < SIZE / 2; i += BLOCK) {
          const int low = i / step * 2 * step + i % step, high = low + step;
          const Key a = keys[low], b = keys[high];
          if ((low & width) ? a > b : a < b) keys[low] = b, keys[high] = a;
        }
      }
    __syncthreads();
  }

 private:
  template <int N, typename Make>
  __device__ __forceinline__ unsigned above(unsigned offered, const Make &make) const {
    unsigned found = 0;
    if (offered == 0) return 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (offered >> i & 1 && make(i) > limit) found |= 1u << i;
    return found;
  }

  // The `wanted`-th largest of `many` keys, or a smaller number that is greater than the next key.
  __device__ __forceinline__ Key select(unsigned many, unsigned wanted) {
    Key prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      for (int d = threadIdx.x; d < 256; d += BLOCK) counts[d] = 0;
      __syncthreads();
      for (unsigned i = threadIdx.x; i < many; i += BLOCK)
        if (shift == 56 || (keys[i] ^ prefix) >> (shift + 8) == 0)
          atomicAdd(&counts[unsigned(keys[i] >> shift) & 255], 1u);
      __syncthreads();
      if (threadIdx.x < 32) {
        unsigned rest = wanted;
        const int found = find_digit(counts, rest);
        if (threadIdx.x == 0) digit = found, left = rest;
      }
      __syncthreads();
      prefix |= Key(digit) << shift;
      wanted = left;
      const bool whole = counts[digit] == wanted;  // all of the digit's keys are wanted
      __syncthreads();
      if (whole) break;
    }
    return prefix;
  }
};

}  // namespace kw
