// cuSPARSE: each matrix is read as a list of its elements, (row, column, value).
#include <algorithm>
#include <cstring>

#include "matrix_elements.h"
#include "cusparse.h"

using kw::program::blas::bytes_of;
using kw::program::blas::element;
using kw::program::blas::known;
using kw::program::blas::put;

struct cusparseContext {
  int unused;
};
struct cusparseMatDescr {
  cusparseIndexBase_t base;
};
struct cusparseSpMatDescr {
  cusparseFormat_t format;
  int64_t rows, columns, count;
  void *offsets, *indices, *values;  // offsets: of rows or columns, or the indices of rows
  cusparseIndexType_t offset_type, index_type;
  cusparseIndexBase_t base;
  cudaDataType type;
};
struct cusparseDnVecDescr {
  int64_t size;
  void *values;
  cudaDataType type;
};
struct cusparseDnMatDescr {
  int64_t rows, columns, ld;
  void *values;
  cudaDataType type;
  cusparseOrder_t order;
  size_t at(int64_t row, int64_t column) const {
    return order == CUSPARSE_ORDER_COL ? row + column * ld : row * ld + column;
  }
  size_t bytes() const {
    return (order == CUSPARSE_ORDER_COL ? columns : rows) * ld * bytes_of(type);
  }
};

