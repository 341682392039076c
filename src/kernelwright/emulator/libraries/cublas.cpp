// The products of cuBLAS.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "matrix_elements.h"
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

// A product with accumulators of type T is made of tiles that stay in registers. A and B are copied
// so that a tile reads them in order; k is divided so that what it reads stays in the cache.
template <typename T> struct Tile {
  typedef T Vector __attribute__((vector_size(32)));
  static constexpr int kLanes = 32 / sizeof(T), kRows = 2 * kLanes, kColumns = 6;
  static constexpr int kDepth = 512, kBeside = 16;  // tiles of columns that share one of A's

  // sum += left right; left is k x kRows, right is k x kColumns
  static void add(int k, const T *left, const T *right, T (*sum)[kRows]) {
    Vector own[kColumns][2], a[2];
#pragma GCC unroll 6  // array elements become registers
    for (int j = 0; j < kColumns; ++j) std::memcpy(own[j], sum[j], sizeof own[j]);
    for (int p = 0; p < k; ++p, left += kRows, right += kColumns) {
      std::memcpy(&a[0], left, sizeof a[0]);
      std::memcpy(&a[1], left + kLanes, sizeof a[1]);
#pragma GCC unroll 6
      for (int j = 0; j < kColumns; ++j) {
        own[j][0] += a[0] * right[j];
        own[j][1] += a[1] * right[j];
      }
    }
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) std::memcpy(sum[j], own[j], sizeof own[j]);
  }
};

// A product of 16-bit numbers as the tensor cores of an H200 add it (tensor_cores.cpp): 16 of k at
// once, each term cut off at 2^-25 of the largest exponent, and the sum to a float.
struct Cut {
  typedef float Vector __attribute__((vector_size(32)));
  typedef int Integers __attribute__((vector_size(32)));
  typedef double Wide __attribute__((vector_size(64)));
  typedef long long Bits __attribute__((vector_size(64)));
  static constexpr int kRows = 8, kColumns = 6, kStep = 16, kDepth = 512, kBeside = 16;
  static constexpr int kNothing = -10000;  // the exponent of 0

  struct Number {
    float value;
    int exponent;
  };
  static Number number(double x, cudaDataType type) {
    int e = 0;
    std::frexp(x, &e);
    const int least = type == CUDA_R_16F ? -14 : -126;
    return {static_cast<float>(x), x == 0 ? kNothing : std::max(e - 1, least)};
  }

  struct Rows {  // 8 rows of A, up to 16 of k
    Vector value[kStep];
    Integers exponent[kStep];
    Rows(int k, const Number *left) {
      for (int p = 0; p < k; ++p)
        for (int i = 0; i < kRows; ++i) {
          value[p][i] = left[p * kRows + i].value;
          exponent[p][i] = left[p * kRows + i].exponent;
        }
    }
  };
  // sum += left right for a column
  static void add(int k, const Rows &left, const Number *right, float *sum) {
    Vector a[kStep], c;
    std::memcpy(&c, sum, sizeof c);
    Integers bits;
    std::memcpy(&bits, &c, sizeof bits);
    bits = (bits >> 23 & 0xff) - 127;
    Integers largest = c == 0 ? Integers{} + kNothing : bits < -126 ? Integers{} - 126 : bits;
    for (int p = 0; p < k; ++p) {
      a[p] = left.value[p] * right[p * kColumns].value;
      const Integers own = left.exponent[p] + right[p * kColumns].exponent;
      largest = own > largest ? own : largest;
    }
    const Integers far = largest > 100 | largest < -90;
    bool plain = false;
    for (int i = 0; i < kRows; ++i) plain |= far[i] != 0;
    if (plain) {  // far from 1, infinite, or all zeros
      for (int p = 0; p < k; ++p) c += a[p];
      std::memcpy(sum, &c, sizeof c);
      return;
    }
    const Integers up = (25 - largest + 127) << 23, down = (largest - 25 + 127) << 23;
    Vector scale, back;
    std::memcpy(&scale, &up, sizeof up), std::memcpy(&back, &down, sizeof down);
    Integers half[2] = {__builtin_convertvector(c * scale, Integers), Integers{}};
    for (int p = 0; p < k; ++p) half[p / 8] += __builtin_convertvector(a[p] * scale, Integers);
    const Wide exact =
        __builtin_convertvector(half[0], Wide) + __builtin_convertvector(half[1], Wide);
    Bits whole;
    std::memcpy(&whole, &exact, sizeof whole);
    whole &= ~((1ll << 29) - 1);  // toward zero
    Wide cut;
    std::memcpy(&cut, &whole, sizeof cut);
    c = __builtin_convertvector(cut, Vector) * back;
    std::memcpy(sum, &c, sizeof c);
  }
  static void add(int k, const Number *left, const Number *right, float (*sum)[kRows]) {
    for (int p = 0; p < k; p += kStep) {
      const int some = std::min(kStep, k - p);
      const Rows rows(some, left + p * kRows);
      for (int j = 0; j < kColumns; ++j) add(some, rows, right + p * kColumns + j, sum[j]);
    }
  }
};

