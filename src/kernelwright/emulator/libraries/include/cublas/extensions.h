// Functions of cuBLAS with vectors of types that arguments name, rotations, and other names of
// products of complex matrices.
#pragma once
#include "packed.h"
#include <algorithm>
#include <initializer_list>

#pragma GCC visibility push(default)
namespace kw::program::blas {
bool known(cudaDataType);
double element(const void *data, cudaDataType type, size_t i);
void put(void *data, cudaDataType type, size_t i, double x);
}  // namespace kw::program::blas
#pragma GCC visibility pop

namespace kw::program::blas {
// A vector of a type that is known when the program runs.
struct Typed {
  void *p;
  cudaDataType type;
  int n;
  long long inc;
  size_t at(int i) const { return size_t(inc < 0 ? (i - n + 1) * inc : i * inc); }
  double operator()(int i) const { return element(p, type, at(i)); }
  void set(int i, double x) const { put(p, type, at(i), x); }
};
inline Typed typed(const void *p, cudaDataType type, int n, int inc) {
  return {const_cast<void *>(p), type, n, inc};
}
inline bool all_known(std::initializer_list<cudaDataType> types) {
  return std::all_of(types.begin(), types.end(), known);
}
}  // namespace kw::program::blas

#define KW_BLAS inline cublasStatus_t
#define KW_DONE return CUBLAS_STATUS_SUCCESS
#define KW_KNOWN(...)                \
  using namespace kw::program::blas; \
  if (!all_known({__VA_ARGS__})) return CUBLAS_STATUS_NOT_SUPPORTED

KW_BLAS cublasScalEx(cublasHandle_t, int n, const void *alpha, cudaDataType at, void *x,
                     cudaDataType xt, int incx, cudaDataType) {
  KW_KNOWN(at, xt);
  const auto u = typed(x, xt, n, incx);
  for (int i = 0; i < n; ++i) u.set(i, element(alpha, at, 0) * u(i));
  KW_DONE;
}
KW_BLAS cublasAxpyEx(cublasHandle_t, int n, const void *alpha, cudaDataType at, const void *x,
                     cudaDataType xt, int incx, void *y, cudaDataType yt, int incy, cudaDataType) {
  KW_KNOWN(at, xt, yt);
  const auto u = typed(x, xt, n, incx), v = typed(y, yt, n, incy);
  for (int i = 0; i < n; ++i) v.set(i, v(i) + element(alpha, at, 0) * u(i));
  KW_DONE;
}
KW_BLAS cublasDotEx(cublasHandle_t, int n, const void *x, cudaDataType xt, int incx, const void *y,
                    cudaDataType yt, int incy, void *result, cudaDataType rt, cudaDataType) {
  KW_KNOWN(xt, yt, rt);
  const auto u = typed(x, xt, n, incx), v = typed(y, yt, n, incy);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += u(i) * v(i);
  put(result, rt, 0, sum);
  KW_DONE;
}
KW_BLAS cublasDotcEx(cublasHandle_t h, int n, const void *x, cudaDataType xt, int incx,
                     const void *y, cudaDataType yt, int incy, void *result, cudaDataType rt,
                     cudaDataType compute) {
  return cublasDotEx(h, n, x, xt, incx, y, yt, incy, result, rt, compute);
}
KW_BLAS cublasNrm2Ex(cublasHandle_t, int n, const void *x, cudaDataType xt, int incx, void *result,
                     cudaDataType rt, cudaDataType) {
  KW_KNOWN(xt, rt);
  const auto u = typed(x, xt, n, incx);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += u(i) * u(i);
  put(result, rt, 0, std::sqrt(sum));
  KW_DONE;
}
KW_BLAS cublasRotEx(cublasHandle_t, int n, void *x, cudaDataType xt, int incx, void *y,
                    cudaDataType yt, int incy, const void *c, const void *s, cudaDataType cst,
                    cudaDataType) {
  KW_KNOWN(xt, yt, cst);
  const auto u = typed(x, xt, n, incx), v = typed(y, yt, n, incy);
  const double cosine = element(c, cst, 0), sine = element(s, cst, 0);
  for (int i = 0; i < n; ++i) {
    const double a = u(i), b = v(i);
    u.set(i, cosine * a + sine * b), v.set(i, cosine * b - sine * a);
  }
  KW_DONE;
}

#define KW_ROTATIONS_OF(letter, T)                                                    \
  /* a becomes r, b becomes z, from which c and s can be computed again */            \
  KW_BLAS cublas##letter##rotg(cublasHandle_t, T *a, T *b, T *c, T *s) {              \
    const T larger = std::fabs(*a) > std::fabs(*b) ? *a : *b;                         \
    const T r = std::copysign(std::hypot(*a, *b), larger);                            \
    *c = r == 0 ? 1 : *a / r, *s = r == 0 ? 0 : *b / r;                               \
    *b = std::fabs(*a) > std::fabs(*b) ? *s : *c != 0 ? 1 / *c : 1;                   \
    *a = r;                                                                           \
    if (r == 0) *b = 0;                                                               \
    KW_DONE;                                                                          \
  }                                                                                   \
  KW_BLAS cublas##letter##rotm(cublasHandle_t, int n, T *x, int incx, T *y, int incy, \
                               const T *param) {                                      \
    using namespace kw::program::blas;                                                \
    const T flag = param[0];                                                          \
    if (flag == -2) KW_DONE;                                                          \
    const T h11 = flag == 0 ? 1 : param[1], h21 = flag == 1 ? -1 : param[2],          \
            h12 = flag == 1 ? 1 : param[3], h22 = flag == 0 ? 1 : param[4];           \
    const Line<T> u{x, n, incx}, v{y, n, incy};                                       \
    for (int i = 0; i < n; ++i) {                                                     \
      const T a = u(i), b = v(i);                                                     \
      u(i) = h11 * a + h12 * b, v(i) = h21 * a + h22 * b;                             \
    }                                                                                 \
    KW_DONE;                                                                          \
  }
KW_ROTATIONS_OF(S, float)
KW_ROTATIONS_OF(D, double)
#undef KW_ROTATIONS_OF

#define KW_COMPLEX_EX(name, of, real)                                                         \
  KW_BLAS cublas##name(cublasHandle_t h, cublasFillMode_t part, cublasOperation_t op, int n,  \
                       int k, const real *alpha, const void *a, cudaDataType at, int lda,     \
                       const real *beta, void *c, cudaDataType ct, int ldc) {                 \
    if (at != CUDA_C_32F || ct != CUDA_C_32F) return CUBLAS_STATUS_NOT_SUPPORTED;             \
    return cublas##of(h, part, op, n, k, alpha, static_cast<const cuComplex *>(a), lda, beta, \
                      static_cast<cuComplex *>(c), ldc);                                      \
  }
KW_COMPLEX_EX(CsyrkEx, Csyrk, cuComplex)
KW_COMPLEX_EX(Csyrk3mEx, Csyrk, cuComplex)
KW_COMPLEX_EX(CherkEx, Cherk, float)
KW_COMPLEX_EX(Cherk3mEx, Cherk, float)
#undef KW_COMPLEX_EX
#define cublasCgemm3m cublasCgemm
#define cublasZgemm3m cublasZgemm
#undef KW_KNOWN
#undef KW_DONE
#undef KW_BLAS
