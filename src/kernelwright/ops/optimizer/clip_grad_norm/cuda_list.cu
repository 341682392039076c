// One launch for the norm of all tensors and one to scale them, by vectors of 16 bytes.
//
// Idea: as `triton_list`: a table divides the list into chunks, and one block combines the parts of
// the others, in their order. Here a tensor that is not aligned is read element by element, without
// slowing down the others, and a thread has several vectors in flight. For the norm a block
// processes many chunks (otherwise one block would have to add thousands of parts), and passes its
// part in a word with a flag.
// Traffic: every tensor read once for the norm; read and written once more if it is scaled.
// Compared with `triton_list`: 16-byte vectors for any alignment, and fewer parts to combine.
// Limit: DRAM bandwidth; for small lists the two launches.
#include <kw/flagged_value.cuh>
#include "../lists.cuh"
#include <kw/reduce.cuh>
#include <kw/vec.cuh>

// ORDER 1 and 2 add; 0 stands for infinity and selects the maximum.
template <int ORDER> struct Norm {
  static __device__ __forceinline__ float join(float a, float b) {
    return ORDER == 0 ? kw::max_nan(a, b) : a + b;
  }
  static __device__ __forceinline__ float of(float x) { return ORDER == 2 ? x * x : fabsf(x); }
  static __device__ __forceinline__ float block(float x, float *scratch) {
    if constexpr (ORDER == 0) return kw::block_reduce<kw::Max>(x, scratch);
    return kw::block_reduce<kw::Sum>(x, scratch);
  }
};

template <typename T, int N> __device__ __forceinline__ bool aligned(const T *x) {
  return reinterpret_cast<unsigned long long>(x) % (N * sizeof(T)) == 0;
}

// The part of a thread of BLOCK in a chunk: `length` elements from x on, VECS vectors per thread.
template <typename Op, typename T, int BLOCK, int VECS>
__device__ __forceinline__ float found_in(const T *x, int length) {
  constexpr int W = kw::kVecWidth<T>;
  const int whole = aligned<T, W>(x) ? length / W * W : 0;
  float found[W] = {};
  int at = threadIdx.x * W;
  if (at + (VECS - 1) * BLOCK * W < whole) {
    kw::Vec<T, W> v[VECS];
#pragma unroll
    for (int k = 0; k < VECS; ++k) v[k] = kw::load<T, W>(x + at + k * BLOCK * W);
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
      float f[W];
      kw::to_float(v[k], f);
#pragma unroll
      for (int j = 0; j < W; ++j) found[j] = Op::join(found[j], Op::of(f[j]));
    }
    at += VECS * BLOCK * W;
  }
#pragma unroll 1
  for (; at < whole; at += BLOCK * W) {
    float f[W];
    kw::to_float(kw::load<T, W>(x + at), f);
#pragma unroll
    for (int j = 0; j < W; ++j) found[j] = Op::join(found[j], Op::of(f[j]));
  }
#pragma unroll 1
  for (at = whole + threadIdx.x; at < length; at += BLOCK)
    found[0] = Op::join(found[0], Op::of(kw::to_float(x[at])));
#pragma unroll
  for (int half = W / 2; half > 0; half /= 2)
#pragma unroll
    for (int j = 0; j < half; ++j) found[j] = Op::join(found[j], found[j + half]);
  return found[0];
}

// The blocks, RESIDENT per multiprocessor, iterate over all `count` chunks in parallel.
template <typename T, typename Out, int ORDER, int BLOCK, int VECS, int RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    norm_list(const unsigned long long *addresses, const int *chunks, const long long *sizes,
              kw::FlaggedValue *words, Out *norm, unsigned count) {
  using Op = Norm<ORDER>;
  constexpr int CHUNK = BLOCK * VECS * kw::kVecWidth<T>;
  __shared__ float scratch[32];
  float total = 0;
#pragma unroll 1
  for (unsigned which = blockIdx.x; which < count; which += gridDim.x) {
    const kw::Chunk chunk(chunks, sizes, CHUNK, which);
    const T *x = kw::global_pointer<const T>(addresses[chunk.k]) + chunk.first;
    total = Op::join(total, found_in<Op, T, BLOCK, VECS>(x, chunk.length));
  }
  total = Op::block(total, scratch);
  const unsigned collector = gridDim.x - 1;
  if (blockIdx.x != collector) {
    if (threadIdx.x == 0) kw::publish(words + blockIdx.x, total);
    return;
  }
  if (threadIdx.x != 0) total = 0;
  for (unsigned i = threadIdx.x; i < collector; i += BLOCK)
    total = Op::join(total, kw::take<float>(words + i));
  total = Op::block(total, scratch);
  if (threadIdx.x == 0) *norm = kw::from_float<Out>(ORDER == 2 ? sqrtf(total) : total);
}

template <typename T, typename Norm, int BLOCK, int VECS, int ROUNDS>
__global__ void __launch_bounds__(BLOCK)
    scale_list(const unsigned long long *addresses, const int *chunks, const long long *sizes,
               const Norm *norm, float max_norm) {
  constexpr int W = kw::kVecWidth<T>, CHUNK = BLOCK * VECS * ROUNDS * W;
  const float factor = max_norm / (kw::to_float(*norm) + 1e-6f);
  if (factor >= 1) return;  // not true for NaN
  const kw::Chunk chunk(chunks, sizes, CHUNK);
  T *x = kw::global_pointer<T>(addresses[chunk.k]) + chunk.first;
  const int whole = aligned<T, W>(x) ? chunk.length / W * W : 0;
#pragma unroll VECS
  for (int at = threadIdx.x * W; at < whole; at += BLOCK * W) {
    float f[W];
    kw::to_float(kw::load<T, W>(x + at), f);
#pragma unroll
    for (int j = 0; j < W; ++j) f[j] *= factor;
    kw::store(x + at, kw::from_float<T, W>(f));
  }
#pragma unroll 1
  for (int at = whole + threadIdx.x; at < chunk.length; at += BLOCK)
    x[at] = kw::from_float<T>(kw::to_float(x[at]) * factor);
}
