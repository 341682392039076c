// Stands for NVIDIA's header of the same name: the functions by which programs check results, and
// a few more, as plain CPU code (../cublas.cpp).
#pragma once
// By which programs know that the header is included.
#define CUBLAS_API_H_
#define CUBLAS_V2_H_
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef cublasStatus_t cublasStatus;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum {
  CUBLAS_FILL_MODE_LOWER,
  CUBLAS_FILL_MODE_UPPER,
  CUBLAS_FILL_MODE_FULL
} cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT } cublasSideMode_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED } cublasAtomicsMode_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1,
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT = -1,
  CUBLAS_GEMM_ALGO0 = 0,
  CUBLAS_GEMM_ALGO1 = 1,
  CUBLAS_GEMM_ALGO2 = 2,
  CUBLAS_GEMM_ALGO3 = 3,
  CUBLAS_GEMM_ALGO4 = 4,
  CUBLAS_GEMM_ALGO5 = 5,
  CUBLAS_GEMM_ALGO6 = 6,
  CUBLAS_GEMM_ALGO7 = 7,
  CUBLAS_GEMM_ALGO8 = 8,
  CUBLAS_GEMM_ALGO9 = 9,
  CUBLAS_GEMM_ALGO10 = 10,
  CUBLAS_GEMM_ALGO11 = 11,
  CUBLAS_GEMM_ALGO12 = 12,
  CUBLAS_GEMM_ALGO13 = 13,
  CUBLAS_GEMM_ALGO14 = 14,
  CUBLAS_GEMM_ALGO15 = 15,
  CUBLAS_GEMM_ALGO16 = 16,
  CUBLAS_GEMM_ALGO17 = 17,
  CUBLAS_GEMM_ALGO18 = 18,
  CUBLAS_GEMM_ALGO19 = 19,
  CUBLAS_GEMM_ALGO20 = 20,
  CUBLAS_GEMM_ALGO21 = 21,
  CUBLAS_GEMM_ALGO22 = 22,
  CUBLAS_GEMM_ALGO23 = 23,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
  CUBLAS_GEMM_ALGO1_TENSOR_OP = 101,
  CUBLAS_GEMM_ALGO2_TENSOR_OP = 102,
  CUBLAS_GEMM_ALGO3_TENSOR_OP = 103,
  CUBLAS_GEMM_ALGO4_TENSOR_OP = 104,
  CUBLAS_GEMM_ALGO5_TENSOR_OP = 105,
  CUBLAS_GEMM_ALGO6_TENSOR_OP = 106,
  CUBLAS_GEMM_ALGO7_TENSOR_OP = 107,
  CUBLAS_GEMM_ALGO8_TENSOR_OP = 108,
  CUBLAS_GEMM_ALGO9_TENSOR_OP = 109,
  CUBLAS_GEMM_ALGO10_TENSOR_OP = 110,
  CUBLAS_GEMM_ALGO11_TENSOR_OP = 111,
  CUBLAS_GEMM_ALGO12_TENSOR_OP = 112,
  CUBLAS_GEMM_ALGO13_TENSOR_OP = 113,
  CUBLAS_GEMM_ALGO14_TENSOR_OP = 114,
  CUBLAS_GEMM_ALGO15_TENSOR_OP = 115
} cublasGemmAlgo_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;
typedef struct cublasContext *cublasHandle_t;

#pragma GCC visibility push(default)
extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *);
cublasStatus_t cublasDestroy_v2(cublasHandle_t);
const char *cublasGetStatusString(cublasStatus_t);
const char *cublasGetStatusName(cublasStatus_t);
}
namespace kw::program::blas {
struct Matrix {  // column-major
  void *data;
  cudaDataType type;
  long long ld, stride;
};
// C = alpha op(A) op(B) + beta C, `count` times. alpha and beta are of type `scale`.
cublasStatus_t gemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                    const void *alpha, Matrix a, Matrix b, const void *beta, Matrix c, int count,
                    cudaDataType scale, bool in_half);
template <typename T> struct Type;
#define KW_TYPE(T, name)                        \
  template <> struct Type<T> {                  \
    static constexpr cudaDataType value = name; \
  };
KW_TYPE(float, CUDA_R_32F)
KW_TYPE(double, CUDA_R_64F)
KW_TYPE(__half, CUDA_R_16F)
#undef KW_TYPE
template <typename T>
inline cublasStatus_t of(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                         int k, const T *alpha, const T *a, int lda, long long sa, const T *b,
                         int ldb, long long sb, const T *beta, T *c, int ldc, long long sc,
                         int count) {
  constexpr auto type = Type<T>::value;
  return gemm(h, ta, tb, m, n, k, alpha, {const_cast<T *>(a), type, lda, sa},
              {const_cast<T *>(b), type, ldb, sb}, beta, {c, type, ldc, sc}, count, type,
              type == CUDA_R_16F);
}
}  // namespace kw::program::blas
#pragma GCC visibility pop

