// Applies one formula to tensors: every operand is read once, every result is written once.
//
// A formula is a struct F with kIn inputs, kOut results and a function `apply<T>(in, out)` that
// works on floats for tensors of T. `at` holds the pointers of the inputs, followed by those of the
// results.
#pragma once
#include "kw/vec.cuh"

namespace kw {

// Declares a formula in one line: x[0], x[1], ... are its inputs, y[0], ... its results.
#define KW_FORMULA(NAME, IN, OUT, ...)                                                    \
  struct NAME {                                                                           \
    static constexpr int kIn = IN, kOut = OUT;                                            \
    template <typename T>                                                                 \
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) { \
      __VA_ARGS__;                                                                        \
    }                                                                                     \
  };

// STREAM: accesses carry an evict-first hint, for data that is not read again soon.
template <bool STREAM, typename T, int WIDTH = kVecWidth<T>>
__device__ __forceinline__ Vec<T, WIDTH> read(const T *p) {
  if constexpr (STREAM) return load_streaming<T, WIDTH>(p);
  return load<T, WIDTH>(p);
}

template <bool STREAM, typename T, int WIDTH>
__device__ __forceinline__ void write(T *p, const Vec<T, WIDTH> &x) {
  if constexpr (STREAM) return store_streaming(p, x);
  store(p, x);
}

// The formula for one element: input j is read from in[j], result j is stored to out[j].
template <typename F, typename T>
__device__ __forceinline__ void map_element(T *const (&in)[F::kIn], T *const (&out)[F::kOut]) {
  float x[F::kIn], y[F::kOut];
#pragma unroll
  for (int j = 0; j < F::kIn; ++j) x[j] = to_float(*in[j]);
  F::template apply<T>(x, y);
#pragma unroll
  for (int j = 0; j < F::kOut; ++j) *out[j] = from_float<T>(y[j]);
}

// The formula for one vector of each input, in registers: the results as floats, or as stored.
template <typename F, typename T, int WIDTH>
__device__ __forceinline__ void map_floats(const Vec<T, WIDTH> (&in)[F::kIn],
                                           float (&y)[F::kOut][WIDTH]) {
  float x[F::kIn][WIDTH];
#pragma unroll
  for (int j = 0; j < F::kIn; ++j) to_float(in[j], x[j]);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    float a[F::kIn], b[F::kOut];
#pragma unroll
    for (int j = 0; j < F::kIn; ++j) a[j] = x[j][i];
    F::template apply<T>(a, b);
#pragma unroll
    for (int j = 0; j < F::kOut; ++j) y[j][i] = b[j];
  }
}
template <typename F, typename T, int WIDTH>
__device__ __forceinline__ void map_vector(const Vec<T, WIDTH> (&in)[F::kIn],
                                           Vec<T, WIDTH> (&out)[F::kOut]) {
  float y[F::kOut][WIDTH];
  map_floats<F, T, WIDTH>(in, y);
#pragma unroll
  for (int j = 0; j < F::kOut; ++j) out[j] = from_float<T, WIDTH>(y[j]);
}

// One block's tile of n elements that have the same layout in every tensor: UNROLL vectors per
// thread, all of which are loaded before the first is used. Pointers are aligned to 16 bytes.
template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM>
__device__ __forceinline__ void map_flat(T *const (&at)[F::kIn + F::kOut], long long n) {
  constexpr int WIDTH = kVecWidth<T>, STEP = BLOCK * WIDTH, TILE = STEP * UNROLL;
  const long long start = (long long)blockIdx.x * TILE;
  const int left = min(n - start, (long long)TILE);  // elements of this block
  const int first = threadIdx.x * WIDTH;
  T *in[F::kIn], *out[F::kOut];
#pragma unroll
  for (int j = 0; j < F::kIn; ++j) in[j] = at[j] + start;
#pragma unroll
  for (int j = 0; j < F::kOut; ++j) out[j] = at[F::kIn + j] + start;
  Vec<T, WIDTH> x[UNROLL][F::kIn], y[F::kOut];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH > left) continue;
#pragma unroll
    for (int j = 0; j < F::kIn; ++j) x[k][j] = read<STREAM>(in[j] + i);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH > left) continue;
    map_vector<F, T, WIDTH>(x[k], y);
#pragma unroll
    for (int j = 0; j < F::kOut; ++j) write<STREAM>(out[j] + i, y[j]);
  }
  const int i = left - left % WIDTH + threadIdx.x;  // the rest of the last block
  if (i >= left) return;
#pragma unroll
  for (int j = 0; j < F::kIn; ++j) in[j] += i;
#pragma unroll
  for (int j = 0; j < F::kOut; ++j) out[j] += i;
  map_element<F, T>(in, out);
}

// The same for rows of `cols` elements, a whole number of vectors, where each input has a stride
// between its rows; results are contiguous. Vectors are counted across all rows, so that no block
// processes only the remainder of a row. Input SHARED is one row that is used for all rows (its
// stride is 0) and is never read with the streaming hint.
template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM, int SHARED = -1>
__device__ __forceinline__ void map_rows(T *const (&at)[F::kIn + F::kOut],
                                         const long long (&stride)[F::kIn], long long rows,
                                         int cols) {
  constexpr int WIDTH = kVecWidth<T>;
  const unsigned across = cols / WIDTH;  // vectors per row
  const long long start = (long long)blockIdx.x * (BLOCK * UNROLL);
  const long long row = start / across, left = rows * across - start;
  const unsigned first = start - row * across;
  Vec<T, WIDTH> x[UNROLL][F::kIn], y[F::kOut];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned down = (first + v) / across, right = (first + v - down * across) * WIDTH;
#pragma unroll
    for (int j = 0; j < F::kIn; ++j) {
      const T *from = at[j] + (row + down) * stride[j] + right;
      x[k][j] = j == SHARED ? read<false>(from) : read<STREAM>(from);
    }
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    map_vector<F, T, WIDTH>(x[k], y);
#pragma unroll
    for (int j = 0; j < F::kOut; ++j) write<STREAM>(at[F::kIn + j] + (start + v) * WIDTH, y[j]);
  }
}

}  // namespace kw
