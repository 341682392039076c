// Packed, banded and Hermitian matrices of cuBLAS and updates of rank 1, 2 and k. A matrix is a
// function of row and column, which reads the triangle or the band that is stored.
#pragma once
#include "matrices.h"

namespace kw::program::blas {

// A vector; with a negative increment, its last element comes first.
template <typename T> struct Line {
  T *p;
  int n;
  long long inc;
  T &operator()(int i) const { return p[inc < 0 ? (i - n + 1) * inc : i * inc]; }
};

// Where a matrix has the element in row i, column j, and which elements it has.
struct Full {
  size_t ld;
  size_t operator()(int i, int j) const { return i + j * ld; }
  bool has(int, int) const { return true; }
};
struct Packed {  // a triangle, column after column
  long long n;
  bool lower;
  size_t operator()(int i, int j) const {
    return lower ? i + (2 * n - j - 1) * j / 2 : i + (j + 1ll) * j / 2;
  }
  bool has(int, int) const { return true; }
};
struct Band {  // diagonals in rows
  size_t ld;
  int below, above;
  size_t operator()(int i, int j) const { return above + i - j + j * ld; }
  bool has(int i, int j) const { return i - j <= below && j - i <= above; }
};
inline bool is_lower(cublasFillMode_t part) { return part == CUBLAS_FILL_MODE_LOWER; }
inline Band band(cublasFillMode_t part, int k, int ld) {
  return {size_t(ld), is_lower(part) ? k : 0, is_lower(part) ? 0 : k};
}

// A symmetric or Hermitian matrix, of which one triangle is stored.
template <typename T, typename Where> struct Mirrored {
  const T *a;
  Where where;
  bool lower, hermitian;
  T operator()(int i, int j) const {
    const bool kept = lower ? i >= j : i <= j;
    if (!kept) std::swap(i, j);
    if (!where.has(i, j)) return T(0);
    const T x = a[where(i, j)];
    return hermitian && (!kept || i == j) ? (i == j ? T(std::real(x)) : conjugate(x)) : x;
  }
};
// op of a matrix without the elements that `where` does not have.
template <typename T, typename Where> struct Part {
  const T *a;
  Where where;
  cublasOperation_t op;
  T operator()(int i, int j) const {
    if (op != CUBLAS_OP_N) std::swap(i, j);
    if (!where.has(i, j)) return T(0);
    const T x = a[where(i, j)];
    return op == CUBLAS_OP_C ? conjugate(x) : x;
  }
};
// op of a triangle. `low`: op of it is a lower triangle.
template <typename T, typename Where> struct Sided {
  Part<T, Where> its;
  bool low, unit;
  Sided(const T *a, Where where, cublasFillMode_t part, cublasOperation_t op, cublasDiagType_t d)
      : its{a, where, op},
        low(is_lower(part) == (op == CUBLAS_OP_N)),
        unit(d == CUBLAS_DIAG_UNIT) {}
  T operator()(int i, int j) const {
    if (i == j && unit) return T(1);
    return (low ? i >= j : i <= j) ? its(i, j) : T(0);
  }
};

// y = alpha A x + beta y
template <typename T, typename A>
cublasStatus_t times(int rows, int columns, T alpha, A a, Line<const T> x, T beta, Line<T> y) {
  for (int i = 0; i < rows; ++i) {
    T sum = 0;
    for (int j = 0; j < columns; ++j) sum += a(i, j) * x(j);
    y(i) = alpha * sum + (beta == T(0) ? T(0) : beta * y(i));
  }
  return CUBLAS_STATUS_SUCCESS;
}
// x = A x
template <typename T, typename A> cublasStatus_t times(int n, A a, Line<T> x) {
  std::vector<T> copy(n);
  for (int i = 0; i < n; ++i) copy[i] = x(i);
  return times<T>(n, n, T(1), a, {copy.data(), n, 1}, T(0), x);
}
// x = A^-1 x for a triangle A
template <typename T, typename A> cublasStatus_t solved(int n, A a, Line<T> x) {
  for (int k = 0; k < n; ++k) {
    const int i = a.low ? k : n - 1 - k;
    for (int j = a.low ? 0 : i + 1, end = a.low ? i : n; j < end; ++j) x(i) -= a(i, j) * x(j);
    x(i) /= a(i, i);
  }
  return CUBLAS_STATUS_SUCCESS;
}
// Adds f(i, j) to each element of a triangle.
template <typename T, typename Where, typename F>
cublasStatus_t update(int n, bool lower, bool hermitian, T *a, Where where, F f) {
  for (int j = 0; j < n; ++j)
    for (int i = lower ? j : 0; i < (lower ? n : j + 1); ++i) {
      T &to = a[where(i, j)];
      to += f(i, j);
      if (hermitian && i == j) to = T(std::real(to));
    }
  return CUBLAS_STATUS_SUCCESS;
}
// C = beta C + the sum over p < k of f(i, j, p), in a triangle.
template <typename T, typename F>
cublasStatus_t update(int n, int k, bool lower, bool hermitian, T beta, T *c, size_t ld, F f) {
  return update(n, lower, hermitian, c, Full{ld}, [&](int i, int j) {
    T sum = 0;
    for (int p = 0; p < k; ++p) sum += f(i, j, p);
    T &to = c[i + j * ld];
    if (beta == T(0)) to = 0;
    return sum + (beta == T(0) ? T(0) : (beta - T(1)) * to);
  });
}
}  // namespace kw::program::blas

