// One block per channel, in two passes: the mean, then the squared deviations from it.
//
// Idea: instead of one division per element, additions only: first of the elements, then of the
// squares of their differences from the mean. It is as accurate as `cuda_welford`, but reads x once
// more.
// Traffic: x read three times, y written once; a channel that fits in L2 is read from DRAM once.
// Compared with `cuda_welford`: no division per element.
// Limit: only as many blocks as channels, each of which waits for DRAM three times.
#include "../group_norm/sets.cuh"

// A channel: `rows` rows, `row_step` elements apart, of `length` elements, `step` apart. `at` is
// the distance between channels.
template <typename N, int THREADS>
__global__ void __launch_bounds__(THREADS)
    batch_norm_two_passes(const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                          const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                          float *__restrict__ means, float *__restrict__ rstds,
                          float *__restrict__ vars, long long rows, long long length,
                          long long row_step, long long at, long long step, float eps, int given) {
  __shared__ float scratch[32];
  const int channel = blockIdx.x;
  const auto place = [&](long long i) {
    return channel * at + i / length * row_step + i % length * step;
  };
  const float count = static_cast<float>(rows * length);

  float sum = 0.0f, squares = 0.0f;
  for (long long i = threadIdx.x; i < rows * length; i += THREADS) sum += kw::to_float(x[place(i)]);
  const float mean = kw::block_reduce<kw::Sum>(sum, scratch) / count;
  for (long long i = threadIdx.x; i < rows * length; i += THREADS) {
    const float d = kw::to_float(x[place(i)]) - mean;
    squares = fmaf(d, d, squares);
  }
  squares = kw::block_reduce<kw::Sum>(squares, scratch);
  const kw::Statistics s = {mean, rsqrtf(squares / count + eps)};
  if (threadIdx.x == 0) {
    means[channel] = s.mean, rstds[channel] = s.rstd;
    vars[channel] = squares / (count - 1.0f);
  }

  const kw::Affine affine(w, b, given, channel);
  for (long long i = threadIdx.x; i < rows * length; i += THREADS) {
    const kw::Vec<typename N::T, 1> v = {x[place(i)]};
    y[place(i)] = kw::normalised<N>(v, s, affine)[0];
  }
}