#define KW_BLAS inline cublasStatus_t
#define KW_DONE return CUBLAS_STATUS_SUCCESS

KW_BLAS cublasCreate(cublasHandle_t *h) { return cublasCreate_v2(h); }
KW_BLAS cublasDestroy(cublasHandle_t h) { return cublasDestroy_v2(h); }
KW_BLAS cublasSetStream(cublasHandle_t, cudaStream_t) { KW_DONE; }
KW_BLAS cublasSetWorkspace(cublasHandle_t, void *, size_t) { KW_DONE; }
KW_BLAS cublasSetMathMode(cublasHandle_t, cublasMath_t) { KW_DONE; }
KW_BLAS cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { KW_DONE; }
KW_BLAS cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) { KW_DONE; }
KW_BLAS cublasGetVersion(cublasHandle_t, int *version) {
  *version = 130000;
  KW_DONE;
}

#define KW_GEMM(name, T)                                                                           \
  KW_BLAS cublas##name##gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,  \
                             int n, int k, const T *alpha, const T *a, int lda, const T *b,        \
                             int ldb, const T *beta, T *c, int ldc) {                              \
    return kw::program::blas::of(h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, \
                                 1);                                                               \
  }                                                                                                \
  KW_BLAS cublas##name##gemmStridedBatched(                                                        \
      cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,           \
      const T *alpha, const T *a, int lda, long long sa, const T *b, int ldb, long long sb,        \
      const T *beta, T *c, int ldc, long long sc, int count) {                                     \
    return kw::program::blas::of(h, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,  \
                                 sc, count);                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##gemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,  \
                                    int m, int n, int k, const T *alpha, const T *const a[],       \
                                    int lda, const T *const b[], int ldb, const T *beta,           \
                                    T *const c[], int ldc, int count) {                            \
    for (int i = 0; i < count; ++i)                                                                \
      if (auto e = cublas##name##gemm(h, ta, tb, m, n, k, alpha, a[i], lda, b[i], ldb, beta, c[i], \
                                      ldc))                                                        \
        return e;                                                                                  \
    KW_DONE;                                                                                       \
  }
KW_GEMM(S, float)
KW_GEMM(D, double)
KW_GEMM(H, __half)
#undef KW_GEMM

namespace kw::program::blas {
inline cudaDataType scale_of(cublasComputeType_t c) {
  return c == CUBLAS_COMPUTE_64F || c == CUBLAS_COMPUTE_64F_PEDANTIC   ? CUDA_R_64F
         : c == CUBLAS_COMPUTE_16F || c == CUBLAS_COMPUTE_16F_PEDANTIC ? CUDA_R_16F
         : c == CUBLAS_COMPUTE_32I || c == CUBLAS_COMPUTE_32I_PEDANTIC ? CUDA_R_32I
                                                                       : CUDA_R_32F;
}
inline cudaDataType scale_of(cudaDataType c) { return c; }
}  // namespace kw::program::blas
template <typename Compute>
KW_BLAS cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                   int m, int n, int k, const void *alpha, const void *a,
                                   cudaDataType at, int lda, long long sa, const void *b,
                                   cudaDataType bt, int ldb, long long sb, const void *beta,
                                   void *c, cudaDataType ct, int ldc, long long sc, int count,
                                   Compute compute, cublasGemmAlgo_t) {
  const auto scale = kw::program::blas::scale_of(compute);
  return kw::program::blas::gemm(h, ta, tb, m, n, k, alpha, {const_cast<void *>(a), at, lda, sa},
                                 {const_cast<void *>(b), bt, ldb, sb}, beta, {c, ct, ldc, sc},
                                 count, scale, scale == CUDA_R_16F);
}
template <typename Compute>
KW_BLAS cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                     int k, const void *alpha, const void *a, cudaDataType at, int lda,
                     const void *b, cudaDataType bt, int ldb, const void *beta, void *c,
                     cudaDataType ct, int ldc, Compute compute, cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta,
                                    c, ct, ldc, 0, 1, compute, algo);
}
KW_BLAS cublasSgemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                      int k, const float *alpha, const void *a, cudaDataType at, int lda,
                      const void *b, cudaDataType bt, int ldb, const float *beta, void *c,
                      cudaDataType ct, int ldc) {
  return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc,
                      CUDA_R_32F, CUBLAS_GEMM_DEFAULT);
}

