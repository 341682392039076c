// Triangular, symmetric and complex matrices of cuBLAS, as plain loops over columns.
#pragma once
#include <complex>
#include <vector>

namespace kw::program::blas {

template <typename T> struct Number {
  using type = T;
};
template <> struct Number<cuComplex> {
  using type = std::complex<float>;
};
template <> struct Number<cuDoubleComplex> {
  using type = std::complex<double>;
};
// The emulator's own number type for T: cuComplex has no operators.
template <typename T> using Of = typename Number<T>::type;
template <typename T> inline const Of<T> *of(const T *p) {
  return reinterpret_cast<const Of<T> *>(p);
}
template <typename T> inline Of<T> *of(T *p) { return reinterpret_cast<Of<T> *>(p); }

template <typename T> inline T conjugate(T x) { return x; }
template <typename T> inline std::complex<T> conjugate(std::complex<T> x) { return std::conj(x); }

// The element of op(A) in row i, column j.
template <typename T> struct Read {
  const T *a;
  size_t ld;
  cublasOperation_t op;
  T operator()(int i, int j) const {
    if (op == CUBLAS_OP_N) return a[i + j * ld];
    const T x = a[j + i * ld];
    return op == CUBLAS_OP_C ? conjugate(x) : x;
  }
};
// A symmetric matrix, of which one triangle is stored (`hermitian`: the other one is conjugated).
template <typename T> struct Half {
  const T *a;
  size_t ld;
  bool lower, hermitian;
  T operator()(int i, int j) const {
    const bool kept = lower ? i >= j : i <= j;
    const T x = kept ? a[i + j * ld] : a[j + i * ld];
    return !kept && hermitian ? conjugate(x) : x;
  }
};
// A triangle of A or of its transpose; 0 outside the triangle.
template <typename T> struct Triangle {
  Read<T> of;
  bool lower, unit;
  Triangle(const T *a, size_t ld, cublasFillMode_t part, cublasOperation_t op, cublasDiagType_t d)
      : of{a, ld, op},
        lower((part == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N)),
        unit(d == CUBLAS_DIAG_UNIT) {}
  T operator()(int i, int j) const {
    if (i == j && unit) return T(1);
    return (lower ? i >= j : i <= j) ? of(i, j) : T(0);
  }
};
// C = alpha A B + beta C; A and B are read by functions, `wanted` selects elements of C.
template <typename T, typename A, typename B, typename F>
cublasStatus_t multiply(int m, int n, int k, T alpha, A a, B b, T beta, T *c, size_t ld, F wanted) {
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      if (!wanted(i, j)) continue;
      T sum = 0;
      for (int p = 0; p < k; ++p) sum += a(i, p) * b(p, j);
      T &to = c[i + j * ld];
      to = alpha * sum + (beta == T(0) ? T(0) : beta * to);
    }
  return CUBLAS_STATUS_SUCCESS;
}
inline bool everywhere(int, int) { return true; }
// x = A^-1 x for a triangle A; x has n numbers, `step` apart.
template <typename T> void solve(const Triangle<T> &a, int n, T *x, size_t step) {
  for (int k = 0; k < n; ++k) {
    const int i = a.lower ? k : n - 1 - k;
    T sum = x[i * step];
    for (int j = a.lower ? 0 : i + 1, end = a.lower ? i : n; j < end; ++j)
      sum -= a(i, j) * x[j * step];
    x[i * step] = sum / a(i, i);
  }
}
inline cublasOperation_t other(cublasOperation_t op) {
  return op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
}
}  // namespace kw::program::blas

#define KW_BLAS inline cublasStatus_t
#define KW_DONE return CUBLAS_STATUS_SUCCESS

