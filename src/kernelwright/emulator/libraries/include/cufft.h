// Replaces NVIDIA's header of the same name: discrete Fourier transforms on the CPU, computed in
// double precision.
#pragma once
// By which programs know that the header is included.
#define _CUFFT_H_
#include <cuComplex.h>
#include <library_types.h>

#include <complex>
#include <map>
#include <vector>

typedef enum {
  CUFFT_SUCCESS = 0,
  CUFFT_INVALID_PLAN = 1,
  CUFFT_ALLOC_FAILED = 2,
  CUFFT_INVALID_TYPE = 3,
  CUFFT_INVALID_VALUE = 4,
  CUFFT_INTERNAL_ERROR = 5,
  CUFFT_EXEC_FAILED = 6,
  CUFFT_SETUP_FAILED = 7,
  CUFFT_INVALID_SIZE = 8,
  CUFFT_UNALIGNED_DATA = 9,
  CUFFT_INCOMPLETE_PARAMETER_LIST = 10,
  CUFFT_INVALID_DEVICE = 11,
  CUFFT_PARSE_ERROR = 12,
  CUFFT_NO_WORKSPACE = 13,
  CUFFT_NOT_IMPLEMENTED = 14,
  CUFFT_LICENSE_ERROR = 15,
  CUFFT_NOT_SUPPORTED = 16,
  CUFFT_MISSING_DEPENDENCY = 17,
  CUFFT_NVRTC_FAILURE = 18,
  CUFFT_NVJITLINK_FAILURE = 19,
  CUFFT_NVSHMEM_FAILURE = 20
} cufftResult;
typedef cufftResult cufftResult_t;
typedef enum {
  CUFFT_R2C = 0x2a,
  CUFFT_C2R = 0x2c,
  CUFFT_C2C = 0x29,
  CUFFT_D2Z = 0x6a,
  CUFFT_Z2D = 0x6c,
  CUFFT_Z2Z = 0x69
} cufftType;
typedef cufftType cufftType_t;
#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1
typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;

namespace kw::program::fft {
using Number = std::complex<double>;

// The layout of an input or output: the sizes of the array that holds a transform, and the strides
// between elements and between transforms.
struct Layout {
  std::vector<long long> sizes;
  long long step = 1, apart = 0;
};
struct Plan {
  std::vector<long long> n;
  long long count = 1;
  cufftType type = CUFFT_C2C;
  Layout in, out;
};
inline std::map<cufftHandle, Plan> &plans() {
  static std::map<cufftHandle, Plan> all;
  return all;
}
inline long long half(const Plan &p) { return p.n.back() / 2 + 1; }

// One dimension: n numbers `step` apart, by factors of n.
inline void transform(Number *x, long long n, int sign) {
  if (n < 2) return;
  long long factor = 2;
  while (factor * factor <= n && n % factor) ++factor;
  if (n % factor) factor = n;
  const long long m = n / factor;
  std::vector<Number> parts(n);
  for (long long f = 0; f < factor; ++f) {
    for (long long i = 0; i < m; ++i) parts[f * m + i] = x[i * factor + f];
    if (m > 1) transform(parts.data() + f * m, m, sign);
  }
  const double angle = sign * 6.283185307179586476925 / static_cast<double>(n);
  std::vector<Number> roots(n);
  for (long long k = 0; k < n; ++k) roots[k] = std::polar(1.0, angle * static_cast<double>(k));
  for (long long k = 0; k < n; ++k) {
    Number sum = 0;
    for (long long f = 0; f < factor; ++f) sum += parts[f * m + k % m] * roots[f * k % n];
    x[k] = sum;
  }
}
// All dimensions of an array of n[0] x n[1] x ... numbers.
inline void transform(std::vector<Number> &x, const std::vector<long long> &n, int sign) {
  long long inner = 1;
  for (size_t d = n.size(); d-- > 0; inner *= n[d]) {
    std::vector<Number> line(n[d]);
    for (long long start = 0; start < static_cast<long long>(x.size()); start += inner * n[d])
      for (long long i = 0; i < inner; ++i) {
        for (long long k = 0; k < n[d]; ++k) line[k] = x[start + i + k * inner];
        transform(line.data(), n[d], sign);
        for (long long k = 0; k < n[d]; ++k) x[start + i + k * inner] = line[k];
      }
  }
}
// Calls f(index among `sizes`, place in the layout) for each element of a transform.
template <typename F> void each(const std::vector<long long> &sizes, const Layout &l, F f) {
  long long all = 1;
  for (const long long n : sizes) all *= n;
  for (long long i = 0; i < all; ++i) {
    long long left = i, place = 0, scale = 1;
    for (size_t d = sizes.size(); d-- > 0; left /= sizes[d], scale *= l.sizes[d])
      place += left % sizes[d] * scale;
    f(i, place * l.step);
  }
}
template <typename In, typename Out>
cufftResult execute(cufftHandle handle, cufftType type, const In *in, Out *out, int sign) {
  const auto plan = plans().find(handle);
  if (plan == plans().end()) return CUFFT_INVALID_PLAN;
  const Plan &p = plan->second;
  if (p.type != type) return CUFFT_INVALID_TYPE;
  constexpr bool from_real = std::is_floating_point_v<In>, to_real = std::is_floating_point_v<Out>;
  std::vector<long long> halved = p.n;
  halved.back() = half(p);
  long long all = 1;
  for (const long long n : p.n) all *= n;
  // the transform may be in place
  std::vector<std::vector<Number>> results(p.count, std::vector<Number>(all));
  for (long long t = 0; t < p.count; ++t) {
    std::vector<Number> &x = results[t];
    each(to_real ? halved : p.n, p.in, [&](long long i, long long place) {
      const In &from = in[t * p.in.apart + place];
      if constexpr (from_real) {
        x[i] = from;
      } else if constexpr (!to_real) {
        x[i] = {from.x, from.y};
      } else {  // the other half follows from its symmetry
        std::vector<long long> at(p.n.size());
        long long left = i, whole = 0, mirrored = 0, scale = 1;
        for (size_t d = p.n.size(); d-- > 0; left /= halved[d]) at[d] = left % halved[d];
        left = i;
        for (size_t d = p.n.size(); d-- > 0; scale *= p.n[d]) {
          whole += at[d] * scale;
          mirrored += (p.n[d] - at[d]) % p.n[d] * scale;
        }
        x[mirrored] = {from.x, -from.y};
        x[whole] = {from.x, from.y};
      }
    });
    transform(x, p.n, sign);
  }
  for (long long t = 0; t < p.count; ++t)
    each(from_real ? halved : p.n, p.out, [&](long long i, long long place) {
      Out &to = out[t * p.out.apart + place];
      if constexpr (to_real) {
        to = static_cast<Out>(results[t][i].real());
      } else {
        long long at = i;
        if (from_real) at = i / half(p) * p.n.back() + i % half(p);
        to.x = results[t][at].real(), to.y = results[t][at].imag();
      }
    });
  long long bytes = p.out.step;
  for (const long long n : p.out.sizes) bytes *= n;
  wrote(out, ((p.count - 1) * p.out.apart + bytes) * sizeof(Out));
  return CUFFT_SUCCESS;
}
inline cufftResult make(cufftHandle *handle, std::vector<long long> n, cufftType type, int count,
                        const Layout *in = nullptr, const Layout *out = nullptr) {
  for (const long long k : n)
    if (k < 1) return CUFFT_INVALID_SIZE;
  static int next = 0;
  Plan p;
  p.n = n, p.type = type, p.count = count;
  const auto whole = [&](bool is_half) {
    Layout l;
    l.sizes = n;
    if (is_half) l.sizes.back() = half(p);
    l.apart = 1;
    for (const long long k : l.sizes) l.apart *= k;
    return l;
  };
  p.in = in ? *in : whole(type == CUFFT_C2R || type == CUFFT_Z2D);
  p.out = out ? *out : whole(type == CUFFT_R2C || type == CUFFT_D2Z);
  plans()[ *handle = ++next] = p;
  return CUFFT_SUCCESS;
}
}  // namespace kw::program::fft

