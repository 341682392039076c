// One block per channel, by Welford's update.
//
// Idea: each element updates the running mean and squared deviations of its thread; those of the
// threads are merged. One pass computes both, without squares of a large mean. x is then read
// again.
// Traffic: x read twice, y written once.
// Compared with `manual`: two reads of x instead of one per operation.
// Limit: one division per element; only as many blocks as channels, with one element per thread and
// iteration; channels last, the elements of a warp are a whole row of channels apart.
#include "../group_norm/sets.cuh"

// A channel: `rows` rows, `row_step` elements apart, of `length` elements, `step` apart. `at` is
// the distance between channels.
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
