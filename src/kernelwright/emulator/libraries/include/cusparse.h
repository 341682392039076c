// Stands for NVIDIA's header of the same name: matrices by rows, by columns and by coordinates,
// their products with vectors and matrices, and conversions, as plain CPU code (../cusparse.cpp).
#pragma once
// By which programs know that the header is included.
#define CUSPARSEAPI
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

typedef enum {
  CUSPARSE_STATUS_SUCCESS = 0,
  CUSPARSE_STATUS_NOT_INITIALIZED = 1,
  CUSPARSE_STATUS_ALLOC_FAILED = 2,
  CUSPARSE_STATUS_INVALID_VALUE = 3,
  CUSPARSE_STATUS_ARCH_MISMATCH = 4,
  CUSPARSE_STATUS_MAPPING_ERROR = 5,
  CUSPARSE_STATUS_EXECUTION_FAILED = 6,
  CUSPARSE_STATUS_INTERNAL_ERROR = 7,
  CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED = 8,
  CUSPARSE_STATUS_ZERO_PIVOT = 9,
  CUSPARSE_STATUS_NOT_SUPPORTED = 10,
  CUSPARSE_STATUS_INSUFFICIENT_RESOURCES = 11
} cusparseStatus_t;
typedef enum {
  CUSPARSE_OPERATION_NON_TRANSPOSE,
  CUSPARSE_OPERATION_TRANSPOSE,
  CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE
} cusparseOperation_t;
typedef enum { CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_INDEX_BASE_ONE } cusparseIndexBase_t;
typedef enum {
  CUSPARSE_INDEX_16U = 1,
  CUSPARSE_INDEX_32I = 2,
  CUSPARSE_INDEX_64I = 3
} cusparseIndexType_t;
typedef enum { CUSPARSE_ORDER_COL = 1, CUSPARSE_ORDER_ROW = 2 } cusparseOrder_t;
typedef enum {
  CUSPARSE_FORMAT_CSR = 1,
  CUSPARSE_FORMAT_CSC = 2,
  CUSPARSE_FORMAT_COO = 3
} cusparseFormat_t;
typedef enum { CUSPARSE_POINTER_MODE_HOST, CUSPARSE_POINTER_MODE_DEVICE } cusparsePointerMode_t;
typedef enum {
  CUSPARSE_SPMV_ALG_DEFAULT = 0,
  CUSPARSE_MV_ALG_DEFAULT = 0,
  CUSPARSE_SPMV_COO_ALG1 = 1,
  CUSPARSE_COOMV_ALG = 1,
  CUSPARSE_SPMV_CSR_ALG1 = 2,
  CUSPARSE_CSRMV_ALG1 = 2,
  CUSPARSE_SPMV_CSR_ALG2 = 3,
  CUSPARSE_CSRMV_ALG2 = 3,
  CUSPARSE_SPMV_COO_ALG2 = 4
} cusparseSpMVAlg_t;
typedef enum {
  CUSPARSE_SPMM_ALG_DEFAULT = 0,
  CUSPARSE_MM_ALG_DEFAULT = 0,
  CUSPARSE_SPMM_COO_ALG1 = 1,
  CUSPARSE_COOMM_ALG1 = 1,
  CUSPARSE_SPMM_COO_ALG2 = 2,
  CUSPARSE_SPMM_COO_ALG3 = 3,
  CUSPARSE_SPMM_CSR_ALG1 = 4,
  CUSPARSE_CSRMM_ALG1 = 4,
  CUSPARSE_SPMM_COO_ALG4 = 5,
  CUSPARSE_SPMM_CSR_ALG2 = 6,
  CUSPARSE_SPMM_CSR_ALG3 = 12
} cusparseSpMMAlg_t;
typedef enum { CUSPARSE_SPARSETODENSE_ALG_DEFAULT } cusparseSparseToDenseAlg_t;
typedef enum { CUSPARSE_DENSETOSPARSE_ALG_DEFAULT } cusparseDenseToSparseAlg_t;
typedef enum {
  CUSPARSE_MATRIX_TYPE_GENERAL,
  CUSPARSE_MATRIX_TYPE_SYMMETRIC,
  CUSPARSE_MATRIX_TYPE_HERMITIAN,
  CUSPARSE_MATRIX_TYPE_TRIANGULAR
} cusparseMatrixType_t;

