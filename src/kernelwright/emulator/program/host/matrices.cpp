// The rounding of an H200's tensor cores, as measured by tools/mma_probe.cu: products are exact; a
// group of them and the accumulator are aligned to the largest exponent (for a product, the sum of
// its factors' exponents), each is truncated kExtra bits below a float's last bit, and they are
// added exactly; the sum is truncated to a float. A 16-bit result is rounded from it to nearest
// even.
#include "matrices.h"

#include <algorithm>
#include <vector>

namespace kw::ptx {
namespace {

constexpr int kExtra = 2;
constexpr Type kFloat = {'f', 32, false};

// Products that are added to the accumulator at once.
int group(Type a) { return a.kind == 't' ? 8 : 16; }

// 8-bit numbers are converted to halves, which are multiplied in two products of 16: of each four,
// first the first two and then the last two. The accumulator is added at the end, as for floats.
int place(int k) { return k % 4 / 2 * 16 + k / 4 * 2 + k % 2; }

float truncated(double x) {
  float nearest = static_cast<float>(x);
  if (std::fabs(x) < 0x1p127 && std::fabs(x) >= 0x1p-126) {  // a step to 0, as an integer
    const bool over = std::fabs(double(nearest)) > std::fabs(x);
    return from_bits<float>(to_bits(nearest) - over);
  }
  if (std::isinf(nearest)) return nearest;
  if (std::fabs(x) >= 0x1p128) return std::copysign(INFINITY, nearest);
  if (std::fabs(double(nearest)) > std::fabs(x)) nearest = std::nextafterf(nearest, 0);
  return nearest;
}

constexpr int kNothing = -10000;

// The exponent of a number that is not 0.
int exponent_of(double x) { return static_cast<int>(to_bits(x) >> 52 & 0x7ff) - 1023; }
double power(int exponent) { return from_bits<double>(u64(exponent + 1023) << 52); }

double value_of(Type t, u64 bits) {
  if (t.kind == 't') bits &= ~u64(0x1fff);  // the tensor core reads 19 bits
  return number(t, bits);
}

// Numbers of a row of A or a column of B, with their exponents; 0 has such a small one that no
// product with it is the largest.
struct Factors {
  double value[64];
  int exponent[64];
  bool finite;
};

// Halves and bfloats as floats.
const float *table(Type t) {
  const auto product = [](Type type) {
    std::vector<float> all(1 << 16);
    for (u64 i = 0; i < all.size(); ++i) all[i] = static_cast<float>(number(type, i));
    return all;
  };
  static const std::vector<float> halves = product({'f', 16, false}),
                                  bfloats = product({'h', 16, false});
  return (t.kind == 'h' ? bfloats : halves).data();
}

// Takes n numbers of a row or a column, whose bits are `stride` elements apart.
template <typename Bits> void take(Factors &f, Type t, const Bits *bits, int n, int stride) {
  if (t.bits == 16) {
    const float *const known = table(t);
    for (int i = 0; i < n; ++i) f.value[i] = known[bits[i * stride] & 0xffff];
  } else if (t.bits == 8) {
    for (int i = 0; i < n; ++i) f.value[place(i)] = value_of(t, bits[i * stride]);
  } else {
    for (int i = 0; i < n; ++i) f.value[i] = value_of(t, bits[i * stride]);
  }
  const bool half = t.kind == '4' || t.kind == '5' || (t.kind == 'f' && t.bits == 16);
  const int least = half ? -14 : -126;  // 8-bit numbers are multiplied as halves
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    const u64 own = to_bits(f.value[i]) & ~(u64(1) << 63);
    const int stored = static_cast<int>(own >> 52) - 1023;
    // as stored: denormals have the exponent of the smallest normal number
    f.exponent[i] = own == 0 ? 2 * kNothing : stored < least ? least : stored;
    finite &= stored < 1024;
  }
  f.finite = finite;
}

// NaN has one form.
u64 bits_of_result(Type d, double x) {
  if (std::isnan(x)) return d.bits == 16 ? 0x7fff : 0x7fffffffu;
  return bits_of_number(d, x);
}

// A product that is infinite or NaN, or 0 with a sign.
u64 plain(const double *x, const double *y, int n, double c, Type d) {
  for (int i = 0; i < n; ++i) c += x[i] * y[i];
  return bits_of_result(d, c);
}

// c + the sum of N products x[at + i] * y[at + i], as bits of type d.
template <int N> u64 dot(const Factors &x, const Factors &y, int at, double c, Type d) {
  const double *const a = x.value + at, *const b = y.value + at;
  if (!x.finite || !y.finite || !std::isfinite(c)) {
    bool special = !std::isfinite(c);
    for (int i = 0; i < N; ++i) special |= !std::isfinite(a[i] * b[i]);
    if (special) return plain(a, b, N, c, d);
  }
  int largest = c != 0 ? std::max(exponent_of(c), -126) : kNothing;
  for (int i = 0; i < N; ++i) {
    const int own = x.exponent[at + i] + y.exponent[at + i];
    largest = own > largest ? own : largest;
  }
  if (largest == kNothing) return plain(a, b, N, c, d);
  // In units of the grid, each number is less than 2^27: its part below 1 is dropped.
  const int grid = std::max(largest, -126) - 23 - kExtra;
  const double scale = power(-grid);
  std::int64_t sum = static_cast<int>(c * scale);
  for (int i = 0; i < N; ++i) sum += static_cast<int>(a[i] * b[i] * scale);
  const float rounded = truncated(static_cast<double>(sum) * power(grid));
  return d.kind == 'f' && d.bits == 32 ? to_bits(rounded) : bits_of_number(d, rounded);
}

u64 dot(const Factors &x, const Factors &y, int at, int n, double c, Type d) {
  return n == 16  ? dot<16>(x, y, at, c, d)
         : n == 8 ? dot<8>(x, y, at, c, d)
                  : dot<4>(x, y, at, c, d);
}

// Of floats, which most sums are, without a call.
bool plain_float(Type t) { return t.kind == 'f' && t.bits == 32; }
double sum_of(Type t, u64 bits) {
  return plain_float(t) ? from_bits<float>(static_cast<unsigned>(bits)) : number(t, bits);
}

// One element of a product.
u64 element(const Factors &x, const Factors &y, int n, u64 bits, Type a, Type c, Type d) {
  const bool small = a.bits == 8;
  const int step = std::min(group(a), n);
  const double before = sum_of(c, bits);
  double sum = small ? 0 : before;
  for (int k = 0; k < n; k += step) {
    const Type own = small || k + step < n ? kFloat : d;
    bits = dot(x, y, k, step, sum, own);
    if (k + step < n || small) sum = sum_of(own, bits);
  }
  return small ? bits_of_result(d, static_cast<float>(sum + before)) : bits;
}

template <typename Bits>
void multiply(int m, int n, int k, const Bits *a, int a_stride, const Bits *b, int b_stride,
              Bits *c, Type a_type, Type b_type, Type c_type, Type d_type, bool saturate) {
  if (!a_type.floating() && a_type.kind != '4' && a_type.kind != '5') {
    const auto integer = [](Type type, u64 bits) {
      return type.kind == 's' ? extended(bits, type.bits) : static_cast<std::int64_t>(bits);
    };
    for (int r = 0; r < m; ++r)
      for (int q = 0; q < n; ++q) {
        Bits &own = c[r * n + q];
        std::int64_t sum = extended(own, 32);
        for (int i = 0; i < k; ++i)
          sum += integer(a_type, a[r * a_stride + i]) * integer(b_type, b[i * b_stride + q]);
        if (saturate) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
        own = static_cast<Bits>(masked(sum, 32));
      }
    return;
  }
  Factors y[32];
  for (int q = 0; q < n; ++q) take(y[q], b_type, b + q, k, b_stride);
  for (int r = 0; r < m; ++r) {
    Factors x;
    take(x, a_type, a + r * a_stride, k, 1);
    for (int q = 0; q < n; ++q) {
      Bits &own = c[r * n + q];
      own = static_cast<Bits>(element(x, y[q], k, own, a_type, c_type, d_type));
    }
  }
}

}  // namespace

void multiply(Tile &t, Type a, Type b, Type c, Type d, bool saturate) {
  multiply(16, 8, t.k, t.a[0], 64, t.b[0], 8, t.c[0], a, b, c, d, saturate);
}
void multiply(int m, int n, int k, const unsigned *a, const unsigned *b, unsigned *c, Type a_type,
              Type b_type, Type c_type, Type d_type) {
  multiply(m, n, k, a, k, b, n, c, a_type, b_type, c_type, d_type, false);
}

}  // namespace kw::ptx