// How a product with accumulators of type T reads its operands and adds.
template <typename T> struct Exact : Tile<T> {
  using Sum = T;
  using Held = T;
  static T held(double x, cudaDataType) { return static_cast<T>(x); }
};
struct Halves : Cut {
  using Sum = float;
  using Held = Number;
  static Number held(double x, cudaDataType type) { return number(x, type); }
};

// Columns of op(A), or rows of op(B): `most` in a group, with zeros behind the last one.
template <typename T, typename F> std::vector<T> groups(int n, int k, int most, F at) {
  std::vector<T> padded(size_t((n + most - 1) / most) * most * k);
  for (int p = 0; p < k; ++p)
    for (int i = 0; i < n; ++i) padded[(size_t(i / most) * k + p) * most + i % most] = at(i, p);
  return padded;
}

template <typename Its>
void product(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, double alpha,
             const Matrix &a, const Matrix &b, double beta, const Matrix &c) {
  using T = typename Its::Sum;
  using Held = typename Its::Held;
  constexpr int kRows = Its::kRows, kColumns = Its::kColumns, kWide = kColumns * Its::kBeside;
  const auto left = groups<Held>(m, k, kRows, [&](int i, size_t p) {
    return Its::held(element(a.data, a.type, ta == CUBLAS_OP_N ? i + p * a.ld : p + i * a.ld),
                     a.type);
  });
  const auto store = [&](int i0, int j0, int width, const T(*sum)[kRows]) {
    for (int j = 0; j < width; ++j)
      for (int i = 0; i < std::min(kRows, m - i0); ++i) {
        const size_t at = i0 + i + (j0 + j) * c.ld;
        const double before = beta == 0 ? 0 : beta * element(c.data, c.type, at);
        put(c.data, c.type, at, alpha * double(sum[j][i]) + before);
      }
  };
  const auto columns = [&](int j0) {
    const int width = std::min(kWide, n - j0);
    const auto right = groups<Held>(width, k, kColumns, [&](int j, size_t p) {
      const size_t at = tb == CUBLAS_OP_N ? p + (j0 + j) * b.ld : j0 + j + p * b.ld;
      return Its::held(element(b.data, b.type, at), b.type);
    });
    for (int i0 = 0; i0 < m; i0 += kRows) {
      T sum[kWide][kRows] = {};
      for (int p = 0; p < k; p += Its::kDepth)
        for (int j = 0; j < width; j += kColumns)
          Its::add(std::min(Its::kDepth, k - p), &left[size_t(i0) * k + size_t(p) * kRows],
                   &right[size_t(j) * k + size_t(p) * kColumns], sum + j);
      store(i0, j0, width, sum);
    }
  };
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int j; (j = next++ * kWide) < n;) columns(j);
  };
  std::vector<std::thread> others;
  const double enough = 1e6;  // multiplications that are worth a thread
  for (unsigned i = 1; i < std::thread::hardware_concurrency() && double(m) * n * k > enough; ++i)
    others.emplace_back(work);
  work();
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
    const bool halves = a.type == b.type && (a.type == CUDA_R_16F || a.type == CUDA_R_16BF);
    if (scale == CUDA_R_64F)
      product<Exact<double>>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    else if (scale == CUDA_R_32I)
      product<Exact<int>>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    else if (halves && scale == CUDA_R_32F)
      product<Halves>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
    else
      product<Exact<float>>(ta, tb, m, n, k, x, next(a, i), next(b, i), y, next(c, i));
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
