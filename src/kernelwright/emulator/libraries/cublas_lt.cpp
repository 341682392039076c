// cuBLASLt: a product in floats, and an epilogue that is applied before they are rounded.
#include "matrix_elements.h"
#include "cublasLt.h"

#include <cstring>

struct cublasLtContext {
  int unused;
};
struct cublasLtMatmulPreferenceOpaque_t {
  int unused;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  unsigned long rows, columns;
  long ld, stride;
  int count;
  cublasLtOrder_t order;

  size_t at(size_t i, size_t j) const {
    return order == CUBLASLT_ORDER_ROW ? i * ld + j : i + j * ld;
  }
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a, b;
  cublasLtEpilogue_t epilogue;
  int device_scalars;
  void *bias, *aux;
  long aux_ld, aux_stride, bias_stride;
  int bias_type, aux_type;                             // -1: the type of the result
  const float *a_scale, *b_scale, *c_scale, *d_scale;  // each may be null
};

namespace kw::program::blas {
namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Desc = cublasLtMatmulDescOpaque_t;
constexpr unsigned kRelu = 2, kBias = 4, kDerivative = 64, kGelu = 32, kAux = 128;

template <typename T> cublasStatus_t set(T &to, const void *from, size_t bytes) {
  if (!from || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

// The argument of GELU's tanh, as in cuBLASLt.
double inner(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + inner(x)); }
double gelu_slope(double x) {
  const double t = inner(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// Computes a result from one number of the product.
struct Epilogue {
  const Desc &its;
  const Layout &result;
  int batch;

  bool has(unsigned part) const { return its.epilogue & part; }
  cudaDataType type(int own) const {
    return own < 0 ? result.type : static_cast<cudaDataType>(own);
  }
  double operator()(double x, size_t i, size_t j) const {
    const size_t at = i + j * its.aux_ld + batch * its.aux_stride;
    if (its.epilogue == CUBLASLT_EPILOGUE_DGELU)
      return x * gelu_slope(element(its.aux, type(its.aux_type), at));
    if (its.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return x;
    if (has(kBias)) x += element(its.bias, type(its.bias_type), i + batch * its.bias_stride);
    if (has(kAux)) put(its.aux, type(its.aux_type), at, x);
    return has(kRelu) ? std::fmax(x, 0) : has(kGelu) ? gelu(x) : x;
  }
};

bool supported(cublasLtEpilogue_t e) {
  return e != CUBLASLT_EPILOGUE_RELU_AUX && e != CUBLASLT_EPILOGUE_RELU_AUX_BIAS &&
         e != CUBLASLT_EPILOGUE_DRELU && e != CUBLASLT_EPILOGUE_DRELU_BGRAD &&
         e != CUBLASLT_EPILOGUE_DGELU_BGRAD;
}

void *advanced(const void *p, const Layout &l, int batch) {
  const auto bytes = batch * l.stride * static_cast<long>(bytes_of(l.type));
  return const_cast<char *>(static_cast<const char *>(p) + bytes);
}
cublasOperation_t flipped(cublasOperation_t op, const Layout &l) {
  if (l.order == CUBLASLT_ORDER_COL) return op;
  return op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// The sums over k of op(A) or op(B), which are the gradient of a bias.
void bias_gradient(const Desc &d, const void *from, const Layout &l, cublasOperation_t op,
                   bool by_columns, cudaDataType type) {
  const bool along_rows = by_columns == (op == CUBLAS_OP_N);
  const size_t n = along_rows ? l.columns : l.rows, k = along_rows ? l.rows : l.columns;
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (size_t p = 0; p < k; ++p)
      sum += element(from, l.type, along_rows ? l.at(p, i) : l.at(i, p));
    put(d.bias, type, i, sum);
  }
  wrote(d.bias, n * bytes_of(type));
}

double scaled(const float *by) { return by ? *by : 1; }

cublasStatus_t multiply(const Desc &d, const void *alpha, const void *a, const Layout &la,
                        const void *b, const Layout &lb, const void *beta, const void *c,
                        const Layout &lc, void *result, const Layout &ld, int batch) {
  const int m = static_cast<int>(ld.rows), n = static_cast<int>(ld.columns);
  const int k = static_cast<int>(d.a == CUBLAS_OP_N ? la.columns : la.rows);
  if (static_cast<unsigned long>(k) != (d.b == CUBLAS_OP_N ? lb.rows : lb.columns))
    return CUBLAS_STATUS_INVALID_VALUE;
  const cudaDataType sums = d.scale == CUDA_R_64F || d.scale == CUDA_R_32I ? d.scale : CUDA_R_32F;
  std::vector<char> converted(size_t(m) * n * bytes_of(sums));
  const double zero[1] = {};
  const auto status =
      gemm(reinterpret_cast<cublasHandle_t>(const_cast<double *>(zero)), flipped(d.a, la),
           flipped(d.b, lb), m, n, k, alpha, {advanced(a, la, batch), la.type, la.ld, 0},
           {advanced(b, lb, batch), lb.type, lb.ld, 0}, zero, {converted.data(), sums, m, 0}, 1,
           d.scale, false);
  if (status) return status;
  const double old = element(beta, d.scale, 0) * scaled(d.c_scale);
  const double by = scaled(d.a_scale) * scaled(d.b_scale);
  const void *before = advanced(c, lc, batch);
  void *to = advanced(result, ld, batch);
  const Epilogue epilogue = {d, ld, batch};
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      double x = by * element(converted.data(), sums, i + size_t(j) * m);
      if (old != 0) x += old * element(before, lc.type, lc.at(i, j));
      put(to, ld.type, ld.at(i, j), epilogue(x, i, j) * scaled(d.d_scale));
    }
  wrote(to, (ld.at(m - 1, n - 1) + 1) * bytes_of(ld.type));
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace kw::program::blas

using namespace kw::program::blas;

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
  *h = new cublasLtContext{0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          unsigned long rows, unsigned long columns, long ld) {
  *l = new Layout{type, rows, columns, ld, 0, 1, CUBLASLT_ORDER_COL};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *from, size_t bytes) {
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set(l->type, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(l->order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(l->rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(l->columns, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(l->ld, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(l->count, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(l->stride, from, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType scale) {
  *d = new Desc{compute, scale,   CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                0,       nullptr, nullptr,     0,           0,
                0,       -1,      -1,          nullptr,     nullptr,
                nullptr, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *from, size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return set(d->compute, from, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return set(d->scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(d->device_scalars, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d->a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d->b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(d->bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set(d->bias_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(d->aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(d->aux_ld, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return set(d->aux_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return set(d->aux_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(d->a_scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(d->b_scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
      return set(d->c_scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
      return set(d->d_scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
  *p = new cublasLtMatmulPreferenceOpaque_t{0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *count) {
  *count = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(d->epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *result, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t) {
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!d || !la || !lb || !lc || !ld) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(d->epilogue) || !known(lc->type) || !known(ld->type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < ld->count; ++i)
    if (const auto e = multiply(*d, alpha, a, *la, b, *lb, beta, c, *lc, result, *ld, i)) return e;
  const auto type = d->bias_type < 0 ? ld->type : static_cast<cudaDataType>(d->bias_type);
  if (d->epilogue == CUBLASLT_EPILOGUE_BGRADA) bias_gradient(*d, a, *la, d->a, false, type);
  if (d->epilogue == CUBLASLT_EPILOGUE_BGRADB) bias_gradient(*d, b, *lb, d->b, true, type);
  return CUBLAS_STATUS_SUCCESS;
}
}
