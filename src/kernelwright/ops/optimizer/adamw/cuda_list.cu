// One launch for all parameters, by vectors of 16 bytes.
//
// Idea: as `triton_list`: addresses are in one array, a table assigns parts of parameters to
// blocks, and the last block of a parameter increments its step. Here one thread per block computes
// the factors once, in float64, and a thread has several vectors of each stream in flight. A tensor
// that is not aligned is processed element by element, without slowing down the others; so is the
// rest of each tensor that does not fill a vector.
// Traffic: p, m, v read and written, g read, once; a copy of p written if there is one.
// Compared with `triton_list`: the factors are computed by one thread per block, and alignment is
// handled per tensor.
// Limit: DRAM bandwidth.
#include <kw/last_block.cuh>
#include "../lists.cuh"
#include <kw/philox.cuh>
#include <kw/vec.cuh>

constexpr float kLargest = 3.4028234663852886e38f;

struct Factors {
  float decay, weight1, weight2, step_size, inverse_root, unscale;
};

// base^n by squaring; the error is that of n rounding errors.
__device__ double power(double base, long long n) {
  double result = 1;
  for (; n > 0; n /= 2, base *= base)
    if (n % 2) result *= base;
  return result;
}

template <typename P, typename G, typename S, typename C, bool COPY, bool MAXIMIZE, bool SEEDED>
struct Parameter {
  static constexpr int kSize = sizeof(P) > sizeof(G) ? sizeof(P) : sizeof(G);
  static constexpr int W = 16 / (kSize > sizeof(S) ? kSize : sizeof(S));  // per vector
  P *p;
  const G *g;
  S *m, *v;
  C *copy;
  unsigned long long seed, counter;  // of the first element
  Factors f;
  float eps;

  __device__ __forceinline__ Parameter(const unsigned long long *row, long long first)
      : p(kw::global_pointer<P>(row[0]) + first),
        g(kw::global_pointer<const G>(row[1]) + first),
        m(kw::global_pointer<S>(row[2]) + first),
        v(kw::global_pointer<S>(row[3]) + first),
        copy(COPY ? kw::global_pointer<C>(row[5]) + first : nullptr) {}

  __device__ __forceinline__ bool aligned() const {
    const auto odd = [](const void *x, int size) {
      return reinterpret_cast<unsigned long long>(x) % (W * size);
    };
    return !(odd(p, sizeof(P)) | odd(g, sizeof(G)) | odd(m, sizeof(S)) | odd(v, sizeof(S)) |
             (COPY ? odd(copy, sizeof(C)) : 0));
  }

  __device__ __forceinline__ void step(float &x, float g, float &m, float &v) const {
    g *= f.unscale;
    if (MAXIMIZE) g = -g;
    m = fmaf(f.weight1, g - m, m);
    // g is squared with its weight, as by PyTorch: 1e20 squared is infinite. An infinite v, the
    // square of a large gradient in 16 bits, remains so: inf - inf would be NaN
    v = fmaf(f.weight2 * g, g, v - fminf(f.weight2 * v, kLargest));
    x = fmaf(x, f.decay, -f.step_size * (m / fmaf(sqrtf(v), f.inverse_root, eps)));
  }