#define KW_MATRICES_OF(name, T)                                                                   \
  KW_BLAS cublas##name##symm(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t part, int m, \
                             int n, const T *alpha, const T *a, int lda, const T *b, int ldb,     \
                             const T *beta, T *c, int ldc) {                                      \
    using namespace kw::program::blas;                                                            \
    const Half<Of<T>> s{of(a), size_t(lda), part == CUBLAS_FILL_MODE_LOWER, false};               \
    const Read<Of<T>> r{of(b), size_t(ldb), CUBLAS_OP_N};                                         \
    return side == CUBLAS_SIDE_LEFT                                                               \
               ? multiply(m, n, m, *of(alpha), s, r, *of(beta), of(c), ldc, everywhere)           \
               : multiply(m, n, n, *of(alpha), r, s, *of(beta), of(c), ldc, everywhere);          \
  }                                                                                               \
  KW_BLAS cublas##name##syrk(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op, int n,  \
                             int k, const T *alpha, const T *a, int lda, const T *beta, T *c,     \
                             int ldc) {                                                           \
    using namespace kw::program::blas;                                                            \
    const Read<Of<T>> left{of(a), size_t(lda), op}, right{of(a), size_t(lda), other(op)};         \
    return multiply(n, n, k, *of(alpha), left, right, *of(beta), of(c), ldc, [&](int i, int j) {  \
      return part == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j;                                    \
    });                                                                                           \
  }                                                                                               \
  KW_BLAS cublas##name##trmm(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t part,        \
                             cublasOperation_t op, cublasDiagType_t diagonal, int m, int n,       \
                             const T *alpha, const T *a, int lda, const T *b, int ldb, T *c,      \
                             int ldc) {                                                           \
    using namespace kw::program::blas;                                                            \
    const Triangle<Of<T>> t(of(a), lda, part, op, diagonal);                                      \
    std::vector<Of<T>> copy(size_t(m) * n); /* b and c may be the same */                         \
    for (int j = 0; j < n; ++j)                                                                   \
      for (int i = 0; i < m; ++i) copy[i + size_t(j) * m] = of(b)[i + size_t(j) * ldb];           \
    const Read<Of<T>> r{copy.data(), size_t(m), CUBLAS_OP_N};                                     \
    return side == CUBLAS_SIDE_LEFT                                                               \
               ? multiply(m, n, m, *of(alpha), t, r, Of<T>(0), of(c), ldc, everywhere)            \
               : multiply(m, n, n, *of(alpha), r, t, Of<T>(0), of(c), ldc, everywhere);           \
  }                                                                                               \
  KW_BLAS cublas##name##trsm(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t part,        \
                             cublasOperation_t op, cublasDiagType_t diagonal, int m, int n,       \
                             const T *alpha, const T *a, int lda, T *b, int ldb) {                \
    using namespace kw::program::blas;                                                            \
    for (int j = 0; j < n; ++j)                                                                   \
      for (int i = 0; i < m; ++i) of(b)[i + size_t(j) * ldb] *= *of(alpha);                       \
    if (side == CUBLAS_SIDE_LEFT) {                                                               \
      const Triangle<Of<T>> t(of(a), lda, part, op, diagonal);                                    \
      for (int j = 0; j < n; ++j) solve(t, m, of(b) + size_t(j) * ldb, 1);                        \
      KW_DONE;                                                                                    \
    }                                                                                             \
    if (op == CUBLAS_OP_C && !std::is_arithmetic_v<T>) return CUBLAS_STATUS_NOT_SUPPORTED;        \
    const Triangle<Of<T>> t(of(a), lda, part, other(op), diagonal); /* X A = B: A^T X^T = B^T */  \
    for (int i = 0; i < m; ++i) solve(t, n, of(b) + i, ldb);                                      \
    KW_DONE;                                                                                      \
  }                                                                                               \
  KW_BLAS cublas##name##trsv(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,         \
                             cublasDiagType_t diagonal, int n, const T *a, int lda, T *x,         \
                             int incx) {                                                          \
    using namespace kw::program::blas;                                                            \
    solve(Triangle<Of<T>>(of(a), lda, part, op, diagonal), n, of(x), incx);                       \
    KW_DONE;                                                                                      \
  }                                                                                               \
  KW_BLAS cublas##name##symv(cublasHandle_t, cublasFillMode_t part, int n, const T *alpha,        \
                             const T *a, int lda, const T *x, int incx, const T *beta, T *y,      \
                             int incy) {                                                          \
    using namespace kw::program::blas;                                                            \
    const Half<Of<T>> s{of(a), size_t(lda), part == CUBLAS_FILL_MODE_LOWER, false};               \
    for (int i = 0; i < n; ++i) {                                                                 \
      Of<T> sum = 0, &to = of(y)[size_t(i) * incy];                                               \
      for (int j = 0; j < n; ++j) sum += s(i, j) * of(x)[size_t(j) * incx];                       \
      to = *of(alpha) * sum + (*of(beta) == Of<T>(0) ? Of<T>(0) : *of(beta) * to);                \
    }                                                                                             \
    KW_DONE;                                                                                      \
  }                                                                                               \
  KW_BLAS cublas##name##dgmm(cublasHandle_t, cublasSideMode_t side, int m, int n, const T *a,     \
                             int lda, const T *x, int incx, T *c, int ldc) {                      \
    using namespace kw::program::blas;                                                            \
    for (int j = 0; j < n; ++j)                                                                   \
      for (int i = 0; i < m; ++i)                                                                 \
        of(c)[i + size_t(j) * ldc] =                                                              \
            of(a)[i + size_t(j) * lda] * of(x)[size_t(side == CUBLAS_SIDE_LEFT ? i : j) * incx];  \
    KW_DONE;                                                                                      \
  }
