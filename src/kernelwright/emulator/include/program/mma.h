// Replaces NVIDIA's header of the same name: nvcuda::wmma. A lane holds elements as mma.sync's
// registers do; which elements those are is left open by NVIDIA.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#pragma GCC visibility push(default)
namespace kw::program {
// What a warp's lanes bring to D = A B + C: m x k, k x n, m x n elements, each lane its share.
struct Wmma {
  const void *a, *b, *c;
  void *d;
  int m, n, k;
  char a_type, b_type, c_type, d_type;  // h half, b bfloat, t tf32, f float, d double, s, u
};
void wmma(const Wmma &);
template <typename T> struct Letter;
}  // namespace kw::program
#pragma GCC visibility pop

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision
inline float __float_to_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  return x == x && !__builtin_isinf(x) ? __uint_as_float((bits + 0x1000u) & ~0x1fffu) : x;
}

template <typename T> struct stored {
  using type = T;
};
template <> struct stored<precision::tf32> {
  using type = float;
};

template <typename Use, int m, int n, int k, typename T, typename Layout = void> struct fragment {
  using element_type = typename stored<T>::type;
  using storage_element_type = element_type;
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int cols = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr int num_elements = rows * cols / 32;
  static constexpr int num_storage_elements = num_elements;
  element_type x[num_elements];
};

// The elements of a lane: numbers lane, lane + 32, ... in pairs along a row; one of doubles alone.
template <int COUNT> constexpr int element(int i, int lane) {
  return COUNT == 1 ? lane : (i / 2 * 32 + lane) * 2 + i % 2;
}

template <typename F, typename T>
__forceinline__ void load_matrix_sync(F &f, const T *from, unsigned stride, bool columns) {
  __syncwarp();
#ifdef KW_WATCHED
  kw_reads(from, 16, true);  // lines of a matrix begin at multiples of 16 bytes
#endif
  for (int i = 0; i < F::num_elements; ++i) {
    const int e = element<F::num_elements>(i, kw::emulator::lane()), r = e / F::cols,
              c = e % F::cols;
    f.x[i] = columns ? from[r + size_t(c) * stride] : from[size_t(r) * stride + c];
  }
  __syncwarp();
}
template <typename Use, int m, int n, int k, typename T, typename Layout>
__forceinline__ void load_matrix_sync(fragment<Use, m, n, k, T, Layout> &f,
                                      const typename stored<T>::type *from, unsigned stride) {
  load_matrix_sync(f, from, stride, std::is_same_v<Layout, col_major>);
}
template <int m, int n, int k, typename T>
__forceinline__ void load_matrix_sync(fragment<accumulator, m, n, k, T> &f, const T *from,
                                      unsigned stride, layout_t layout) {
  load_matrix_sync(f, from, stride, layout == mem_col_major);
}
template <int m, int n, int k, typename T>
__forceinline__ void store_matrix_sync(T *to, const fragment<accumulator, m, n, k, T> &f,
                                       unsigned stride, layout_t layout) {
  __syncwarp();
  for (int i = 0; i < f.num_elements; ++i) {
    const int e = element<f.num_elements>(i, kw::emulator::lane()), r = e / n, c = e % n;
    to[layout == mem_col_major ? r + size_t(c) * stride : size_t(r) * stride + c] = f.x[i];
  }
  __syncwarp();
}
template <typename F, typename V> __forceinline__ void fill_fragment(F &f, const V &value) {
  for (auto &x : f.x) x = typename F::element_type(value);
}
template <int m, int n, int k, typename A, typename B, typename C, typename D, typename LA,
          typename LB>
__forceinline__ void mma_sync(fragment<accumulator, m, n, k, D> &d,
                              const fragment<matrix_a, m, n, k, A, LA> &a,
                              const fragment<matrix_b, m, n, k, B, LB> &b,
                              const fragment<accumulator, m, n, k, C> &c, bool = false) {
  using kw::program::Letter;
#ifdef KW_WATCHED
  kw_reads(a.x, sizeof a.x, false), kw_reads(b.x, sizeof b.x, false);
  kw_reads(c.x, sizeof c.x, false);
#endif
  KW_OTHERS_RAN;
  kw::program::wmma(
      {a.x, b.x, c.x, d.x, m, n, k, Letter<A>::is, Letter<B>::is, Letter<C>::is, Letter<D>::is});
  KW_OTHERS_RAN;
}

}  // namespace nvcuda::wmma

#define KW_LETTER(T, letter)                  \
  template <> struct kw::program::Letter<T> { \
    static constexpr char is = letter;        \
  };
KW_LETTER(__half, 'h')
KW_LETTER(__nv_bfloat16, 'b')
KW_LETTER(nvcuda::wmma::precision::tf32, 't')
KW_LETTER(float, 'f')
KW_LETTER(double, 'd')
KW_LETTER(signed char, 's')
KW_LETTER(unsigned char, 'u')
KW_LETTER(int, 's')
#undef KW_LETTER