namespace {

int64_t index(const void *p, cusparseIndexType_t type, int64_t i) {
  switch (type) {
    case CUSPARSE_INDEX_16U:
      return static_cast<const unsigned short *>(p)[i];
    case CUSPARSE_INDEX_32I:
      return static_cast<const int *>(p)[i];
    default:
      return static_cast<const int64_t *>(p)[i];
  }
}
void put_index(void *p, cusparseIndexType_t type, int64_t i, int64_t x) {
  switch (type) {
    case CUSPARSE_INDEX_16U:
      static_cast<unsigned short *>(p)[i] = static_cast<unsigned short>(x);
      break;
    case CUSPARSE_INDEX_32I:
      static_cast<int *>(p)[i] = static_cast<int>(x);
      break;
    default:
      static_cast<int64_t *>(p)[i] = x;
  }
}
size_t bytes_of_index(cusparseIndexType_t type) {
  return type == CUSPARSE_INDEX_16U ? 2 : type == CUSPARSE_INDEX_32I ? 4 : 8;
}

// Calls act(row, column, value) for each stored element.
template <typename F> void each(const cusparseSpMatDescr &a, F act) {
  const auto value = [&](int64_t i) { return element(a.values, a.type, i); };
  const auto other = [&](int64_t i) { return index(a.indices, a.index_type, i) - a.base; };
  const auto offset = [&](int64_t i) { return index(a.offsets, a.offset_type, i) - a.base; };
  if (a.format == CUSPARSE_FORMAT_COO) {
    for (int64_t i = 0; i < a.count; ++i) act(offset(i), other(i), value(i));
    return;
  }
  const bool by_rows = a.format == CUSPARSE_FORMAT_CSR;
  for (int64_t line = 0; line < (by_rows ? a.rows : a.columns); ++line)
    for (int64_t i = offset(line); i < offset(line + 1); ++i)
      by_rows ? act(line, other(i), value(i)) : act(other(i), line, value(i));
}

cusparseStatus_t created(cusparseSpMatDescr_t *matrix, const cusparseSpMatDescr &its) {
  if (!known(its.type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (its.rows < 0 || its.columns < 0 || its.count < 0) return CUSPARSE_STATUS_INVALID_VALUE;
  *matrix = new cusparseSpMatDescr(its);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t pointers(cusparseSpMatDescr_t a, void *offsets, void *indices, void *values) {
  a->offsets = offsets, a->indices = indices, a->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}

// The numbers of a result, added up in double precision: alpha sum + beta before.
struct Sums {
  std::vector<double> sums;
  double alpha, beta;
  Sums(size_t count, const void *alpha, const void *beta, cudaDataType compute)
      : sums(count), alpha(element(alpha, compute, 0)), beta(element(beta, compute, 0)) {}
  void store(size_t i, void *to, cudaDataType type, size_t at) const {
    put(to, type, at, alpha * sums[i] + (beta == 0 ? 0 : beta * element(to, type, at)));
  }
};

// Calls act(line, other, value) for each element of a dense matrix that is not 0, in the order of
// a sparse format.
template <typename F> void nonzero(const cusparseDnMatDescr &a, bool by_rows, F act) {
  for (int64_t i = 0; i < (by_rows ? a.rows : a.columns); ++i)
    for (int64_t j = 0; j < (by_rows ? a.columns : a.rows); ++j)
      if (const double x = element(a.values, a.type, by_rows ? a.at(i, j) : a.at(j, i)); x != 0)
        act(i, j, x);
}

}  // namespace

#define DONE return CUSPARSE_STATUS_SUCCESS

extern "C" {

cusparseStatus_t cusparseCreate(cusparseHandle_t *handle) {
  *handle = new cusparseContext{0};
  DONE;
}
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
  delete handle;
  DONE;
}
cusparseStatus_t cusparseSetStream(cusparseHandle_t, cudaStream_t) { DONE; }
cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t, cusparsePointerMode_t) { DONE; }
const char *cusparseGetErrorName(cusparseStatus_t e) {
  switch (e) {
    case CUSPARSE_STATUS_SUCCESS:
      return "CUSPARSE_STATUS_SUCCESS";
    case CUSPARSE_STATUS_INVALID_VALUE:
      return "CUSPARSE_STATUS_INVALID_VALUE";
    case CUSPARSE_STATUS_NOT_SUPPORTED:
      return "CUSPARSE_STATUS_NOT_SUPPORTED";
    default:
      return "CUSPARSE_STATUS_EXECUTION_FAILED";
  }
}
const char *cusparseGetErrorString(cusparseStatus_t e) { return cusparseGetErrorName(e); }

// ---- matrices and vectors

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *matrix, int64_t rows, int64_t columns,
                                   int64_t count, void *offsets, void *indices, void *values,
                                   cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                   cusparseIndexBase_t base, cudaDataType type) {
  return created(matrix, {CUSPARSE_FORMAT_CSR, rows, columns, count, offsets, indices, values,
                          offset_type, index_type, base, type});
}
cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t *matrix, int64_t rows, int64_t columns,
                                   int64_t count, void *offsets, void *indices, void *values,
                                   cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                   cusparseIndexBase_t base, cudaDataType type) {
  return created(matrix, {CUSPARSE_FORMAT_CSC, rows, columns, count, offsets, indices, values,
                          offset_type, index_type, base, type});
}
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t *matrix, int64_t rows, int64_t columns,
                                   int64_t count, void *row_indices, void *indices, void *values,
                                   cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                   cudaDataType type) {
  return created(matrix, {CUSPARSE_FORMAT_COO, rows, columns, count, row_indices, indices, values,
                          index_type, index_type, base, type});
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t a) {
  delete a;
  DONE;
}
cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t a, int64_t *rows, int64_t *columns,
                                      int64_t *count) {
  *rows = a->rows, *columns = a->columns, *count = a->count;
  DONE;
}
cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t a, void *offsets, void *indices,
                                        void *values) {
  return pointers(a, offsets, indices, values);
}
cusparseStatus_t cusparseCscSetPointers(cusparseSpMatDescr_t a, void *offsets, void *indices,
                                        void *values) {
  return pointers(a, offsets, indices, values);
}
cusparseStatus_t cusparseCooSetPointers(cusparseSpMatDescr_t a, void *row_indices, void *indices,
                                        void *values) {
  return pointers(a, row_indices, indices, values);
}
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t *vector, int64_t size, void *values,
                                     cudaDataType type) {
  if (!known(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  *vector = new cusparseDnVecDescr{size, values, type};
  DONE;
}
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t x) {
  delete x;
  DONE;
}
cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t x, void *values) {
  x->values = values;
  DONE;
}
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t *matrix, int64_t rows, int64_t columns,
                                     int64_t ld, void *values, cudaDataType type,
                                     cusparseOrder_t order) {
  if (!known(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (ld < (order == CUSPARSE_ORDER_COL ? rows : columns)) return CUSPARSE_STATUS_INVALID_VALUE;
  *matrix = new cusparseDnMatDescr{rows, columns, ld, values, type, order};
  DONE;
}
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t a) {
  delete a;
  DONE;
}

// ---- products

cusparseStatus_t cusparseSpMV(cusparseHandle_t, cusparseOperation_t op, const void *alpha,
                              cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x,
                              const void *beta, cusparseDnVecDescr_t y, cudaDataType compute,
                              cusparseSpMVAlg_t, void *) {
  const bool plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;
  if (x->size != (plain ? a->columns : a->rows) || y->size != (plain ? a->rows : a->columns))
    return CUSPARSE_STATUS_INVALID_VALUE;
  Sums totals(y->size, alpha, beta, compute);
  each(*a, [&](int64_t row, int64_t column, double value) {
    totals.sums[plain ? row : column] += value * element(x->values, x->type, plain ? column : row);
  });
  for (int64_t i = 0; i < y->size; ++i) totals.store(i, y->values, y->type, i);
  kw::program::wrote(y->values, y->size * bytes_of(y->type));
  DONE;
}

cusparseStatus_t cusparseSpMM(cusparseHandle_t, cusparseOperation_t of_a, cusparseOperation_t of_b,
                              const void *alpha, cusparseConstSpMatDescr_t a,
                              cusparseConstDnMatDescr_t b, const void *beta, cusparseDnMatDescr_t c,
                              cudaDataType compute, cusparseSpMMAlg_t, void *) {
  const bool plain = of_a == CUSPARSE_OPERATION_NON_TRANSPOSE,
             b_plain = of_b == CUSPARSE_OPERATION_NON_TRANSPOSE;
  const int64_t m = plain ? a->rows : a->columns, k = plain ? a->columns : a->rows;
  if (c->rows != m || (b_plain ? b->rows : b->columns) != k ||
      (b_plain ? b->columns : b->rows) != c->columns)
    return CUSPARSE_STATUS_INVALID_VALUE;
  Sums totals(m * c->columns, alpha, beta, compute);
  each(*a, [&](int64_t row, int64_t column, double value) {
    if (!plain) std::swap(row, column);
    for (int64_t j = 0; j < c->columns; ++j)
      totals.sums[row * c->columns + j] +=
          value * element(b->values, b->type, b_plain ? b->at(column, j) : b->at(j, column));
  });
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < c->columns; ++j)
      totals.store(i * c->columns + j, c->values, c->type, c->at(i, j));
  kw::program::wrote(c->values, c->bytes());
  DONE;
}