  // Updates COUNT vectors of N elements, which are `apart` elements from each other: all loads are
  // issued before the first result is used.
  template <int N, int COUNT> __device__ __forceinline__ void update(int at, int apart) {
    kw::Vec<P, N> vp[COUNT];
    kw::Vec<G, N> vg[COUNT];
    kw::Vec<S, N> vm[COUNT], vv[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      vp[k] = kw::load<P, N>(p + at + k * apart), vg[k] = kw::load<G, N>(g + at + k * apart);
      vm[k] = kw::load<S, N>(m + at + k * apart), vv[k] = kw::load<S, N>(v + at + k * apart);
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int i = at + k * apart;
      float fp[N], fg[N], fm[N], fv[N];
      kw::to_float(vp[k], fp), kw::to_float(vg[k], fg);
      kw::to_float(vm[k], fm), kw::to_float(vv[k], fv);
#pragma unroll
      for (int j = 0; j < N; ++j) step(fp[j], fg[j], fm[j], fv[j]);
      kw::store(p + i, kw::from_float<P, N>(fp));
      if constexpr (COPY) kw::store(copy + i, kw::from_float<C, N>(fp));
      if constexpr (SEEDED) {
        unsigned word[N];
        random(i, word);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          vm[k][j] = kw::round_stochastic(fm[j], word[j] & 0xffff);
          vv[k][j] = kw::round_stochastic(fv[j], word[j] >> 16);
        }
      } else {
        vm[k] = kw::from_float<S, N>(fm), vv[k] = kw::from_float<S, N>(fv);
      }
      kw::store(m + i, vm[k]), kw::store(v + i, vv[k]);
    }
  }

  // The random words of elements i to i + N - 1: four from each counter.
  template <int N> __device__ __forceinline__ void random(int i, unsigned (&word)[N]) const {
    if constexpr (N % 4 == 0) {
#pragma unroll
      for (int j = 0; j < N; j += 4) {
        const uint4 four = kw::philox(seed, counter + (i + j) / 4);
        word[j] = four.x, word[j + 1] = four.y, word[j + 2] = four.z, word[j + 3] = four.w;
      }
    } else {
      static_assert(N == 1, "whole quads or single elements");
      const uint4 four = kw::philox(seed, counter + i / 4);
      word[0] = i % 4 < 2 ? (i % 4 ? four.y : four.x) : (i % 4 < 3 ? four.z : four.w);
    }
  }
};

template <typename P, typename G, typename S, typename C, bool COPY, bool MAXIMIZE, bool SEEDED,
          int BLOCK, int VECS, int ROUNDS>
__global__ void __launch_bounds__(BLOCK)
    adamw_list(const unsigned long long *addresses, const int *chunks, const long long *sizes,
               unsigned *arrived, double lr, double beta1, double beta2, double weight_decay,
               float eps, const float *lr_tensor, const float *grad_scale, const float *found_inf,
               const unsigned long long *seed) {
  using Part = Parameter<P, G, S, C, COPY, MAXIMIZE, SEEDED>;
  constexpr int W = Part::W, CHUNK = BLOCK * VECS * ROUNDS * W;
  __shared__ Factors shared;
  if (found_inf && *found_inf != 0) return;
  const kw::Chunk chunk(chunks, sizes, CHUNK);
  const unsigned long long *row = addresses + (COPY ? 6 : 5) * chunk.k;
  Part part(row, chunk.first);
  if (threadIdx.x == 0) {
    float *count = kw::global_pointer<float>(row[4]);
    const float t = *count + 1;
    if (lr_tensor) lr = *lr_tensor;
    shared = {float(1 - lr * weight_decay),
              float(1 - beta1),
              float(1 - beta2),
              float(lr / (1 - power(beta1, (long long)t))),
              float(1 / sqrt(1 - power(beta2, (long long)t))),
              grad_scale ? 1 / *grad_scale : 1.0f};
    const unsigned last = unsigned((chunk.n - 1) / CHUNK);
    kw::fence();  // the step is read before this block is counted
    if (atomicInc(arrived + chunk.k, last) == last) {
      kw::fence();  // the last block writes the step only after all have read it
      *count = t;
    }
  }
  __syncthreads();
  part.f = shared, part.eps = eps;
  if constexpr (SEEDED)
    part.seed = *seed, part.counter = ((unsigned long long)chunk.k << 40) + chunk.first / 4;
  const int whole = part.aligned() ? chunk.length / W * W : 0;
  int at = threadIdx.x * W;
#pragma unroll 1
  for (; at + (VECS - 1) * BLOCK * W < whole; at += VECS * BLOCK * W)
    part.template update<W, VECS>(at, BLOCK * W);
#pragma unroll 1
  for (; at < whole; at += BLOCK * W) part.template update<W, 1>(at, 0);
#pragma unroll 1
  for (at = whole + threadIdx.x; at < chunk.length; at += BLOCK) part.template update<1, 1>(at, 0);
}
