// Inference: running statistics, weight and bias combined to one scale and one shift per channel.
//
// Idea: one multiplication and addition per element. Channels last, a thread keeps the scales and
// shifts of its columns for all its rows. Channels first, the tensor is read as one flat array, 16
// bytes at a time for any row length; a thread determines the channel once per vector, and again
// where a row ends within the vector.
// Traffic: x read once, y written once: the traffic of a copy.
// Compared with `native`: the scale and the shift are computed once per channel or vector.
// Limit: the speed of a copy.
#include "../group_norm/sets.cuh"

struct Fold {
  float scale, shift;
  template <typename W>
  __device__ __forceinline__ Fold(const W *w, const W *b, const float *means, const float *vars,
                                  int channel, float eps, int given) {
    const kw::Affine affine(w, b, given, channel);
    scale = affine.weight * rsqrtf(vars[channel] + eps);
    shift = affine.bias - means[channel] * scale;
  }
};

// Rows of `length` elements, one channel each.
template <typename T, typename W, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    batch_norm_scale_flat(const T *__restrict__ x, const W *__restrict__ w, const W *__restrict__ b,
                          const float *__restrict__ means, const float *__restrict__ vars,
                          T *__restrict__ y, long long count, int length, int channels, float eps,
                          int given) {
  const long long start = blockIdx.x * static_cast<long long>(THREADS * UNROLL * VEC);
  const int column = static_cast<int>(start % length);
  const int first = static_cast<int>(start / length % channels);
  kw::Vec<T, VEC> v[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const long long at = start + (u * THREADS + threadIdx.x) * VEC;
    v[u] = kw::load_or<T, VEC>(x + at, at < count, 0.0f);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const unsigned offset = (u * THREADS + threadIdx.x) * VEC;
    unsigned from = column + offset, row = from / length;
    from -= row * length;
    const auto fold_of = [&] {
      return Fold(w, b, means, vars, static_cast<int>((first + row) % channels), eps, given);
    };
    Fold fold = fold_of();
    float f[VEC];
    kw::to_float(v[u], f);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      f[i] = fmaf(f[i], fold.scale, fold.shift);
      if (i + 1 < VEC && ++from == static_cast<unsigned>(length)) {
        from = 0, row++;
        fold = fold_of();
      }
    }
    kw::store_whole(y + start + offset, start + offset < count, kw::from_float<T>(f));
  }
}

// Rows that contain all channels, `step` elements apart in x.
template <typename T, typename W, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    batch_norm_scale_columns(const T *__restrict__ x, const W *__restrict__ w,
                             const W *__restrict__ b, const float *__restrict__ means,
                             const float *__restrict__ vars, T *__restrict__ y, long long rows,
                             long long step, int channels, int strips, float eps, int given) {
  const int strip = blockIdx.x % strips, col = (strip * 32 + threadIdx.x % 32) * VEC;
  if (col >= channels) return;
  constexpr int kDown = THREADS / 32;
  float scale[VEC], shift[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const Fold fold(w, b, means, vars, col + i, eps, given);
    scale[i] = fold.scale, shift[i] = fold.shift;
  }
  const long long apart = gridDim.x / strips * static_cast<long long>(kDown);
  for (long long row = blockIdx.x / strips * kDown + threadIdx.x / 32; row < rows;
       row += UNROLL * apart) {
    kw::Vec<T, VEC> v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      v[u] = kw::load_or<T, VEC>(x + (row + u * apart) * step + col, row + u * apart < rows, 0.0f);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      float f[VEC];
      kw::to_float(v[u], f);
#pragma unroll
      for (int i = 0; i < VEC; i++) f[i] = fmaf(f[i], scale[i], shift[i]);
      kw::store_whole(y + (row + u * apart) * channels + col, row + u * apart < rows,
                      kw::from_float<T>(f));
    }
  }
}