typedef struct cusparseContext *cusparseHandle_t;
typedef struct cusparseSpMatDescr *cusparseSpMatDescr_t;
typedef struct cusparseDnVecDescr *cusparseDnVecDescr_t;
typedef struct cusparseDnMatDescr *cusparseDnMatDescr_t;
typedef const struct cusparseSpMatDescr *cusparseConstSpMatDescr_t;
typedef const struct cusparseDnVecDescr *cusparseConstDnVecDescr_t;
typedef const struct cusparseDnMatDescr *cusparseConstDnMatDescr_t;
typedef struct cusparseMatDescr *cusparseMatDescr_t;

#pragma GCC visibility push(default)
extern "C" {
cusparseStatus_t cusparseCreate(cusparseHandle_t *);
cusparseStatus_t cusparseDestroy(cusparseHandle_t);
cusparseStatus_t cusparseSetStream(cusparseHandle_t, cudaStream_t);
cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t, cusparsePointerMode_t);
const char *cusparseGetErrorName(cusparseStatus_t);
const char *cusparseGetErrorString(cusparseStatus_t);

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *, int64_t rows, int64_t columns,
                                   int64_t count, void *offsets, void *indices, void *values,
                                   cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                   cusparseIndexBase_t, cudaDataType);
cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t *, int64_t rows, int64_t columns,
                                   int64_t count, void *offsets, void *indices, void *values,
                                   cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                   cusparseIndexBase_t, cudaDataType);
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t *, int64_t rows, int64_t columns,
                                   int64_t count, void *row_indices, void *indices, void *values,
                                   cusparseIndexType_t, cusparseIndexBase_t, cudaDataType);
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t);
cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t, int64_t *rows, int64_t *columns,
                                      int64_t *count);
cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t, void *offsets, void *indices,
                                        void *values);
cusparseStatus_t cusparseCscSetPointers(cusparseSpMatDescr_t, void *offsets, void *indices,
                                        void *values);
cusparseStatus_t cusparseCooSetPointers(cusparseSpMatDescr_t, void *row_indices, void *indices,
                                        void *values);
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t *, int64_t size, void *values,
                                     cudaDataType);
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t);
cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t, void *values);
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t *, int64_t rows, int64_t columns,
                                     int64_t ld, void *values, cudaDataType, cusparseOrder_t);
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t);

cusparseStatus_t cusparseSpMV(cusparseHandle_t, cusparseOperation_t, const void *alpha,
                              cusparseConstSpMatDescr_t, cusparseConstDnVecDescr_t x,
                              const void *beta, cusparseDnVecDescr_t y, cudaDataType compute,
                              cusparseSpMVAlg_t, void *buffer);
cusparseStatus_t cusparseSpMM(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                              const void *alpha, cusparseConstSpMatDescr_t,
                              cusparseConstDnMatDescr_t, const void *beta, cusparseDnMatDescr_t,
                              cudaDataType compute, cusparseSpMMAlg_t, void *buffer);
cusparseStatus_t cusparseSparseToDense(cusparseHandle_t, cusparseConstSpMatDescr_t,
                                       cusparseDnMatDescr_t, cusparseSparseToDenseAlg_t,
                                       void *buffer);
cusparseStatus_t cusparseDenseToSparse_analysis(cusparseHandle_t, cusparseConstDnMatDescr_t,
                                                cusparseSpMatDescr_t, cusparseDenseToSparseAlg_t,
                                                void *buffer);
cusparseStatus_t cusparseDenseToSparse_convert(cusparseHandle_t, cusparseConstDnMatDescr_t,
                                               cusparseSpMatDescr_t, cusparseDenseToSparseAlg_t,
                                               void *buffer);
cusparseStatus_t cusparseXcoo2csr(cusparseHandle_t, const int *row_indices, int count, int rows,
                                  int *offsets, cusparseIndexBase_t);
cusparseStatus_t cusparseXcsr2coo(cusparseHandle_t, const int *offsets, int count, int rows,
                                  int *row_indices, cusparseIndexBase_t);
}