#define KW_BLAS inline cublasStatus_t
#define KW_LINE(x) \
  Line<Of<T>> { of(x), n, inc##x }
#define KW_CONST_LINE(x) \
  Line<const Of<T>> { of(x), n, inc##x }

// `name`: sy, sp, sb or the Hermitian ones; H: whether the other triangle is conjugated.
#define KW_MIRRORED_OF(letter, type, full, packed, banded, H)                                   \
  KW_BLAS cublas##letter##packed##mv(cublasHandle_t, cublasFillMode_t part, int n,              \
                                     const type *alpha, const type *a, const type *x, int incx, \
                                     const type *beta, type *y, int incy) {                     \
    using namespace kw::program::blas;                                                          \
    using T = type;                                                                             \
    const Mirrored<Of<T>, Packed> m{of(a), {n, is_lower(part)}, is_lower(part), H};             \
    return times<Of<T>>(n, n, *of(alpha), m, KW_CONST_LINE(x), *of(beta), KW_LINE(y));          \
  }                                                                                             \
  KW_BLAS cublas##letter##banded##mv(cublasHandle_t, cublasFillMode_t part, int n, int k,       \
                                     const type *alpha, const type *a, int lda, const type *x,  \
                                     int incx, const type *beta, type *y, int incy) {           \
    using namespace kw::program::blas;                                                          \
    using T = type;                                                                             \
    const Mirrored<Of<T>, Band> m{of(a), band(part, k, lda), is_lower(part), H};                \
    return times<Of<T>>(n, n, *of(alpha), m, KW_CONST_LINE(x), *of(beta), KW_LINE(y));          \
  }                                                                                             \
  KW_BLAS cublas##letter##full##r2(cublasHandle_t, cublasFillMode_t part, int n,                \
                                   const type *alpha, const type *x, int incx, const type *y,   \
                                   int incy, type *a, int lda) {                                \
    using namespace kw::program::blas;                                                          \
    using T = type;                                                                             \
    const auto u = KW_CONST_LINE(x), v = KW_CONST_LINE(y);                                      \
    const Of<T> s = *of(alpha), t = H ? conjugate(s) : s;                                       \
    return update(n, is_lower(part), H, of(a), Full{size_t(lda)}, [&](int i, int j) {           \
      return H ? s * u(i) * conjugate(v(j)) + t * v(i) * conjugate(u(j))                        \
               : s * (u(i) * v(j) + v(i) * u(j));                                               \
    });                                                                                         \
  }                                                                                             \
  KW_BLAS cublas##letter##packed##r2(cublasHandle_t, cublasFillMode_t part, int n,              \
                                     const type *alpha, const type *x, int incx, const type *y, \
                                     int incy, type *a) {                                       \
    using namespace kw::program::blas;                                                          \
    using T = type;                                                                             \
    const auto u = KW_CONST_LINE(x), v = KW_CONST_LINE(y);                                      \
    const Of<T> s = *of(alpha), t = H ? conjugate(s) : s;                                       \
    return update(n, is_lower(part), H, of(a), Packed{n, is_lower(part)}, [&](int i, int j) {   \
      return H ? s * u(i) * conjugate(v(j)) + t * v(i) * conjugate(u(j))                        \
               : s * (u(i) * v(j) + v(i) * u(j));                                               \
    });                                                                                         \
  }
KW_MIRRORED_OF(S, float, sy, sp, sb, false)
KW_MIRRORED_OF(D, double, sy, sp, sb, false)
KW_MIRRORED_OF(C, cuComplex, he, hp, hb, true)
KW_MIRRORED_OF(Z, cuDoubleComplex, he, hp, hb, true)
#undef KW_MIRRORED_OF

