// One element per thread.
//
// Idea: element i is word i / threads % 4 of the call that thread i % threads of PyTorch's grid
// makes in its step i / (4 threads); a thread computes this call and uses one word of it.
// Traffic: the result written once: the minimum.
// Compared with `native`: one kernel, and no words in memory.
// Limit: issue slots. Three of four words are discarded, and a store has 2 or 4 bytes.
#include "../stream.cuh"

template <typename T, template <typename> class Distribution>
__device__ __forceinline__ void rand_element(const long long *state, T *y, long long n,
                                             long long threads,
                                             const Distribution<T> &distribution) {
  const kw::Stream stream(state);
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const long long row = i / threads;
  const uint4 words = stream.words(row / 4, i - row * threads);
  const int which = row % 4;
  float first, second;
  distribution.pair(which < 2 ? words.x : words.z, which < 2 ? words.y : words.w, first, second);
  y[i] = kw::from_float<T>(which % 2 ? second : first);
}

template <typename T, template <typename> class Distribution>
__global__ void rand_thread(const long long *state, T *y, long long n, long long threads) {
  rand_element<T>(state, y, n, threads, Distribution<T>{});
}

template <typename T>
__global__ void bernoulli_p_thread(const long long *state, T *y, long long n, long long threads,
                                   float p) {
  rand_element<T>(state, y, n, threads, kw::Bernoulli<T>{p});
}

template <typename T>
__global__ void bernoulli_thread(const long long *state, const T *p, T *y, long long n) {
  const kw::Stream stream(state);
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float u = kw::unit(kw::word(stream.words(0, i / 4), i % 4));
  y[i] = kw::from_float<T>(u <= kw::to_float(p[i]) ? 1.0f : 0.0f);
}