#define KW_FFT inline cufftResult
KW_FFT cufftPlan1d(cufftHandle *plan, int n, cufftType type, int count) {
  return kw::program::fft::make(plan, {n}, type, count);
}
KW_FFT cufftPlan2d(cufftHandle *plan, int nx, int ny, cufftType type) {
  return kw::program::fft::make(plan, {nx, ny}, type, 1);
}
KW_FFT cufftPlan3d(cufftHandle *plan, int nx, int ny, int nz, cufftType type) {
  return kw::program::fft::make(plan, {nx, ny, nz}, type, 1);
}
KW_FFT cufftPlanMany(cufftHandle *plan, int rank, int *n, int *in_sizes, int in_step, int in_apart,
                     int *out_sizes, int out_step, int out_apart, cufftType type, int count) {
  using kw::program::fft::Layout;
  const std::vector<long long> sizes(n, n + rank);
  if (!in_sizes || !out_sizes) return kw::program::fft::make(plan, sizes, type, count);
  const Layout in{{in_sizes, in_sizes + rank}, in_step, in_apart};
  const Layout out{{out_sizes, out_sizes + rank}, out_step, out_apart};
  return kw::program::fft::make(plan, sizes, type, count, &in, &out);
}
KW_FFT cufftDestroy(cufftHandle plan) {
  return kw::program::fft::plans().erase(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
KW_FFT cufftSetStream(cufftHandle, cudaStream_t) { return CUFFT_SUCCESS; }
KW_FFT cufftGetVersion(int *version) {
  *version = 12000;
  return CUFFT_SUCCESS;
}
KW_FFT cufftExecC2C(cufftHandle p, cufftComplex *in, cufftComplex *out, int direction) {
  return kw::program::fft::execute(p, CUFFT_C2C, in, out, direction);
}
KW_FFT cufftExecZ2Z(cufftHandle p, cufftDoubleComplex *in, cufftDoubleComplex *out, int direction) {
  return kw::program::fft::execute(p, CUFFT_Z2Z, in, out, direction);
}
KW_FFT cufftExecR2C(cufftHandle p, cufftReal *in, cufftComplex *out) {
  return kw::program::fft::execute(p, CUFFT_R2C, in, out, CUFFT_FORWARD);
}
KW_FFT cufftExecD2Z(cufftHandle p, cufftDoubleReal *in, cufftDoubleComplex *out) {
  return kw::program::fft::execute(p, CUFFT_D2Z, in, out, CUFFT_FORWARD);
}
KW_FFT cufftExecC2R(cufftHandle p, cufftComplex *in, cufftReal *out) {
  return kw::program::fft::execute(p, CUFFT_C2R, in, out, CUFFT_INVERSE);
}
KW_FFT cufftExecZ2D(cufftHandle p, cufftDoubleComplex *in, cufftDoubleReal *out) {
  return kw::program::fft::execute(p, CUFFT_Z2D, in, out, CUFFT_INVERSE);
}
#undef KW_FFT