// Functions of toolkits before 11, with a descriptor of the matrix's index base.
extern "C" {
cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t *);
cusparseStatus_t cusparseDestroyMatDescr(cusparseMatDescr_t);
cusparseStatus_t cusparseSetMatType(cusparseMatDescr_t, cusparseMatrixType_t);
cusparseStatus_t cusparseSetMatIndexBase(cusparseMatDescr_t, cusparseIndexBase_t);
cusparseIndexBase_t cusparseGetMatIndexBase(cusparseMatDescr_t);
}
#pragma GCC visibility pop

#define KW_SPARSE inline cusparseStatus_t
// Nothing here needs memory of its own.
KW_SPARSE kw_no_buffer(size_t *bytes) {
  *bytes = 0;
  return CUSPARSE_STATUS_SUCCESS;
}
KW_SPARSE cusparseSpMV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void *,
                                  cusparseConstSpMatDescr_t, cusparseConstDnVecDescr_t,
                                  const void *, cusparseConstDnVecDescr_t, cudaDataType,
                                  cusparseSpMVAlg_t, size_t *bytes) {
  return kw_no_buffer(bytes);
}
KW_SPARSE cusparseSpMV_preprocess(cusparseHandle_t, cusparseOperation_t, const void *,
                                  cusparseConstSpMatDescr_t, cusparseConstDnVecDescr_t,
                                  const void *, cusparseConstDnVecDescr_t, cudaDataType,
                                  cusparseSpMVAlg_t, void *) {
  return CUSPARSE_STATUS_SUCCESS;
}
KW_SPARSE cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                                  const void *, cusparseConstSpMatDescr_t,
                                  cusparseConstDnMatDescr_t, const void *,
                                  cusparseConstDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t,
                                  size_t *bytes) {
  return kw_no_buffer(bytes);
}
KW_SPARSE cusparseSpMM_preprocess(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                                  const void *, cusparseConstSpMatDescr_t,
                                  cusparseConstDnMatDescr_t, const void *,
                                  cusparseConstDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t,
                                  void *) {
  return CUSPARSE_STATUS_SUCCESS;
}
KW_SPARSE cusparseSparseToDense_bufferSize(cusparseHandle_t, cusparseConstSpMatDescr_t,
                                           cusparseConstDnMatDescr_t, cusparseSparseToDenseAlg_t,
                                           size_t *bytes) {
  return kw_no_buffer(bytes);
}
KW_SPARSE cusparseDenseToSparse_bufferSize(cusparseHandle_t, cusparseConstDnMatDescr_t,
                                           cusparseConstSpMatDescr_t, cusparseDenseToSparseAlg_t,
                                           size_t *bytes) {
  return kw_no_buffer(bytes);
}
#define KW_SPARSE_OF(name, T, its)                                                                \
  KW_SPARSE cusparse##name##csrmv(cusparseHandle_t h, cusparseOperation_t op, int rows, int cols, \
                                  int count, const T *alpha, cusparseMatDescr_t d,                \
                                  const T *values, const int *offsets, const int *indices,        \
                                  const T *x, const T *beta, T *y) {                              \
    cusparseSpMatDescr_t a = nullptr;                                                             \
    cusparseDnVecDescr_t from = nullptr, to = nullptr;                                            \
    const bool plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;                                    \
    cusparseCreateCsr(&a, rows, cols, count, const_cast<int *>(offsets),                          \
                      const_cast<int *>(indices), const_cast<T *>(values), CUSPARSE_INDEX_32I,    \
                      CUSPARSE_INDEX_32I, cusparseGetMatIndexBase(d), its);                       \
    cusparseCreateDnVec(&from, plain ? cols : rows, const_cast<T *>(x), its);                     \
    cusparseCreateDnVec(&to, plain ? rows : cols, y, its);                                        \
    const auto e =                                                                                \
        cusparseSpMV(h, op, alpha, a, from, beta, to, its, CUSPARSE_SPMV_ALG_DEFAULT, nullptr);   \
    cusparseDestroySpMat(a), cusparseDestroyDnVec(from), cusparseDestroyDnVec(to);                \
    return e;                                                                                     \
  }
KW_SPARSE_OF(S, float, CUDA_R_32F)
KW_SPARSE_OF(D, double, CUDA_R_64F)
#undef KW_SPARSE_OF
#undef KW_SPARSE