// ---- conversions

cusparseStatus_t cusparseSparseToDense(cusparseHandle_t, cusparseConstSpMatDescr_t a,
                                       cusparseDnMatDescr_t to, cusparseSparseToDenseAlg_t,
                                       void *) {
  for (int64_t i = 0; i < to->rows; ++i)
    for (int64_t j = 0; j < to->columns; ++j) put(to->values, to->type, to->at(i, j), 0);
  each(*a, [&](int64_t row, int64_t column, double value) {
    put(to->values, to->type, to->at(row, column), value);
  });
  kw::program::wrote(to->values, to->bytes());
  DONE;
}
cusparseStatus_t cusparseDenseToSparse_analysis(cusparseHandle_t, cusparseConstDnMatDescr_t from,
                                                cusparseSpMatDescr_t a, cusparseDenseToSparseAlg_t,
                                                void *) {
  const bool by_rows = a->format != CUSPARSE_FORMAT_CSC;
  const int64_t lines = by_rows ? a->rows : a->columns;
  std::vector<int64_t> counts(lines + 1);
  nonzero(*from, by_rows, [&](int64_t line, int64_t, double) { ++counts[line + 1]; });
  for (int64_t i = 0; i < lines; ++i) counts[i + 1] += counts[i];
  a->count = counts[lines];
  if (a->format == CUSPARSE_FORMAT_COO) DONE;
  for (int64_t i = 0; i <= lines; ++i)
    put_index(a->offsets, a->offset_type, i, counts[i] + a->base);
  kw::program::wrote(a->offsets, (lines + 1) * bytes_of_index(a->offset_type));
  DONE;
}
cusparseStatus_t cusparseDenseToSparse_convert(cusparseHandle_t, cusparseConstDnMatDescr_t from,
                                               cusparseSpMatDescr_t a, cusparseDenseToSparseAlg_t,
                                               void *) {
  int64_t i = 0;
  nonzero(*from, a->format != CUSPARSE_FORMAT_CSC, [&](int64_t line, int64_t other, double x) {
    if (a->format == CUSPARSE_FORMAT_COO) put_index(a->offsets, a->offset_type, i, line + a->base);
    put_index(a->indices, a->index_type, i, other + a->base);
    put(a->values, a->type, i++, x);
  });
  if (a->format == CUSPARSE_FORMAT_COO)
    kw::program::wrote(a->offsets, i * bytes_of_index(a->offset_type));
  kw::program::wrote(a->indices, i * bytes_of_index(a->index_type));
  kw::program::wrote(a->values, i * bytes_of(a->type));
  DONE;
}
cusparseStatus_t cusparseXcoo2csr(cusparseHandle_t, const int *row_indices, int count, int rows,
                                  int *offsets, cusparseIndexBase_t base) {
  for (int row = 0, i = 0; row <= rows; ++row) {
    while (i < count && row_indices[i] - base < row) ++i;
    offsets[row] = i + base;
  }
  kw::program::wrote(offsets, (rows + 1) * sizeof(int));
  DONE;
}
cusparseStatus_t cusparseXcsr2coo(cusparseHandle_t, const int *offsets, int count, int rows,
                                  int *row_indices, cusparseIndexBase_t base) {
  for (int row = 0; row < rows; ++row)
    std::fill(row_indices + offsets[row] - base, row_indices + offsets[row + 1] - base, row + base);
  kw::program::wrote(row_indices, count * sizeof(int));
  DONE;
}

// ---- descriptors of older toolkits

cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t *descriptor) {
  *descriptor = new cusparseMatDescr{CUSPARSE_INDEX_BASE_ZERO};
  DONE;
}
cusparseStatus_t cusparseDestroyMatDescr(cusparseMatDescr_t d) {
  delete d;
  DONE;
}
cusparseStatus_t cusparseSetMatType(cusparseMatDescr_t, cusparseMatrixType_t type) {
  return type == CUSPARSE_MATRIX_TYPE_GENERAL ? CUSPARSE_STATUS_SUCCESS
                                              : CUSPARSE_STATUS_NOT_SUPPORTED;
}
cusparseStatus_t cusparseSetMatIndexBase(cusparseMatDescr_t d, cusparseIndexBase_t base) {
  d->base = base;
  DONE;
}
cusparseIndexBase_t cusparseGetMatIndexBase(cusparseMatDescr_t d) { return d->base; }
}