KW_MATRICES_OF(S, float)
KW_MATRICES_OF(D, double)
KW_MATRICES_OF(C, cuComplex)
KW_MATRICES_OF(Z, cuDoubleComplex)
#undef KW_MATRICES_OF

#define KW_COMPLEX(name, T, R, real)                                                               \
  KW_BLAS cublas##name##gemm(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,    \
                             int n, int k, const T *alpha, const T *a, int lda, const T *b,        \
                             int ldb, const T *beta, T *c, int ldc) {                              \
    using namespace kw::program::blas;                                                             \
    const Read<Of<T>> left{of(a), size_t(lda), ta}, right{of(b), size_t(ldb), tb};                 \
    return multiply(m, n, k, *of(alpha), left, right, *of(beta), of(c), ldc, everywhere);          \
  }                                                                                                \
  KW_BLAS cublas##name##gemv(cublasHandle_t h, cublasOperation_t op, int m, int n, const T *alpha, \
                             const T *a, int lda, const T *x, int incx, const T *beta, T *y,       \
                             int incy) {                                                           \
    using namespace kw::program::blas;                                                             \
    const Read<Of<T>> r{of(a), size_t(lda), op};                                                   \
    const int rows = op == CUBLAS_OP_N ? m : n, inner = op == CUBLAS_OP_N ? n : m;                 \
    for (int i = 0; i < rows; ++i) {                                                               \
      Of<T> sum = 0, &to = of(y)[size_t(i) * incy];                                                \
      for (int j = 0; j < inner; ++j) sum += r(i, j) * of(x)[size_t(j) * incx];                    \
      to = *of(alpha) * sum + (*of(beta) == Of<T>(0) ? Of<T>(0) : *of(beta) * to);                 \
    }                                                                                              \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##axpy(cublasHandle_t, int n, const T *alpha, const T *x, int incx, T *y,    \
                             int incy) {                                                           \
    using namespace kw::program::blas;                                                             \
    for (int i = 0; i < n; ++i) of(y)[size_t(i) * incy] += *of(alpha) * of(x)[size_t(i) * incx];   \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##scal(cublasHandle_t, int n, const T *alpha, T *x, int incx) {              \
    using namespace kw::program::blas;                                                             \
    for (int i = 0; i < n; ++i) of(x)[size_t(i) * incx] *= *of(alpha);                             \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##copy(cublasHandle_t, int n, const T *x, int incx, T *y, int incy) {        \
    for (int i = 0; i < n; ++i) y[size_t(i) * incy] = x[size_t(i) * incx];                         \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##dotu(cublasHandle_t, int n, const T *x, int incx, const T *y, int incy,    \
                             T *result) {                                                          \
    using namespace kw::program::blas;                                                             \
    Of<T> sum = 0;                                                                                 \
    for (int i = 0; i < n; ++i) sum += of(x)[size_t(i) * incx] * of(y)[size_t(i) * incy];          \
    *of(result) = sum;                                                                             \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##dotc(cublasHandle_t, int n, const T *x, int incx, const T *y, int incy,    \
                             T *result) {                                                          \
    using namespace kw::program::blas;                                                             \
    Of<T> sum = 0;                                                                                 \
    for (int i = 0; i < n; ++i)                                                                    \
      sum += conjugate(of(x)[size_t(i) * incx]) * of(y)[size_t(i) * incy];                         \
    *of(result) = sum;                                                                             \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##real##nrm2(cublasHandle_t, int n, const T *x, int incx, R *result) {             \
    double sum = 0;                                                                                \
    for (int i = 0; i < n; ++i) sum += std::norm(kw::program::blas::of(x)[size_t(i) * incx]);      \
    *result = static_cast<R>(std::sqrt(sum));                                                      \
    KW_DONE;                                                                                       \
  }
KW_COMPLEX(C, cuComplex, float, Sc)
KW_COMPLEX(Z, cuDoubleComplex, double, Dz)
#undef KW_COMPLEX

#define KW_ROTATIONS(name, T)                                                                  \
  KW_BLAS cublas##name##rot(cublasHandle_t, int n, T *x, int incx, T *y, int incy, const T *c, \
                            const T *s) {                                                      \
    for (int i = 0; i < n; ++i) {                                                              \
      T &a = x[size_t(i) * incx], &b = y[size_t(i) * incy];                                    \
      const T was = a;                                                                         \
      a = *c * a + *s * b;                                                                     \
      b = *c * b - *s * was;                                                                   \
    }                                                                                          \
    KW_DONE;                                                                                   \
  }
KW_ROTATIONS(S, float)
KW_ROTATIONS(D, double)
#undef KW_ROTATIONS
#undef KW_DONE
#undef KW_BLAS
