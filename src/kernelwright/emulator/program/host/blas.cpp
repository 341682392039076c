// The products of cuBLAS.
#include <algorithm>
#include <thread>

#include "blas.h"
#include "program/small_floats.h"

struct cublasContext {
  int unused;
};

namespace kw::program::blas {

double element(const void *data, cudaDataType type, size_t i) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float *>(data)[i];
    case CUDA_R_64F:
      return static_cast<const double *>(data)[i];
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const __half *>(data)[i]);
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const __nv_bfloat16 *>(data)[i]);
    case CUDA_R_32I:
      return static_cast<const int *>(data)[i];
    case CUDA_R_8F_E4M3:
      return ptx::e4m3_value(static_cast<const unsigned char *>(data)[i]);
    case CUDA_R_8F_E5M2:
      return ptx::e5m2_value(static_cast<const unsigned char *>(data)[i]);
    default:
      return static_cast<const signed char *>(data)[i];
  }
}
void put(void *data, cudaDataType type, size_t i, double x) {
  switch (type) {
    case CUDA_R_32F:
      static_cast<float *>(data)[i] = static_cast<float>(x);
      break;
    case CUDA_R_64F:
      static_cast<double *>(data)[i] = x;
      break;
    case CUDA_R_16F:
      static_cast<__half *>(data)[i] = __half(static_cast<float>(x));
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16 *>(data)[i] = __nv_bfloat16(static_cast<float>(x));
      break;
    case CUDA_R_8F_E4M3:
      static_cast<unsigned char *>(data)[i] = ptx::e4m3_bits(x);
      break;
    case CUDA_R_8F_E5M2:
      static_cast<unsigned char *>(data)[i] = ptx::e5m2_bits(x);
      break;
    case CUDA_R_8I:
      static_cast<signed char *>(data)[i] =
          static_cast<signed char>(std::clamp(std::nearbyint(x), -128.0, 127.0));
      break;
    default:
      static_cast<int *>(data)[i] = static_cast<int>(x);
  }
}
bool known(cudaDataType t) {
  return t == CUDA_R_32F || t == CUDA_R_64F || t == CUDA_R_16F || t == CUDA_R_16BF ||
         t == CUDA_R_32I || t == CUDA_R_8I || t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2;
}
size_t bytes_of(cudaDataType t) {
  switch (t) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    default:
      return 4;
  }
}

namespace {

// One product with accumulators of type T: columns of A, each times a number of B.
template <typename T>
void product(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, double alpha,
             const Matrix &a, const Matrix &b, double beta, const Matrix &c) {
  std::vector<T> left(size_t(m) * k);
  for (int p = 0; p < k; ++p)
    for (int i = 0; i < m; ++i)
      left[i + size_t(p) * m] =
          static_cast<T>(element(a.data, a.type, ta == CUBLAS_OP_N ? i + p * a.ld : p + i * a.ld));
  const auto columns = [&](int from, int to) {
    std::vector<T> sum(m);
    for (int j = from; j < to; ++j) {
      std::fill(sum.begin(), sum.end(), T(0));
      for (int p = 0; p < k; ++p) {
        const T x = static_cast<T>(
            element(b.data, b.type, tb == CUBLAS_OP_N ? p + j * b.ld : j + p * b.ld));
        const T *column = left.data() + size_t(p) * m;
        for (int i = 0; i < m; ++i) sum[i] += column[i] * x;
      }
      for (int i = 0; i < m; ++i) {
        const size_t at = i + j * c.ld;
        put(c.data, c.type, at,
            alpha * double(sum[i]) + (beta == 0 ? 0 : beta * element(c.data, c.type, at)));
      }
    }
  };
  const int parts = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  for (int i = 1; i < parts; ++i)
    others.emplace_back(columns, int(1ll * n * i / parts), int(1ll * n * (i + 1) / parts));
  columns(0, int(1ll * n / parts));
  for (auto &t : others) t.join();
}

Matrix next(Matrix m, int i) {
  m.data = static_cast<char *>(m.data) + i * m.stride * static_cast<long long>(bytes_of(m.type));
  return m;
}

}  // namespace

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                    int k, const void *alpha, Matrix a, Matrix b, const void *beta, Matrix c,
                    int count, cudaDataType scale, bool) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const bool fits =
      a.ld >= (ta == CUBLAS_OP_N ? m : k) && b.ld >= (tb == CUBLAS_OP_N ? k : n) && c.ld >= m;
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  if (!known(a.type) || !known(b.type) || !known(c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const double x = element(alpha, scale, 0), y = element(beta, scale, 0);
  for (int i = 0; i < count; ++i) {
    if (scale == CUDA_R_64F)
      product<double>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    else if (scale == CUDA_R_32I)
      product<int>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    else
      product<float>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    if (m && n) wrote(next(c, i).data, (size_t(c.ld) * (n - 1) + m) * bytes_of(c.type));
  }
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace kw::program::blas

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = new cublasContext{0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusName(cublasStatus_t e) {
  switch (e) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}
const char *cublasGetStatusString(cublasStatus_t e) { return cublasGetStatusName(e); }
}