namespace kw::program::blas {
// n elements of a vector. As in the reference BLAS, the first one is the last in memory where the
// increment is negative.
template <typename T> struct Vector {
  T *first;
  ptrdiff_t step;
  Vector(T *x, int n, int increment)
      : first(increment < 0 ? x - ptrdiff_t(n - 1) * increment : x), step(increment) {}
  T &operator[](int i) const { return first[i * step]; }
};
}  // namespace kw::program::blas

#define KW_VECTORS_OF(name, small, T)                                                              \
  KW_BLAS cublas##name##gemv(cublasHandle_t h, cublasOperation_t t, int m, int n, const T *alpha,  \
                             const T *a, int lda, const T *x, int incx, const T *beta, T *y,       \
                             int incy) {                                                           \
    if (incx == 0 || incy == 0) return CUBLAS_STATUS_INVALID_VALUE;                                \
    const int rows = t == CUBLAS_OP_N ? m : n, inner = t == CUBLAS_OP_N ? n : m;                   \
    const kw::program::blas::Vector<const T> in(x, inner, incx);                                   \
    const kw::program::blas::Vector<T> out(y, rows, incy);                                         \
    for (int i = 0; i < rows; ++i) {                                                               \
      double sum = 0;                                                                              \
      for (int k = 0; k < inner; ++k)                                                              \
        sum += double(t == CUBLAS_OP_N ? a[i + size_t(k) * lda] : a[k + size_t(i) * lda]) * in[k]; \
      T &to = out[i];                                                                              \
      to = static_cast<T>(*alpha * sum + (*beta == 0 ? 0 : *beta * to));                           \
    }                                                                                              \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##axpy(cublasHandle_t, int n, const T *alpha, const T *x, int incx, T *y,    \
                             int incy) {                                                           \
    const kw::program::blas::Vector<const T> in(x, n, incx);                                       \
    const kw::program::blas::Vector<T> out(y, n, incy);                                            \
    for (int i = 0; i < n; ++i) out[i] += *alpha * in[i];                                          \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##scal(cublasHandle_t, int n, const T *alpha, T *x, int incx) {              \
    if (incx <= 0) n = 0;                                                                          \
    for (int i = 0; i < n; ++i) x[size_t(i) * incx] *= *alpha;                                     \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##copy(cublasHandle_t, int n, const T *x, int incx, T *y, int incy) {        \
    const kw::program::blas::Vector<const T> in(x, n, incx);                                       \
    const kw::program::blas::Vector<T> out(y, n, incy);                                            \
    for (int i = 0; i < n; ++i) out[i] = in[i];                                                    \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##swap(cublasHandle_t, int n, T *x, int incx, T *y, int incy) {              \
    const kw::program::blas::Vector<T> in(x, n, incx);                                             \
    const kw::program::blas::Vector<T> out(y, n, incy);                                            \
    for (int i = 0; i < n; ++i) std::swap(in[i], out[i]);                                          \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##dot(cublasHandle_t, int n, const T *x, int incx, const T *y, int incy,     \
                            T *result) {                                                           \
    const kw::program::blas::Vector<const T> in(x, n, incx);                                       \
    const kw::program::blas::Vector<const T> out(y, n, incy);                                      \
    double sum = 0;                                                                                \
    for (int i = 0; i < n; ++i) sum += double(in[i]) * out[i];                                     \
    *result = static_cast<T>(sum);                                                                 \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##nrm2(cublasHandle_t, int n, const T *x, int incx, T *result) {             \
    if (incx <= 0) n = 0;                                                                          \
    double sum = 0;                                                                                \
    for (int i = 0; i < n; ++i) sum += double(x[size_t(i) * incx]) * x[size_t(i) * incx];          \
    *result = static_cast<T>(std::sqrt(sum));                                                      \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##asum(cublasHandle_t, int n, const T *x, int incx, T *result) {             \
    if (incx <= 0) n = 0;                                                                          \
    double sum = 0;                                                                                \
    for (int i = 0; i < n; ++i) sum += std::fabs(double(x[size_t(i) * incx]));                     \
    *result = static_cast<T>(sum);                                                                 \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublasI##small##amax(cublasHandle_t, int n, const T *x, int incx, int *result) {         \
    if (incx <= 0) n = 0;                                                                          \
    int best = 0;                                                                                  \
    for (int i = 1; i < n; ++i)                                                                    \
      if (std::fabs(x[size_t(i) * incx]) > std::fabs(x[size_t(best) * incx])) best = i;            \
    *result = n > 0 ? best + 1 : 0;                                                                \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublasI##small##amin(cublasHandle_t, int n, const T *x, int incx, int *result) {         \
    if (incx <= 0) n = 0;                                                                          \
    int best = 0;                                                                                  \
    for (int i = 1; i < n; ++i)                                                                    \
      if (std::fabs(x[size_t(i) * incx]) < std::fabs(x[size_t(best) * incx])) best = i;            \
    *result = n > 0 ? best + 1 : 0;                                                                \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##ger(cublasHandle_t, int m, int n, const T *alpha, const T *x, int incx,    \
                            const T *y, int incy, T *a, int lda) {                                 \
    if (incx == 0 || incy == 0) return CUBLAS_STATUS_INVALID_VALUE;                                \
    const kw::program::blas::Vector<const T> column(x, m, incx), row(y, n, incy);                  \
    for (int j = 0; j < n; ++j)                                                                    \
      for (int i = 0; i < m; ++i) a[i + size_t(j) * lda] += *alpha * column[i] * row[j];           \
    KW_DONE;                                                                                       \
  }                                                                                                \
  KW_BLAS cublas##name##geam(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,    \
                             int n, const T *alpha, const T *a, int lda, const T *beta,            \
                             const T *b, int ldb, T *c, int ldc) {                                 \
    for (int j = 0; j < n; ++j)                                                                    \
      for (int i = 0; i < m; ++i) {                                                                \
        const T u = ta ? a[j + size_t(i) * lda] : a[i + size_t(j) * lda];                          \
        const T v = *beta == 0 ? T(0) : tb ? b[j + size_t(i) * ldb] : b[i + size_t(j) * ldb];      \
        c[i + size_t(j) * ldc] = *alpha * u + *beta * v;                                           \
      }                                                                                            \
    KW_DONE;                                                                                       \
  }