// Updates of rank 1; alpha is real for a Hermitian matrix.
#define KW_RANK_1_OF(letter, type, real, full, packed, H)                                          \
  KW_BLAS cublas##letter##full##r(cublasHandle_t, cublasFillMode_t part, int n, const real *alpha, \
                                  const type *x, int incx, type *a, int lda) {                     \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const auto u = KW_CONST_LINE(x);                                                               \
    return update(n, is_lower(part), H, of(a), Full{size_t(lda)},                                  \
                  [&](int i, int j) { return *of(alpha) * u(i) * (H ? conjugate(u(j)) : u(j)); }); \
  }                                                                                                \
  KW_BLAS cublas##letter##packed##r(cublasHandle_t, cublasFillMode_t part, int n,                  \
                                    const real *alpha, const type *x, int incx, type *a) {         \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const auto u = KW_CONST_LINE(x);                                                               \
    return update(n, is_lower(part), H, of(a), Packed{n, is_lower(part)},                          \
                  [&](int i, int j) { return *of(alpha) * u(i) * (H ? conjugate(u(j)) : u(j)); }); \
  }
KW_RANK_1_OF(S, float, float, sy, sp, false)
KW_RANK_1_OF(D, double, double, sy, sp, false)
KW_RANK_1_OF(C, cuComplex, float, he, hp, true)
KW_RANK_1_OF(Z, cuDoubleComplex, double, he, hp, true)
#undef KW_RANK_1_OF

// Triangles and bands; products of the elements of two matrices.
#define KW_TRIANGLE_OF(letter, type, short, act, parameters, where)                              \
  KW_BLAS cublas##letter##short(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,     \
                                cublasDiagType_t diagonal, int n, KW_REMOVE parameters, type *x, \
                                int incx) {                                                      \
    using namespace kw::program::blas;                                                           \
    using T = type;                                                                              \
    const auto its = where;                                                                      \
    return act(n, Sided<Of<T>, std::decay_t<decltype(its)>>(of(a), its, part, op, diagonal),     \
               KW_LINE(x));                                                                      \
  }
#define KW_REMOVE(...) __VA_ARGS__
#define KW_PARTS_OF(letter, type)                                                                  \
  KW_TRIANGLE_OF(letter, type, trmv, times, (const type *a, int lda), Full{size_t(lda)})           \
  KW_TRIANGLE_OF(letter, type, tpmv, times, (const type *a), (Packed{n, is_lower(part)}))          \
  KW_TRIANGLE_OF(letter, type, tpsv, solved, (const type *a), (Packed{n, is_lower(part)}))         \
  KW_TRIANGLE_OF(letter, type, tbmv, times, (int k, const type *a, int lda), band(part, k, lda))   \
  KW_TRIANGLE_OF(letter, type, tbsv, solved, (int k, const type *a, int lda), band(part, k, lda))  \
  KW_BLAS cublas##letter##gbmv(cublasHandle_t, cublasOperation_t op, int m, int n, int kl, int ku, \
                               const type *alpha, const type *a, int lda, const type *x, int incx, \
                               const type *beta, type *y, int incy) {                              \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Part<Of<T>, Band> its{of(a), {size_t(lda), kl, ku}, op};                                 \
    const int rows = op == CUBLAS_OP_N ? m : n, columns = op == CUBLAS_OP_N ? n : m;               \
    return times<Of<T>>(rows, columns, *of(alpha), its, {of(x), columns, incx}, *of(beta),         \
                        {of(y), rows, incy});                                                      \
  }                                                                                                \
  KW_BLAS cublas##letter##syr2k(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,       \
                                int n, int k, const type *alpha, const type *a, int lda,           \
                                const type *b, int ldb, const type *beta, type *c, int ldc) {      \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Read<Of<T>> u{of(a), size_t(lda), op}, v{of(b), size_t(ldb), op};                        \
    const Of<T> s = *of(alpha);                                                                    \
    return update(n, k, is_lower(part), false, *of(beta), of(c), ldc, [&](int i, int j, int p) {   \
      return s * (u(i, p) * v(j, p) + v(i, p) * u(j, p));                                          \
    });                                                                                            \
  }                                                                                                \
  KW_BLAS cublas##letter##syrkx(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,       \
                                int n, int k, const type *alpha, const type *a, int lda,           \
                                const type *b, int ldb, const type *beta, type *c, int ldc) {      \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Read<Of<T>> u{of(a), size_t(lda), op}, v{of(b), size_t(ldb), op};                        \
    const Of<T> s = *of(alpha);                                                                    \
    return update(n, k, is_lower(part), false, *of(beta), of(c), ldc,                              \
                  [&](int i, int j, int p) { return s * u(i, p) * v(j, p); });                     \
  }                                                                                                \
  KW_BLAS cublas##letter##trttp(cublasHandle_t, cublasFillMode_t part, int n, const type *a,       \
                                int lda, type *packed) {                                           \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Packed where{n, is_lower(part)};                                                         \
    for (int j = 0; j < n; ++j)                                                                    \
      for (int i = where.lower ? j : 0; i < (where.lower ? n : j + 1); ++i)                        \
        packed[where(i, j)] = a[i + size_t(j) * lda];                                              \
    return CUBLAS_STATUS_SUCCESS;                                                                  \
  }                                                                                                \
  KW_BLAS cublas##letter##tpttr(cublasHandle_t, cublasFillMode_t part, int n, const type *packed,  \
                                type *a, int lda) {                                                \
    using namespace kw::program::blas;                                                             \
    const Packed where{n, is_lower(part)};                                                         \
    for (int j = 0; j < n; ++j)                                                                    \
      for (int i = where.lower ? j : 0; i < (where.lower ? n : j + 1); ++i)                        \
        a[i + size_t(j) * lda] = packed[where(i, j)];                                              \
    return CUBLAS_STATUS_SUCCESS;                                                                  \
  }
