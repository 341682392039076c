// A block for each channel, by Welford's update.
//
// Idea: each element changes the running mean and squares of its thread; the threads' are merged.
// One pass gives both, and no square of a large mean is ever formed. x is then read again.
// Traffic: x read twice, y written once.
// Limit: a division for each element; as many blocks as channels, an element per thread and turn;
// channels last, a warp's elements are a row of all channels apart.
#include "../group_norm/sets.cuh"

// A channel: `rows` rows, `row_step` elements apart, of `length` elements, `step` apart. `at`: from
// one channel to the next.
template <typename N, int THREADS>
__global__ void __launch_bounds__(THREADS)
    batch_norm_welford(const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                       const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                       float *__restrict__ means, float *__restrict__ rstds,
                       float *__restrict__ vars, long long rows, long long length,
                       long long row_step, long long at, long long step, float eps, int given) {
  __shared__ kw::Welford scratch[32];
  const int channel = blockIdx.x;
  const auto place = [&](long long i) {
    return channel * at + i / length * row_step + i % length * step;
  };

  kw::Welford all = {0.0f, 0.0f, 0.0f};
  for (long long i = threadIdx.x; i < rows * length; i += THREADS)
    all.add({1.0f, kw::to_float(x[place(i)]), 0.0f});
  all = kw::block_welford(all, scratch);
  const kw::Statistics s = {all.mean, rsqrtf(all.squares / all.count + eps)};
  if (threadIdx.x == 0) {
    means[channel] = s.mean, rstds[channel] = s.rstd;
    vars[channel] = all.squares / (all.count - 1.0f);
  }

  const kw::Affine affine(w, b, given, channel);
  for (long long i = threadIdx.x; i < rows * length; i += THREADS) {
    const kw::Vec<typename N::T, 1> v = {x[place(i)]};
    y[place(i)] = kw::normalised<N>(v, s, affine)[0];
  }
}