KW_VECTORS_OF(S, s, float)
KW_VECTORS_OF(D, d, double)
#undef KW_VECTORS_OF

namespace kw::program::blas {
inline cublasStatus_t copy(int rows, int cols, int size, const void *from, int ldf, void *to,
                           int ldt) {
  const auto e = cudaMemcpy2D(to, size_t(ldt) * size, from, size_t(ldf) * size, size_t(rows) * size,
                              cols, cudaMemcpyDefault);
  return e ? CUBLAS_STATUS_MAPPING_ERROR : CUBLAS_STATUS_SUCCESS;
}
}  // namespace kw::program::blas
KW_BLAS cublasSetVector(int n, int size, const void *x, int incx, void *y, int incy) {
  return kw::program::blas::copy(1, n, size, x, incx, y, incy);
}
KW_BLAS cublasGetVector(int n, int size, const void *x, int incx, void *y, int incy) {
  return kw::program::blas::copy(1, n, size, x, incx, y, incy);
}
KW_BLAS cublasSetMatrix(int rows, int cols, int size, const void *a, int lda, void *b, int ldb) {
  return kw::program::blas::copy(rows, cols, size, a, lda, b, ldb);
}
KW_BLAS cublasGetMatrix(int rows, int cols, int size, const void *a, int lda, void *b, int ldb) {
  return kw::program::blas::copy(rows, cols, size, a, lda, b, ldb);
}
KW_BLAS cublasSetVectorAsync(int n, int size, const void *x, int incx, void *y, int incy,
                             cudaStream_t) {
  return cublasSetVector(n, size, x, incx, y, incy);
}
KW_BLAS cublasGetVectorAsync(int n, int size, const void *x, int incx, void *y, int incy,
                             cudaStream_t) {
  return cublasGetVector(n, size, x, incx, y, incy);
}
KW_BLAS cublasSetMatrixAsync(int rows, int cols, int size, const void *a, int lda, void *b, int ldb,
                             cudaStream_t) {
  return cublasSetMatrix(rows, cols, size, a, lda, b, ldb);
}
KW_BLAS cublasGetMatrixAsync(int rows, int cols, int size, const void *a, int lda, void *b, int ldb,
                             cudaStream_t) {
  return cublasGetMatrix(rows, cols, size, a, lda, b, ldb);
}
#undef KW_DONE
#undef KW_BLAS
#define cublasSgemm_v2 cublasSgemm
#define cublasDgemm_v2 cublasDgemm
#define cublasSgemv_v2 cublasSgemv
#define cublasSetStream_v2 cublasSetStream
#include "cublas/extensions.h"