KW_PARTS_OF(S, float)
KW_PARTS_OF(D, double)
KW_PARTS_OF(C, cuComplex)
KW_PARTS_OF(Z, cuDoubleComplex)
#undef KW_PARTS_OF
#undef KW_TRIANGLE_OF
#undef KW_REMOVE

#define KW_HERMITIAN_OF(letter, type, real)                                                        \
  KW_BLAS cublas##letter##hemv(cublasHandle_t, cublasFillMode_t part, int n, const type *alpha,    \
                               const type *a, int lda, const type *x, int incx, const type *beta,  \
                               type *y, int incy) {                                                \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Mirrored<Of<T>, Full> m{of(a), {size_t(lda)}, is_lower(part), true};                     \
    return times<Of<T>>(n, n, *of(alpha), m, KW_CONST_LINE(x), *of(beta), KW_LINE(y));             \
  }                                                                                                \
  KW_BLAS cublas##letter##hemm(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t part,       \
                               int m, int n, const type *alpha, const type *a, int lda,            \
                               const type *b, int ldb, const type *beta, type *c, int ldc) {       \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Mirrored<Of<T>, Full> h{of(a), {size_t(lda)}, is_lower(part), true};                     \
    const Read<Of<T>> r{of(b), size_t(ldb), CUBLAS_OP_N};                                          \
    return side == CUBLAS_SIDE_LEFT                                                                \
               ? multiply(m, n, m, *of(alpha), h, r, *of(beta), of(c), ldc, everywhere)            \
               : multiply(m, n, n, *of(alpha), r, h, *of(beta), of(c), ldc, everywhere);           \
  }                                                                                                \
  KW_BLAS cublas##letter##herkx(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,       \
                                int n, int k, const type *alpha, const type *a, int lda,           \
                                const type *b, int ldb, const real *beta, type *c, int ldc) {      \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Read<Of<T>> u{of(a), size_t(lda), op}, v{of(b), size_t(ldb), op};                        \
    const Of<T> s = *of(alpha);                                                                    \
    return update(n, k, is_lower(part), true, Of<T>(*beta), of(c), ldc,                            \
                  [&](int i, int j, int p) { return s * u(i, p) * conjugate(v(j, p)); });          \
  }                                                                                                \
  KW_BLAS cublas##letter##herk(cublasHandle_t h, cublasFillMode_t part, cublasOperation_t op,      \
                               int n, int k, const real *alpha, const type *a, int lda,            \
                               const real *beta, type *c, int ldc) {                               \
    const type s = {*alpha, 0};                                                                    \
    return cublas##letter##herkx(h, part, op, n, k, &s, a, lda, a, lda, beta, c, ldc);             \
  }                                                                                                \
  KW_BLAS cublas##letter##her2k(cublasHandle_t, cublasFillMode_t part, cublasOperation_t op,       \
                                int n, int k, const type *alpha, const type *a, int lda,           \
                                const type *b, int ldb, const real *beta, type *c, int ldc) {      \
    using namespace kw::program::blas;                                                             \
    using T = type;                                                                                \
    const Read<Of<T>> u{of(a), size_t(lda), op}, v{of(b), size_t(ldb), op};                        \
    const Of<T> s = *of(alpha);                                                                    \
    return update(n, k, is_lower(part), true, Of<T>(*beta), of(c), ldc, [&](int i, int j, int p) { \
      return s * u(i, p) * conjugate(v(j, p)) + conjugate(s) * v(i, p) * conjugate(u(j, p));       \
    });                                                                                            \
  }
KW_HERMITIAN_OF(C, cuComplex, float)
KW_HERMITIAN_OF(Z, cuDoubleComplex, double)
#undef KW_HERMITIAN_OF
#undef KW_LINE
#undef KW_CONST_LINE
#undef KW_BLAS
